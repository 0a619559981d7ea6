"""What the policy costs on the scheduler's thread, beside SGLang's own LRU in the same run.

    python -m evals.bench_overhead [--quick] [--json FILE] [--leaves N,N] [--prompts N,N] ...

Two caches of SGLang's own classes hold the same leaves: stock *lru* on the Rust tree core, and
*scout* with values learned from real calls. Every operation is timed on both, turn by turn, in
thread CPU time; ratios are of medians. What a turn evicts is put back before the next one, so that
a tree keeps the size that it is measured at. A whole call is match, lock, evict, insert, unlock;
what a call costs on arrival (identity, session, model) is timed apart, with ids from the client
and without. Without ``--quick`` all combinations of leaves, prompt lengths, agents and page sizes
are measured, but for those that need more than 2^25 token slots.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
import warnings
from array import array
from collections.abc import Callable
from itertools import product
from pathlib import Path
from time import thread_time_ns
from typing import Any, NamedTuple

import numpy as np
import torch

from evals import bench_state
from radix_policy.call import Call, Dispatch, NodeKind
from radix_policy.config import ScoutConfig
from radix_policy.scout import Scout
from radix_policy.tags import SHARED, Tag

AGENTS, SESSIONS = 100, 500
LEAVES = (100, 1_000, 10_000, 50_000, 100_000)
PROMPTS = (1024, 8192, 32_768)
AGENT_COUNTS = (6, 24, 100, 1_000)
PAGES = (1, 16, 64)
MOST_SLOTS = 1 << 25
OPERATIONS = ("match", "lock", "evict", "insert", "unlock", "call")
LEAF, EVICTED = 64, 1024
PER_CLASS = 4

EVICT_BARS = {1_000: 3.0, 10_000: 1.0, 100_000: 0.15}
CALL_BARS = {1_000: 1.6, 10_000: 1.1, 100_000: 0.2}
PATH_BARS = {"match": 1.2, "insert": 1.6, "lock": 1.2}
ARRIVAL_P99_US, REFRESH_US = 150.0, 300.0
STATE_BARS = {24: 64 * 1024, 1_000: 16 * 2**20}


class Point(NamedTuple):
    """One size: how many leaves, tokens per prompt, tokens per page, agents."""

    leaves: int
    prompt: int
    page: int
    agents: int = AGENTS

    @property
    def slots(self) -> int:
        """Tokens that the cache has to hold."""
        pages = -(-LEAF // self.page) * self.page
        spare = 4 * self.prompt + 4 * EVICTED
        need = self.leaves * pages + self.agents * (self.prompt + self.page) + spare
        return -(-need // self.page) * self.page


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
        self.cache = build_cache(
            policy=policy,
            policy_config=scout if policy == "scout" else None,
            capacity=point.slots,
            page_size=point.page,
            max_tokens=2 * point.prompt,
            max_running=8,
        )
        self.core = self.cache.tree_core
        self.free = self.cache.token_to_kv_pool_allocator
        self.times = Times()
        self._token = 1 << 30
        self._grown = 0

    # Prompts: an agent's words, then tokens that no other prompt has.

    def prompt(self, agent: int) -> array:
        length = max(LEAF, self.point.page)
        self._token += length
        words = np.arange(self.point.prompt - length) + agent * (1 << 16)
        tail = np.arange(self._token - length, self._token)
        ids = array("q")
        ids.frombytes(np.concatenate([words, tail]).astype(np.int64).tobytes())
        return ids

    def insert(self, ids: array, start: int) -> Any:
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams
        from sglang.srt.mem_cache.radix_cache import RadixKey

        slots = self.free.alloc(len(ids) - start)
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

    def fill(self, dispatch: Callable[[int], Dispatch | None]) -> None:
        """Insert the leaves; ``dispatch``: whose the n-th one is."""
        for _ in range(self.point.leaves):
            self._grow(dispatch)
        self._room = self.free.available_size()

    def refill(self, dispatch: Callable[[int], Dispatch | None]) -> None:
        """Insert more of them, until as many tokens are held as before the evictions."""
        while self.free.available_size() >= self._room + max(LEAF, self.point.page):
            self._grow(dispatch)

    def _grow(self, dispatch: Callable[[int], Dispatch | None]) -> None:
        ids = self.prompt(self._grown % self.point.agents)
        start = self.cache.match_prefix(self._plain(ids)).device_prefix_len
        self._own(dispatch(self._grown), len(ids))
        self.insert(ids, start)()
        self._own(None, 0)
        self._grown += 1

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


def learned(scout: Scout, calls: int, agents: int) -> list[Dispatch]:
    """Teach ``scout`` a traffic of many agents and sessions; the latest call of each pair."""
    rng = np.random.default_rng(0)
    latest: dict[tuple[int, int], Dispatch] = {}
    for number in range(calls):
        session, agent = number % SESSIONS, int(rng.integers(agents))
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
    calls = learned(ours.core.scout_calls.scout, 3 * SESSIONS, point.agents)
    classes = max(1, point.leaves // PER_CLASS)
    owner = lambda number: calls[number % classes % len(calls)]  # noqa: E731
    nobody = lambda number: None  # noqa: E731
    stock.fill(nobody)
    ours.fill(owner)
    scout = ours.core.scout_calls.scout
    gc.collect()
    gc.freeze()
    for turn in range(turns):
        agent = turn % point.agents
        # Both find the processor's caches as the other one's refill has left them.
        stock.step(turn, agent, None)
        stock.refill(nobody)
        # A dispatch goes by: the values of the one before no longer hold.
        scout.clock += 1
        scout._value_again()
        ours.step(turn, agent, owner(turn))
        ours.refill(owner)
    gc.unfreeze()
    result: dict[str, Any] = point._asdict()
    result["core"] = type(ours.core).__name__
    result["stock_us"], result["ours_us"] = stock.times.summary(), ours.times.summary()
    result["ratio"] = {
        name: ours.times.median(name) / stock.times.median(name) for name in OPERATIONS
    }
    return result


def arrival(prompt: int, agents: int, turns: int, ids: bool) -> dict[str, Any]:
    """Arrival of a call in a live session, and the look at values that an eviction takes after it.

    Sessions talk to agents in turn: a prompt is the agent's words and what was said so far, of
    which agents quote each other. ``ids``: the client names agent and session.
    """
    scout = Scout(ScoutConfig(), capacity=200_000)
    rng = np.random.default_rng(1)
    words = rng.integers(0, 1 << 15, (agents, prompt // 2)).astype(np.int32)
    said = [words[0, :0]] * SESSIONS
    room = prompt - prompt // 2
    times = Times()
    for turn in range(turns + 4 * SESSIONS):
        session, agent = turn % SESSIONS, int(rng.integers(agents))
        fresh = rng.integers(0, 1 << 15, max(room // 4, room - len(said[session]))).astype(np.int32)
        history = np.concatenate([said[session], fresh])[:room]
        call = Call(
            np.concatenate([words[agent], history]),
            agent=f"a{agent}" if ids else None,
            session=f"s{session}" if ids else None,
        )
        measured = turn >= 4 * SESSIONS
        observe = lambda call=call: scout.observe(call)  # noqa: E731
        made = times.measure("arrival", observe) if measured else observe()
        scout.admit(made)
        node = Tag(made.tenant, SHARED, (made.agent,), NodeKind.PROMPT)
        look = lambda node=node: scout.priority(node)  # noqa: E731
        if measured:
            times.measure("refresh", look)
        else:
            look()
        output = rng.integers(0, 1 << 15, 64).astype(np.int32)
        scout.finish(made, np.concatenate([call.tokens, output]), prompt, prompt // 4)
        said[session] = np.concatenate([history, output])[-room // 2 :]
    figures = {f"{k}_{q}": v for k, s in times.summary().items() for q, v in s.items()}
    return {"prompt": prompt, "agents": agents, "ids": ids, **figures}


def state(agents: int, sessions: int, calls: int) -> dict[str, Any]:
    """Bytes that the policy keeps, by what for (see ``evals.bench_state``)."""
    size = bench_state.Size(agents, sessions, calls)
    scout, _ = bench_state.learned(size, labelled=True, capacity=10 * sessions * 660)
    return {"agents": agents, "sessions": sessions, "bytes": bench_state.memory(scout)}


def bars(report: dict[str, Any]) -> list[dict[str, Any]]:
    """What was measured against what is asked for; only what was measured."""
    found: list[dict[str, Any]] = []

    def bar(name: str, value: float, most: float) -> None:
        found.append({"name": name, "value": round(value, 3), "bar": most, "holds": value <= most})

    for size in report["sizes"]:
        leaves, ratio = size["leaves"], size["ratio"]
        if (size["page"], size["agents"]) != (1, AGENTS):
            continue
        if size["prompt"] == 1024 and leaves in EVICT_BARS:
            bar(f"evict 1k tokens, {leaves} leaves, of stock", ratio["evict"], EVICT_BARS[leaves])
            bar(f"whole call, {leaves} leaves, of stock", ratio["call"], CALL_BARS[leaves])
        elif (size["prompt"], leaves) == (8192, 10_000):
            for name, most in PATH_BARS.items():
                bar(f"{name}, 8k prompt, {leaves} leaves, of stock", ratio[name], most)
    for arriving in report["arrivals"]:
        if (arriving["prompt"], arriving["agents"]) == (8192, AGENTS):
            how = "with ids" if arriving["ids"] else "inferred"
            bar(f"arrival p99, 8k prompt, {how}, us", arriving["arrival_p99"], ARRIVAL_P99_US)
            bar(f"refresh per evicting dispatch, {how}, us", arriving["refresh_median"], REFRESH_US)
    for held in report["states"]:
        name = f"state, {held['agents']} agents, {held['sessions']} sessions, bytes"
        bar(name, held["bytes"]["all of it"], STATE_BARS[held["agents"]])
    return found


def points(args: argparse.Namespace) -> list[Point]:
    """The sizes that the command line asks for."""
    if args.quick:
        return [*(Point(n, 1024, 1) for n in EVICT_BARS), Point(10_000, 8192, 1)]
    whole = product(args.leaves, args.prompts, args.pages, args.agents)
    return [point for values in whole if (point := Point(*values)).slots <= MOST_SLOTS]


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """All figures, as the JSON report has them."""
    turns = 200 if args.quick else args.turns
    sizes = []
    for point in points(args):
        sizes.append(tree(point, turns, args.core))
        print(f"{point}: {sizes[-1]['ratio']}", file=sys.stderr, flush=True)
    looks = [(8192, AGENTS)] if args.quick else list(product(args.prompts, args.agents))
    arrivals = [arrival(p, a, 5 * turns, ids) for p, a in looks for ids in (True, False)]
    states = [state(24, 100, 4_000)]
    if not args.quick:
        states.append(state(1_000, 10_000, 40_000))
    report: dict[str, Any] = {"sizes": sizes, "arrivals": arrivals, "states": states}
    return {**report, "bars": bars(report)}


def main() -> None:
    cli = argparse.ArgumentParser(prog="python -m evals.bench_overhead", description=__doc__)
    cli.add_argument("--quick", action="store_true", help="what has a bar only, fewer turns")
    cli.add_argument("--json", type=Path, help="write all figures here")
    cli.add_argument("--core", choices=("auto", "rust", "python"), default="auto")
    cli.add_argument("--turns", type=int, default=200, help="calls timed at each size")
    for name, default in (
        ("leaves", LEAVES),
        ("prompts", PROMPTS),
        ("agents", AGENT_COUNTS),
        ("pages", PAGES),
    ):
        cli.add_argument(f"--{name}", type=_numbers, default=default, help="comma-separated")
    args = cli.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    logging.getLogger("sglang").setLevel(logging.ERROR)
    hook()
    report = measure(args)
    if args.json:
        args.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    for line in report["bars"]:
        verdict = "ok  " if line["holds"] else "MISS"
        print(f"{verdict} {line['name']}: {line['value']} <= {line['bar']}")


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def hook() -> None:
    """Let the plugin take hold of SGLang's cache classes in this process."""
    from scout_sglang import plugin

    hooks = [hook for hook in plugin.HOOKS if hook.target.startswith(plugin.CACHE)]
    plugin.apply(hooks)
    plugin.verify(hooks)


if __name__ == "__main__":
    main()
