"""How much the policy keeps in memory and on disk, and what it costs per call and per victim.

    python -m evals.bench_state [--json FILE] [--runs 1000] [--small]

CacheScout (arXiv 2608.14624) reports under 25 KB of state at 24 agents and a hot path of less
than 8 microseconds at the 99th percentile; it is given agents and sessions and keeps one table of
transitions. Below, *counts* is what compares with its state, *learn* and *look up* with its hot
path. The rest is what inferring agents and sessions, valuing each session apart and never falling
below LRU cost on top. Bytes are those of every object that is reached, dictionaries and small
integers included, each counted once. Apart stand the token ids that warm-ups and reports need (4
bytes each, bounded by ``warmup_anchors``, ``warmup_prompts`` and 8,192 an agent) and the shadow
LRU, which like the tags on nodes grows with the tree, not with agents or sessions. Times are of
this thread's processor time: a busy machine adds none.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from time import thread_time_ns
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from radix_policy.call import Call, Dispatch, NodeKind
from radix_policy.config import ScoutConfig
from radix_policy.scout import Scout
from radix_policy.tags import SHARED, Tag
from radix_policy.value import ScoutValue

PAPER_STATE = 25_000
PAPER_P99_US = 8.0
FIXED, FRESH, OUTPUT = 400, 600, 60


class Size(NamedTuple):
    """``agents`` roles, ``sessions`` alive at a time, ``calls`` before anything is measured."""

    agents: int
    sessions: int
    calls: int


SIZES = (Size(24, 100, 4_000), Size(1_000, 10_000, 40_000))
CONFIG = ScoutConfig(max_agents=1024, max_sessions=16_384)


class Traffic:
    """Sessions whose agents follow each other by a sparse random chain; prompts of 1,000 tokens."""

    def __init__(self, size: Size, labelled: bool, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._labelled = labelled
        self._fixed = self._rng.integers(0, 50_000, (size.agents, FIXED), dtype=np.int32)
        self._next = self._rng.integers(0, size.agents, (size.agents, 3))
        self._at = self._rng.integers(0, size.agents, size.sessions)
        self._name = list(range(size.sessions))
        self._born = size.sessions

    def __iter__(self) -> Iterator[Call]:
        while True:
            place = int(self._rng.integers(len(self._at)))
            if self._rng.random() < 0.05:
                self._name[place], self._born = self._born, self._born + 1
            agent = int(self._next[self._at[place], self._rng.choice(3, p=(0.7, 0.2, 0.1))])
            self._at[place] = agent
            fresh = self._rng.integers(0, 50_000, FRESH, dtype=np.int32)
            tokens = np.concatenate([self._fixed[agent], fresh])
            if self._labelled:
                yield Call(tokens, agent=f"a{agent}", session=f"s{self._name[place]}")
            else:
                yield Call(tokens)


class Clock:
    """Nanoseconds of each run of a step, by the step's name."""

    def __init__(self) -> None:
        self.taken: dict[str, list[int]] = {}

    def time(self, name: str, function: Any, *args: Any) -> Any:
        start = thread_time_ns()
        result = function(*args)
        self.taken.setdefault(name, []).append(thread_time_ns() - start)
        return result

    def rows(self) -> dict[str, dict[str, float]]:
        """Median and 99th percentile in microseconds."""
        return {
            name: {
                "median_us": round(float(np.median(ns)) / 1e3, 1),
                "p99_us": round(float(np.percentile(ns, 99)) / 1e3, 1),
                "runs": len(ns),
            }
            for name, ns in self.taken.items()
        }


def run_call(scout: Scout, call: Call) -> Dispatch:
    """One call from its arrival to its end, unmeasured."""
    dispatch = scout.observe(call)
    _end(scout, dispatch, call)
    return dispatch


def _end(scout: Scout, dispatch: Dispatch, call: Call) -> None:
    scout.admit(dispatch)
    scout.start(dispatch, len(call.tokens), FIXED)
    output = np.arange(OUTPUT, dtype=np.int32) + dispatch.number % 40_000
    tokens = np.concatenate([call.tokens, output])
    scout.finish(dispatch, tokens, len(call.tokens), len(tokens) - FIXED)


def learned(size: Size, labelled: bool, capacity: int) -> tuple[Scout, Iterator[Call]]:
    """A Scout after ``size.calls`` calls, and the calls that follow."""
    scout, calls = Scout(CONFIG, capacity), iter(Traffic(size, labelled))
    for _ in range(size.calls):
        run_call(scout, next(calls))
    return scout, calls


