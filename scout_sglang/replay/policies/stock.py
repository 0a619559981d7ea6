"""SGLang's built-in eviction policies on its default tree core."""

from __future__ import annotations

from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.radix import RadixPolicy
from scout_sglang.replay.pools import build_cache


def cache_for(setting: Setting) -> UnifiedRadixCache:
    """SGLang's cache as ``setting`` asks for it, under its policy."""
    return build_cache(
        policy=setting.policy,
        policy_config=dict(setting.config) or None,
        capacity=setting.capacity,
        page_size=setting.page_size,
        max_tokens=setting.max_tokens,
        max_running=setting.max_running,
    )


def build(setting: Setting) -> RadixPolicy:
    return RadixPolicy(cache_for(setting))
