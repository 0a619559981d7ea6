"""A cache that never evicts: the real one, with room for the whole trace."""

from __future__ import annotations

from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.radix import RadixPolicy
from scout_sglang.replay.pools import build_cache


def build(setting: Setting) -> RadixPolicy:
    # Running calls hold pages beyond the trace's own until their ends are inserted.
    slack = setting.max_running * 4 * setting.page_size + 2 * setting.max_tokens
    pages = (setting.footprint + slack) // setting.page_size + 1
    cache = build_cache(
        policy="lru",
        policy_config=None,
        capacity=pages * setting.page_size,
        page_size=setting.page_size,
        max_tokens=setting.max_tokens,
        max_running=setting.max_running,
    )
    return RadixPolicy(cache)
