"""What the policy costs on the scheduler's thread, beside SGLang's own LRU in the same run.

    python -m evals.bench_overhead [--quick] [--json FILE]

Two caches of SGLang's own classes hold the same leaves: stock *lru* on the Rust tree core, and
*scout* with values learned from real calls. Every operation is timed on both, turn by turn, in
thread CPU time; ratios are of medians. A whole call is match, lock, evict, insert, unlock; what a
call costs on arrival (identity, session, model) is timed apart.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import warnings
from array import array
from collections.abc import Callable
from pathlib import Path
from time import thread_time_ns
from typing import Any, NamedTuple

import numpy as np
import torch

from radix_policy.call import Call, Dispatch
from radix_policy.config import ScoutConfig
from radix_policy.scout import Scout

AGENTS, SESSIONS = 100, 500
LEAF, EVICTED = 64, 1024
PER_CLASS = 4

EVICT_BARS = {1_000: 3.0, 10_000: 1.0, 100_000: 0.15}
CALL_BARS = {1_000: 1.6, 10_000: 1.1, 100_000: 0.2}
PATH_BARS = {"match": 1.2, "insert": 1.6, "lock": 1.2}
ARRIVAL_P99_US, REFRESH_US = 150.0, 300.0


class Point(NamedTuple):
    """One size: how many leaves, tokens per prompt, tokens per page."""

    leaves: int
    prompt: int
    page: int


class Times:
    """CPU times of named operations, in microseconds."""

    def __init__(self) -> None:
        self._taken: dict[str, list[float]] = {}

    def measure(self, name: str, operation: Callable[[], Any]) -> Any:
        start = thread_time_ns()
        result = operation()
        self._taken.setdefault(name, []).append((thread_time_ns() - start) / 1000)
        return result

    def median(self, name: str) -> float:
        return float(np.median(self._taken[name]))

    def summary(self) -> dict[str, dict[str, float]]:
        """Median and 99th percentile by operation."""
        return {
            name: {"median": float(np.median(t)), "p99": float(np.percentile(t, 99))}
            for name, t in self._taken.items()
        }


class Bench:
    """A cache that holds ``point.leaves`` leaves below the anchors of many agents."""

    def __init__(self, policy: str, point: Point, scout: dict[str, Any]) -> None:
        from scout_sglang.replay.pools import build_cache

        self.point = point
        self.spare = 4 * point.prompt + 4 * EVICTED
        pages = -(-LEAF // point.page) * point.page
        anchors = AGENTS * (point.prompt + point.page)
        self.cache = build_cache(
            policy=policy,
            policy_config=scout if policy == "scout" else None,
            capacity=-(-(point.leaves * pages + anchors + self.spare) // point.page) * point.page,
            page_size=point.page,
            max_tokens=2 * point.prompt,
            max_running=8,
        )
        self.core = self.cache.tree_core
        self.times = Times()
        self._token = 1 << 20

    # Prompts: an agent's words, then tokens that no other prompt has.

    def prompt(self, agent: int) -> array:
        length = max(LEAF, self.point.page)
        self._token += length
        words = np.arange(self.point.prompt - length) + agent * (1 << 14)
        tail = np.arange(self._token - length, self._token)
        ids = array("q")
        ids.frombytes(np.concatenate([words, tail]).astype(np.int64).tobytes())
        return ids

    def insert(self, ids: array, start: int) -> Any:
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams
        from sglang.srt.mem_cache.radix_cache import RadixKey

        slots = self.cache.token_to_kv_pool_allocator.alloc(len(ids) - start)
        assert slots is not None
        held = torch.cat([torch.zeros(start, dtype=torch.int64), slots])
        params = InsertParams(key=RadixKey(ids), value=held, prev_prefix_len=start)
        return lambda: self.cache.insert(params)

    def match(self, ids: array, rid: str | None) -> Any:
        from types import SimpleNamespace

        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
        from sglang.srt.mem_cache.radix_cache import RadixKey

        req = None if rid is None else SimpleNamespace(rid=rid, session=None)
        params = MatchPrefixParams(key=RadixKey(ids), req=req)
        return lambda: self.cache.match_prefix(params)

    def evict(self, tokens: int) -> Any:
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        return self.cache.evict_for_alloc(EvictParams(num_tokens=tokens))

    def fill(self, dispatch: Callable[[int], Dispatch] | None) -> None:
        for number in range(self.point.leaves):
            ids = self.prompt(number % AGENTS)
            start = self.cache.match_prefix(self._plain(ids)).device_prefix_len
            self._own(None if dispatch is None else dispatch(number), len(ids))
            self.insert(ids, start)()
            self._own(None, 0)

    def _plain(self, ids: array) -> Any:
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
        from sglang.srt.mem_cache.radix_cache import RadixKey

        return MatchPrefixParams(key=RadixKey(ids))

    def _own(self, call: Dispatch | None, prompt: int) -> None:
        if hasattr(self.core, "scout_calls"):
            from scout_sglang.dispatch import Underway

            self.core.current = None if call is None else Underway(call, prompt)

    def step(self, number: int, agent: int, call: Dispatch | None) -> None:
        """One call without its arrival, each part timed, and all of them together."""
        ids, rid = self.prompt(agent), None
        if call is not None:
            from scout_sglang.dispatch import Underway

            rid = f"r{number}"
            self.core.scout_calls._by_rid[rid] = Underway(call, len(ids))
        measure, whole = self.times.measure, 0
        begun = thread_time_ns()
        found = measure("match", self.match(ids, rid))
        lock = measure("lock", lambda: self.cache.lock(found.last_device_node))
        whole += thread_time_ns() - begun
        free = self.cache.token_to_kv_pool_allocator
        while free.available_size() > EVICTED // 2:
            assert free.alloc(self.point.page) is not None or not free.available_size()
            if free.available_size() <= self.spare:
                break
        begun = thread_time_ns()
        measure("evict", lambda: self.evict(EVICTED))
        whole += thread_time_ns() - begun
        insert = self.insert(ids, found.device_prefix_len)
        self._own(call, len(ids))
        begun = thread_time_ns()
        measure("insert", insert)
        self._own(None, 0)
        measure("unlock", lambda: self.cache.unlock(lock))
        whole += thread_time_ns() - begun
        self.times._taken.setdefault("call", []).append(whole / 1000)
        if rid is not None:
            self.core.scout_calls._by_rid.pop(rid)


def learned(scout: Scout, calls: int) -> list[Dispatch]:
    """Teach ``scout`` a traffic of many agents and sessions; the latest call of each pair."""
    rng = np.random.default_rng(0)
    latest: dict[tuple[int, int], Dispatch] = {}
    for number in range(calls):
        session, agent = number % SESSIONS, int(rng.integers(AGENTS))
        prompt = np.arange(32, dtype=np.int32) + 64 * agent
        call = scout.observe(Call(prompt, agent=f"a{agent}", session=f"s{session}"))
        scout.admit(call)
        scout.start(call, 32, 16)
        scout.finish(call, np.append(prompt, session), 32, 512)
        latest[session, agent] = call
    return list(latest.values())


def tree(point: Point, turns: int, core: str) -> dict[str, Any]:
    """Both caches at one size, turn by turn."""
    stock = Bench("lru", point, {})
    ours = Bench("scout", point, {"guard": False, "core": core})
    calls = learned(ours.core.scout_calls.scout, 3 * SESSIONS)
    classes = max(1, point.leaves // PER_CLASS)
    owner = lambda number: calls[number % classes % len(calls)]  # noqa: E731
    stock.fill(None)
    ours.fill(owner)
    scout = ours.core.scout_calls.scout
    gc.collect()
    gc.freeze()
    for turn in range(turns):
        agent = turn % AGENTS
        stock.step(turn, agent, None)
        # A dispatch goes by: the values of the one before no longer hold.
        scout.clock += 1
        scout._value_again()
        ours.step(turn, agent, owner(turn))
    gc.unfreeze()
    result: dict[str, Any] = {"leaves": point.leaves, "prompt": point.prompt, "page": point.page}
    result["core"] = type(ours.core).__name__
    result["stock_us"], result["ours_us"] = stock.times.summary(), ours.times.summary()
    result["ratio"] = {
        name: ours.times.median(name) / stock.times.median(name)
        for name in ("match", "lock", "evict", "insert", "unlock", "call")
    }
    return result


def arrival(prompt: int, turns: int) -> dict[str, float]:
    """Arrival of a call of a known agent in a live session, and the look at values after it."""
    scout = Scout(ScoutConfig(), capacity=200_000)
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1 << 15, (AGENTS, prompt // 2)).astype(np.int32)
    said = rng.integers(0, 1 << 15, (SESSIONS, prompt // 2)).astype(np.int32)
    times = Times()
    for turn in range(turns + 2 * SESSIONS):
        session, agent = turn % SESSIONS, int(rng.integers(AGENTS))
        call = Call(np.concatenate([words[agent], said[session]]))
        measured = turn >= 2 * SESSIONS
        observe = lambda call=call: scout.observe(call)  # noqa: E731
        made = times.measure("arrival", observe) if measured else observe()
        scout.admit(made)
        value = next(iter(scout._tenants.values())).value
        look = lambda value=value: value._value(scout.clock)  # noqa: E731
        if measured:
            times.measure("refresh", look)
        else:
            look()
        scout.finish(made, call.tokens, prompt, prompt // 4)
    return {f"{k}_{q}": v for k, s in times.summary().items() for q, v in s.items()}


def bars(sizes: list[dict[str, Any]], arriving: dict[str, float]) -> list[dict[str, Any]]:
    """What was measured against what is asked for."""
    found = []

    def bar(name: str, value: float, most: float) -> None:
        found.append({"name": name, "value": round(value, 3), "bar": most, "holds": value <= most})

    for size in sizes:
        leaves, ratio = size["leaves"], size["ratio"]
        if size["prompt"] == 1024:
            bar(f"evict 1k tokens, {leaves} leaves, of stock", ratio["evict"], EVICT_BARS[leaves])
            bar(f"whole call, {leaves} leaves, of stock", ratio["call"], CALL_BARS[leaves])
        else:
            for name, most in PATH_BARS.items():
                bar(f"{name}, 8k prompt, {leaves} leaves, of stock", ratio[name], most)
    bar("arrival p99, 8k prompt, us", arriving["arrival_p99"], ARRIVAL_P99_US)
    bar("refresh per evicting dispatch, us", arriving["refresh_median"], REFRESH_US)
    return found


def main() -> None:
    cli = argparse.ArgumentParser(prog="python -m evals.bench_overhead", description=__doc__)
    cli.add_argument("--quick", action="store_true", help="fewer turns, page 1 only")
    cli.add_argument("--json", type=Path, help="write all figures here")
    cli.add_argument("--core", choices=("auto", "rust", "python"), default="auto")
    args = cli.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    logging.getLogger("sglang").setLevel(logging.ERROR)
    _hook()
    turns = 200 if args.quick else 1000
    pages = (1,) if args.quick else (1, 16, 64)
    points = [Point(n, 1024, page) for page in pages for n in EVICT_BARS]
    sizes = [tree(p, turns, args.core) for p in (*points, Point(10_000, 8192, 1))]
    arriving = arrival(8192, turns)
    report: dict[str, Any] = {"sizes": sizes, "arrival": arriving, "bars": bars(sizes, arriving)}
    if args.json:
        args.json.write_text(json.dumps(report, indent=1))
    for line in report["bars"]:
        verdict = "ok  " if line["holds"] else "MISS"
        print(f"{verdict} {line['name']}: {line['value']} <= {line['bar']}")


def _hook() -> None:
    from scout_sglang import plugin

    hooks = [hook for hook in plugin.HOOKS if hook.target.startswith(plugin.CACHE)]
    plugin.apply(hooks)
    plugin.verify(hooks)


if __name__ == "__main__":
    main()
