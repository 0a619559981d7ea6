"""Which tree core a cache of ours runs on, and the hooks that lead SGLang to it.

``tree_core_rust`` is SGLang's Rust core with our victims. ``tree_core_python`` is the reference;
it also runs where SGLang itself needs its Python core, where a host tier or an external store
takes part in eviction, and under *cachescout*, whose order of two leaves changes with their age.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from sglang.srt.mem_cache import utils as cache_utils
from sglang.srt.mem_cache.base_prefix_cache import EvictParams
from sglang.srt.mem_cache.unified_cache import tree_core_registry
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from radix_policy.config import POLICIES, CacheScoutConfig, IdentityConfig, parse_config
from scout_sglang import compat, plugin, shadow
from scout_sglang.tree_core_python import BACKEND as PYTHON
from scout_sglang.tree_core_python import ScoutStrategy, ScoutTreeCore

logger = logging.getLogger(__name__)

RUST = "scout-rust"


def python_needed(config: IdentityConfig, params: Any) -> str | None:
    """Why the cache has to run on the Python core, or None if it can run on the Rust one."""
    if config.core == "python":
        return "asked for"
    if os.environ.get(compat.TREE_CORE_ENV) == "python":
        return f"{compat.TREE_CORE_ENV} asks for it"
    if isinstance(config, CacheScoutConfig):
        return "the order of this policy depends on each leaf's age and size"
    if tuple(params.tree_components) != (ComponentType.FULL,):
        return "the cache has components beside full attention"
    if params.is_eagle:
        return "the tree's keys are pairs of tokens"
    if flag := _second_tier():
        return f"{flag} takes part in eviction"
    if tree_core_registry.resolve_tree_core_backend("rust", params) != "rust":
        return "SGLang itself cannot use its Rust core here"
    return None


def _second_tier() -> str | None:
    """The flag that puts a host tier or an external store behind the tree, or None."""
    from sglang.srt.runtime_context import get_disagg, get_memory

    try:
        memory, disagg = get_memory(), get_disagg()
        if memory.enable_hierarchical_cache:
            return "--enable-hierarchical-cache"
        if memory.enable_unified_cache_external_linker:
            return "--enable-unified-cache-external-linker"
        if disagg.disaggregation_decode_retraction_backup == "host_pool":
            return "--disaggregation-decode-retraction-backup host_pool"
    except (AttributeError, RuntimeError, ValueError, KeyError):
        # No server around the cache: then there are no flags either.
        return None
    return None


def register_backends() -> None:
    """Make the policies and the cores known to SGLang's own factories. Idempotent."""
    for policy in POLICIES:
        cache_utils._EVICTION_POLICY_FACTORIES.setdefault(
            policy, lambda policy=policy, **config: ScoutStrategy(policy, **config)
        )
    for name, factory in ((PYTHON, ScoutTreeCore), (RUST, _rust_core)):
        if tree_core_registry.get_tree_core_factory(name) is None:
            tree_core_registry.register_tree_core_backend(name, factory)


def _rust_core(params: Any, components: Any) -> Any:
    from scout_sglang.tree_core_rust import RustScoutCore

    return RustScoutCore(params, components)


def on_cache_init(init: Callable[..., None], cache: Any, params: Any) -> None:
    """AROUND UnifiedRadixCache.__init__: under one of our policies, on one of our tree cores."""
    policy = params.eviction_policy.lower()
    if policy not in POLICIES or params.disable:
        init(cache, params)
        return
    if plugin.active_policy() is not None:
        plugin.verify(plugin.rank_hooks())
    register_backends()
    config = parse_config(policy, params.eviction_policy_config)
    why_python = python_needed(config, params)
    params.tree_core_backend = PYTHON if why_python else RUST
    init(cache, params)
    core = cache.tree_core
    if getattr(core, "scout_calls", None) is None:
        raise RuntimeError(
            f"policy {policy} needs the tree core {params.tree_core_backend}, got "
            f"{type(core).__name__}; unset {compat.TREE_CORE_ENV} or choose "
            "--radix-eviction-policy lru"
        )
    if shadow.being_cast:
        return
    if config.mode == "shadow":
        set_mode(cache, "shadow", fair=True)
    if why_python and config.core == "rust":
        logger.warning("scout: core=rust, but the Python tree core runs: %s", why_python)
    logger.info(
        "scout: policy=%s cache=%s tree_core=%s (%s) capacity=%d page_size=%d constants=%s",
        policy,
        type(cache).__name__,
        params.tree_core_backend,
        why_python or "SGLang's own default",
        params.token_to_kv_pool_allocator.size,
        params.page_size,
        asdict(config),
    )


def set_mode(cache: Any, mode: str, fair: bool = False) -> str:
    """Serve by the policy (*on*), or by lru beside a *shadow* under the policy; the mode before.

    ``fair``: the cache is empty, as a new shadow is.
    """
    core = cache.tree_core
    before, strategy = core.scout_calls.mode, core.eviction_strategy
    strategy.lru = mode == "shadow"
    if mode != before or fair:
        core.scout_calls.shadow = (
            shadow.cast(cache, core.scout_calls, fair) if strategy.lru else None
        )
        if core.scout.guard is not None:
            core.scout.guard.follow(cache.token_to_kv_pool_allocator.size)
    core.scout_calls.mode = mode
    _serve_as("lru" if strategy.lru else strategy.policy)
    return before


def _serve_as(policy: str) -> None:
    """SGLang's scheduler keeps waiting prefixes recent under the policy named lru only."""
    from sglang.srt.runtime_context import get_context

    context = get_context()
    if context.is_config_namespace_published("memory"):
        context.override(source="scout_sglang", radix_eviction_policy=policy)


def on_checkpoint(checkpoint: Callable[..., None], cache: Any, req: Any, **kwargs: Any) -> None:
    """AROUND UnifiedRadixCache.checkpoint_into_tree: inserts belong to this request."""
    core = cache.tree_core
    calls = getattr(core, "scout_calls", None)
    if calls is None:
        checkpoint(cache, req, **kwargs)
        return
    core.current = calls.start(req.rid, req.kv.cache_protected_len, req)
    try:
        checkpoint(cache, req, **kwargs)
    finally:
        core.current = None


def on_evict_for_alloc(
    evict: Callable[..., Any], cache: Any, params: EvictParams, **kwargs: Any
) -> Any:
    """AROUND UnifiedRadixCache.evict_for_alloc: the walk is asked for all, but needs this much."""
    core = cache.tree_core
    calls = getattr(core, "scout_calls", None)
    if calls is None:
        return evict(cache, params, **kwargs)
    core.one_by_one = bool(kwargs)
    if not kwargs:
        core.shortfall = params.num_tokens
    try:
        with calls.counters.step("evict"):
            return evict(cache, params, **kwargs)
    finally:
        core.shortfall = None
        core.one_by_one = False