class Walk:
    """Bytes of objects and of all that they refer to; what was counted before counts nothing."""

    def __init__(self) -> None:
        self._seen: dict[int, Any] = {}

    def size(self, *roots: Any) -> int:
        """Bytes of ``roots``, with everything that they alone or first lead to."""
        total, waiting = 0, list(roots)
        while waiting:
            x = waiting.pop()
            if id(x) in self._seen or isinstance(x, _CODE):
                continue
            self._seen[id(x)] = x
            total += sys.getsizeof(x)
            if isinstance(x, np.ndarray):
                waiting += [] if x.base is None else [x.base]
            elif isinstance(x, dict):
                waiting += [*x.keys(), *x.values()]
            elif isinstance(x, list | tuple | set | frozenset | deque):
                waiting += x
            waiting += getattr(x, "__dict__", {}).values()
            slots = {name for kind in type(x).__mro__ for name in getattr(kind, "__slots__", ())}
            waiting += [getattr(x, name) for name in slots if hasattr(x, name)]
        return total


_CODE = (type, FunctionType, BuiltinFunctionType, MethodType)


def memory(scout: Scout) -> dict[str, int]:
    """Bytes by what they are kept for."""
    tenant = scout._by_number[0]
    identity, value = tenant.identity, tenant.value
    assert isinstance(value, ScoutValue) and scout.guard is not None
    value.expected(scout.clock)
    walk = Walk()
    walk.size(scout.config, scout.horizon)
    tokens = walk.size(scout.anchors, scout.prompts)
    tokens += walk.size(*(agent.divergence._reference for agent in identity._agents.values()))
    shadow = walk.size(scout.guard)
    parts = {
        "counts": walk.size(value.counts),
        "sessions": walk.size(value.sessions),
        "reuse": walk.size(value.reuse),
        "chain and values": walk.size(value),
        "identity": walk.size(identity),
        "the rest": walk.size(scout),
    }
    return {
        **parts,
        "all of it": sum(parts.values()),
        "snapshot on disk": len(scout.snapshot()),
        "token ids, apart": tokens,
        "shadow LRU, apart": shadow,
    }


def costs(scout: Scout, calls: Iterator[Call], runs: int, name: str, clock: Clock) -> None:
    """Times whole arrivals, ends, and the value of a class: first in a dispatch, and again."""
    for _ in range(runs):
        call = next(calls)
        dispatch = clock.time(f"arrival, {name}", scout.observe, call)
        clock.time(f"end, {name}", _end, scout, dispatch, call)
        shared = Tag(0, SHARED, (dispatch.agent,), NodeKind.PROMPT)
        clock.time("first victim of a dispatch", scout.priority, shared, 100)
        private = Tag(0, dispatch.session, (dispatch.agent,), NodeKind.PROMPT)
        private.number = dispatch.number
        clock.time("another class", scout.priority, private, 100)
        clock.time("look up", scout.priority, private, 100)


def learning(scout: Scout, runs: int, clock: Clock) -> None:
    """Times what the model alone learns from an arrival, agent and session being known."""
    value, rng = scout._by_number[0].value, np.random.default_rng(1)
    assert isinstance(value, ScoutValue)
    sessions = list(value.sessions.by_id)
    for k in range(runs):
        session = sessions[int(rng.integers(len(sessions)))]
        if session not in value.sessions.by_id:
            continue
        agent = value.rows.agent(int(rng.integers(len(value.rows))))
        clock.time("learn", value.arrive, session, agent, scout.clock + 1 + k // 8)
        value.depart(session, agent)


def measure(size: Size, runs: int) -> dict[str, Any]:
    """State and costs at one size."""
    capacity = 10 * size.sessions * (FRESH + OUTPUT)
    clock = Clock()
    bare, calls = learned(size._replace(calls=size.calls // 4), labelled=False, capacity=capacity)
    for _ in range(runs):
        call = next(calls)
        dispatch = clock.time("arrival, inferred", bare.observe, call)
        clock.time("end, inferred", _end, bare, dispatch, call)
    scout, calls = learned(size, labelled=True, capacity=capacity)
    state, remembered = memory(scout), len(scout._by_number[0].identity._sessions)
    costs(scout, calls, runs, "with ids", clock)
    learning(scout, runs, clock)
    return {
        "agents": size.agents,
        "sessions": size.sessions,
        "remembered": remembered,
        "bytes": state,
        "us": clock.rows(),
    }


def show(results: list[dict[str, Any]]) -> None:
    for result in results:
        live, remembered = result["sessions"], result["remembered"]
        print(f"\n{result['agents']:,} agents, {live:,} live sessions, {remembered:,} remembered")
        for what, size in result["bytes"].items():
            note = f"   (the paper's state: < {PAPER_STATE:,})" if what == "counts" else ""
            print(f"  {what:<28}{size:>14,} B{note}")
        print(f"  {'':<28}{'median':>10}{'p99':>10} us")
        for what, us in result["us"].items():
            note = (
                f"   (the paper's p99: < {PAPER_P99_US:g})" if what in ("learn", "look up") else ""
            )
            print(f"  {what:<28}{us['median_us']:>10,.1f}{us['p99_us']:>10,.1f}{note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--runs", type=int, default=1000, help="measured calls")
    parser.add_argument("--small", action="store_true", help="24 agents only")
    args = parser.parse_args()
    results = [measure(size, args.runs) for size in SIZES[: 1 if args.small else None]]
    show(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
