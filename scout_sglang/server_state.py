"""What the policy says of itself in SGLang's ``/server_info``, one entry per DP rank.

Numbers only: no token ids, no prompt text, no client labels.
"""

from __future__ import annotations

from typing import Any

from scout_sglang.dispatch import calls_of
from scout_sglang.faults import FAULTS, guarded


def describe(tree_cache: Any) -> dict[str, Any] | None:
    """Policy, what it has learned so far, its faults, and the cache's books in tokens.

    ``memory``: available + evictable + protected = capacity whenever no call is under way.
    None if the cache runs none of our policies.
    """
    calls = calls_of(tree_cache)
    if calls is None:
        return None
    core, allocator = tree_cache.tree_core, tree_cache.token_to_kv_pool_allocator
    return {
        "policy": core.eviction_strategy.policy,
        "mode": calls.mode,
        "underway": len(calls),
        **calls.scout.state(),
        "faults": dict(FAULTS.counts),
        "memory": {
            "capacity": allocator.size,
            "available": allocator.available_size(),
            "evictable": core.evictable_size(),
            "protected": core.protected_size(),
        },
    }


def _faults_alone(result: Any, *_: Any) -> None:
    result.internal_state["scout"] = {"faults": dict(FAULTS.counts)}


@guarded("state", fallback=_faults_alone)
def on_internal_state(result: Any, controller: Any, *args: Any) -> None:
    """AFTER SchedulerInternalStateController.get_internal_state: add an entry ``scout``."""
    described = describe(controller.scheduler.tree_cache)
    if described is not None:
        if (warmup := getattr(controller.scheduler, "scout_warmup", None)) is not None:
            described["warmup"] = warmup.state()
        result.internal_state["scout"] = described
