"""SGLang's cache built as the server builds it, without a model behind it."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache


class NoKV:
    """Stands where the KV tensors would be: the lab moves slots, never their contents."""


def build_cache(**arguments: Any) -> UnifiedRadixCache:
    """What ``make_cache`` makes, for a process that does nothing else."""
    # The lab's tensors are small; a second thread costs more than it brings.
    torch.set_num_threads(1)
    return make_cache(**arguments)


def make_cache(
    *,
    policy: str,
    policy_config: dict[str, Any] | None,
    capacity: int,
    page_size: int,
    max_tokens: int,
    max_running: int,
    core: str | None = None,
) -> UnifiedRadixCache:
    """A UnifiedRadixCache over ``capacity`` token slots on the CPU.

    ``max_tokens`` bounds prompt plus output of one request, ``max_running`` how many may run at
    once. ``core`` names the tree core; None takes SGLang's default (Rust where it can).
    """
    common: dict[str, Any] = {
        "dtype": torch.float16,
        "device": "cpu",
        "kvcache": NoKV(),
        "need_sort": False,
    }
    if page_size == 1:
        allocator = TokenToKVPoolAllocator(capacity, **common)
    else:
        allocator = PagedTokenToKVPoolAllocator(capacity, page_size, **common)
    params = CacheInitParams(
        disable=False,
        req_to_token_pool=ReqToTokenPool(max_running, max_tokens, "cpu", False),
        token_to_kv_pool_allocator=allocator,
        page_size=page_size,
        eviction_policy=policy,
        eviction_policy_config=policy_config,
        tree_components=(ComponentType.FULL,),
        tree_core_backend=core,
    )
    return UnifiedRadixCache(params)
