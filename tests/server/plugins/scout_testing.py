"""A plugin for tests alone; SGLang finds it where PYTHONPATH names this folder.

In every rank it reports, in ``/server_info`` under ``testing``, whether the radix tree is sound,
how many tokens were evicted, and how many warm-ups were queued while a client's request had not
had its first token. Environment variables make it interfere: ``FAULTS`` names a file that says
which of our functions fail from now on, ``RANK_SCORE`` turns the order of eviction round on the
second rank, ``HOST_TIER`` makes SGLang's host tier run on a CPU, ``WARMUP`` names a file in which
"rest" keeps warm-ups from starting and "poison" puts ids of another prompt, some beyond the
vocabulary, into their plans.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

FAULTS = "SCOUT_TESTING_FAULTS"
RANK_SCORE = "SCOUT_TESTING_RANK_SCORE"
WARMUP = "SCOUT_TESTING_WARMUP"
HOST_TIER = "SCOUT_TESTING_HOST_TIER"
EVERYTHING = "everything"

# Functions of ours that SGLang's own steps end up in, and the kinds their faults may bear: those
# that run on either tree core, and those that run on one of them.
POINTS = {
    "radix_policy.scout:Scout.observe": {"arrive"},
    "radix_policy.scout:Scout.admit": {"match"},
    "radix_policy.scout:Scout.start": {"start"},
    "radix_policy.scout:Scout.touch": {"match", "insert"},
    "radix_policy.scout:Scout.finish": {"finish"},
    "radix_policy.scout:Scout.abandon": {"finish", "abandon"},
    "radix_policy.scout:Scout.priority": {"score"},
    "radix_policy.value:ScoutValue.worth": {"score"},
    "radix_policy.scout:Scout.flush": {"flush"},
    "radix_policy.scout:Scout.state": {"state"},
    "radix_policy.guard:Guard.beta": {"walk", "start", "state"},
    "radix_policy.tags:born": {"insert", "match"},
    "scout_sglang.dispatch:call_of": {"arrive"},
}
ON_PYTHON = {
    "radix_policy.tags:split": {"split"},
    "scout_sglang.tree_core_python:ScoutTreeCore._trim": {"trim"},
}
ON_RUST = {
    "radix_policy.tags:split": {"evict"},
    "radix_policy.buckets:Buckets.put": {"insert", "match", "evict", "walk"},
    "radix_policy.scout:Scout.root": {"evict"},
    "scout_sglang.tree_core_rust:RustScoutCore._trim": {"trim"},
    "scout_sglang.tree_core_rust:RustScoutCore._evictable": {"score"},
}
ON_IDLE = {
    "radix_policy.scout:Scout.act": {"warmup"},
    "scout_sglang.warmup:request": {"warmup"},
    "scout_sglang.warmup:Warmup._landed": {"warmup"},
}

_seen: Counter[str] = Counter()
_no_token_yet: set[str] = set()


def register() -> None:
    """SGLang calls it in each process; only ranks have a cache to look at."""
    if "sglang.srt.managers.scheduler" not in sys.modules:
        return
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    from scout_sglang import plugin

    HookRegistry.register(f"{plugin.CACHE}._evict", count_evicted, HookType.AFTER)
    HookRegistry.register(f"{plugin.STATE}.get_internal_state", report, HookType.AFTER)
    if path := os.environ.get(FAULTS):
        for point in {**POINTS, **ON_RUST, **ON_IDLE}:
            make_breakable(point, Path(path).read_text)
    if path := os.environ.get(WARMUP):
        interfere(Path(path).read_text)
    HookRegistry.register(f"{plugin.SCHEDULER}._add_request_to_queue", queued, HookType.BEFORE)
    HookRegistry.register(f"{plugin.STREAMER}.stream_output", streamed, HookType.BEFORE)
    if os.environ.get(HOST_TIER):
        host_tier_without_gpu()
    if os.environ.get(RANK_SCORE):
        turn_round_on_second_rank()


def make_breakable(point: str, broken: Any, put: Any = setattr) -> None:
    """Let the function at ``point`` raise while ``broken()`` is its name or ``EVERYTHING``."""
    module, _, path = point.partition(":")
    owner: Any = importlib.import_module(module)
    *classes, name = path.split(".")
    for part in classes:
        owner = getattr(owner, part)
    original = owner.__dict__[name]
    function = original.fget if isinstance(original, property) else original

    @functools.wraps(function)
    def breakable(*args: Any, **kwargs: Any) -> Any:
        if broken() in (point, EVERYTHING):
            raise RuntimeError(f"injected into {point}")
        return function(*args, **kwargs)

    put(owner, name, property(breakable) if isinstance(original, property) else breakable)


def host_tier_without_gpu() -> None:
    """SGLang's host tier on a CPU: memory that is not registered, copies by index.

    The server needs ``--hicache-io-backend direct --hicache-mem-layout layer_first``.
    """
    import torch
    from sglang.srt.mem_cache.pool_host import common, mha

    def allocate(dims: Any, dtype: Any, device: str, **_: Any) -> Any:
        return torch.zeros(dims, dtype=dtype, device=device)

    def copy(
        src_layers: Any, dst_layers: Any, src_indices: Any, dst_indices: Any, **_: Any
    ) -> None:
        for source, target in zip(src_layers, dst_layers, strict=True):
            target[dst_indices] = source[src_indices]

    common.ALLOC_MEMORY_FUNCS["cpu"] = allocate
    mha.transfer_kv_direct = copy


def turn_round_on_second_rank() -> None:
    import torch

    from radix_policy.scout import Scout

    priority = Scout.priority

    def turned(self: Scout, *args: Any) -> float:
        sign = -1 if torch.distributed.get_rank() == 1 else 1
        return sign * priority(self, *args)

    Scout.priority = turned  # type: ignore[method-assign]


def interfere(order: Any) -> None:
    from radix_policy.scout import Scout
    from scout_sglang import warmup

    act, rests = Scout.act, warmup.why_not_now

    def poisoned(self: Scout, room: Any) -> Any:
        plan = act(self, room)
        if plan is None or order() != "poison":
            return plan
        tokens = plan.prefix.tokens[::-1] + 3
        tokens[: self.clock % 2] = 1 << 30
        return plan._replace(prefix=plan.prefix._replace(tokens=tokens))

    Scout.act = poisoned  # type: ignore[method-assign]
    warmup.why_not_now = lambda scheduler: (  # type: ignore[assignment]
        "a test says so" if order() == "rest" else rests(scheduler)
    )


def queued(scheduler: Any, req: Any, *args: Any, **kwargs: Any) -> None:
    if not hasattr(req, "scout_piece"):
        _no_token_yet.add(req.rid)
    elif _no_token_yet:
        _seen["pieces_amid"] += 1


def streamed(streamer: Any, reqs: Any, *args: Any, **kwargs: Any) -> None:
    _no_token_yet.difference_update(req.rid for req in reqs if req.output_ids or req.finished())


def count_evicted(result: Any, *args: Any, **kwargs: Any) -> None:
    _seen["tokens"] += result.num_tokens_evicted


def report(result: Any, controller: Any, *args: Any) -> None:
    tree_cache = controller.scheduler.tree_cache
    try:
        tree_cache.sanity_check()
        sanity = "sound"
    except Exception as error:
        sanity = repr(error)
    core = tree_cache.tree_core
    allocator = tree_cache.token_to_kv_pool_allocator
    result.internal_state["testing"] = {
        "sanity": sanity,
        "evicted_tokens": _seen["tokens"],
        "pieces_amid": _seen["pieces_amid"],
        "capacity": allocator.size,
        "available": allocator.available_size(),
        "evictable": core.evictable_size(),
        "protected": core.protected_size(),
    }
