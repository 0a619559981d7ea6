"""SGLang's built-in eviction policies on its default tree core."""

from __future__ import annotations

from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.radix import RadixPolicy
from scout_sglang.replay.pools import build_cache


def build(setting: Setting) -> RadixPolicy:
    cache = build_cache(
        policy=setting.policy,
        policy_config=dict(setting.config) or None,
        capacity=setting.capacity,
        page_size=setting.page_size,
        max_tokens=setting.max_tokens,
        max_running=setting.max_running,
    )
    return RadixPolicy(cache)
