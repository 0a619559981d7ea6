"""Does the Rust tree core stay sound under the policy, whatever clients do?

    python -m evals.soak [--calls 200000] [--page-size 16] [--seed 0] [--json FILE]

Calls of many agents and sessions go through SGLang's own cache classes with *scout* on the Rust
tree core: some leave the queue, some are aborted while they run, prefixes are locked at random,
the cache is flushed now and then. Every 1,000 calls SGLang checks its tree, the books are
balanced, and a node that must not be evicted (inner, locked or gone) is put first in the policy's
order: one such victim let through would poison the core. Exits with status 1 if anything is off.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

AGENTS, SESSIONS, RUNNING = 24, 400, 8
LONGEST, ANCHOR = 640, 96
EVERY = 1000
INJECTED = ("inner", "locked", "gone")


class Soak:
    """One cache under random traffic. Everything follows from ``seed``."""

    def __init__(self, page_size: int, seed: int, capacity: int = 16_384) -> None:
        from scout_sglang.replay.policies import Setting, build

        setting = Setting(
            "scout", capacity, page_size, LONGEST + 64, capacity, lambda: iter(()), RUNNING + 1
        )
        policy: Any = build(setting)
        self.policy = policy
        self.cache: Any = policy.cache
        self.core: Any = self.cache.tree_core
        self.rng = np.random.default_rng(seed)
        self.seen: Counter[str] = Counter()
        self._said: dict[int, np.ndarray] = {}
        self._over: Counter[int] = Counter()
        self._running: list[tuple[int, Any, np.ndarray]] = []
        self._locks: list[Any] = []
        self._next_token = 1 << 17

    def call(self) -> None:
        """One call arrives; earlier ones may end, be aborted, or wait on."""
        self.seen["calls"] += 1
        session, req, prompt = self._arrive()
        chance = self.rng.random()
        if chance < 0.02:
            self.policy.on_abort(None, req)
            self.seen["left the queue"] += 1
        elif self.policy.admit(req, 1 + int(self.rng.integers(32))) is None:
            self.policy.on_abort(None, req)
            self.seen["not admitted"] += 1
        else:
            self._running.append((session, req, prompt))
        while len(self._running) > self.rng.integers(RUNNING):
            self._end(self._running.pop(int(self.rng.integers(len(self._running)))))
        self._lock_at_random(prompt)
        if chance > 0.9995:
            self.flush()

    def _arrive(self) -> tuple[int, Any, np.ndarray]:
        from scout_sglang.replay.request import LabRequest

        session = int(self.rng.integers(SESSIONS))
        agent = int(self.rng.integers(AGENTS))
        said = self._said.get(session, np.zeros(0, np.int32))
        prompt = np.concatenate([np.arange(ANCHOR) + 1000 * agent, said, self._fresh(40)])
        prompt = prompt.astype(np.int32)
        req = LabRequest(f"r{self.seen['calls']}", prompt, cache_salt=f"t{session % 3}")
        if session % 2:
            req.session_id = f"s{session}.{self._over[session]}"
        self.policy.on_arrival(None, req)
        return session, req, prompt

    def _fresh(self, most: int) -> np.ndarray:
        length = 1 + int(self.rng.integers(most))
        self._next_token += length
        return np.arange(self._next_token - length, self._next_token)

    def _end(self, call: tuple[int, Any, np.ndarray]) -> None:
        session, req, prompt = call
        count = req.kv.kv_committed_len - len(prompt) + 1
        output = np.arange(self._next_token, self._next_token + count).astype(np.int32)
        self._next_token += count
        req.finish(output)
        if self.rng.random() < 0.05:
            self.policy.calls.abandon(req.rid)
            self.seen["aborted"] += 1
        self.policy.release(req)
        said = np.concatenate([prompt[ANCHOR:], output])
        if len(said) >= LONGEST - ANCHOR - 96:
            self._over[session] += 1
            said = said[:0]
        self._said[session] = said

    def _lock_at_random(self, prompt: np.ndarray) -> None:
        from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
        from sglang.srt.mem_cache.radix_cache import RadixKey

        from scout_sglang.replay.request import token_array

        if self.rng.random() < 0.1:
            key = RadixKey(token_array(prompt), None, cache_salt="t0")
            found = self.cache.match_prefix(MatchPrefixParams(key=key))
            self._locks.append(self.cache.lock(found.last_device_node))
            self.seen["locks"] += 1
        while len(self._locks) > self.rng.integers(4):
            self.cache.unlock(self._locks.pop(int(self.rng.integers(len(self._locks)))))

    def settle(self) -> None:
        """End what runs and unlock what is locked."""
        while self._running:
            self._end(self._running.pop())
        while self._locks:
            self.cache.unlock(self._locks.pop())

    def flush(self) -> None:
        """What the scheduler does for /flush_cache."""
        self.settle()
        self.cache.reset()
        self.cache.req_to_token_pool.clear()
        self.policy.allocator.clear()
        self.seen["flushes"] += 1

    # -- what must hold ----------------------------------------------------------------

    def check(self) -> None:
        """The tree is sound, every slot accounted for, and every leaf a candidate."""
        self.cache.sanity_check()
        if not self._running and not self._locks:
            self.policy.close()
        counted = sum(mark.bucket is not None for mark in self.core.records.values())
        assert counted == len(self.core.buckets), "the buckets' books are off"
        self.seen["checks"] += 1

    def inject(self, what: str) -> None:
        """Put a node that must not go first in the policy's order, and evict."""
        from sglang.srt.mem_cache.base_prefix_cache import EvictParams

        from radix_policy.marks import Mark

        node = self._unevictable(what)
        if node is None:
            return
        core = self.core
        mark = core.records.get(node)
        if mark is None:
            mark = core.records[node] = Mark(0)
        core.buckets.drop(mark)
        mark.tag, mark.last = None, 0
        core.buckets.put(node, mark)
        # The guard's brake would leave the order to recency, and this node unseen.
        core.scout.guard.bucket = core.scout.guard.cap
        refused = core.refused
        self.cache.evict_for_alloc(EvictParams(num_tokens=self.cache.page_size))
        assert core.refused > refused or core.records.get(node) is None, f"{what} was not refused"
        self.seen[f"{what} refused"] += 1

    def _unevictable(self, what: str) -> int | None:
        nodes = list(self.core.records)
        if what == "gone":
            return 1 << 31
        if what == "locked":
            return self._running[0][1].last_node if self._running else None
        found = ((node, self.core.nodes.victim(node)) for node in nodes)
        return next((node for node, victim in found if victim and victim.children), None)


def resident() -> int:
    """Bytes of memory that the process holds."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def run(calls: int, page_size: int, seed: int, every: int = EVERY) -> dict[str, Any]:
    """A whole soak, checked every so many calls; raises AssertionError where anything is off."""
    from scout_sglang.faults import FAULTS
    from scout_sglang.tree_core_rust import RustScoutCore

    soak = Soak(page_size, seed)
    assert isinstance(soak.core, RustScoutCore), "SGLang cannot use its Rust tree core here"
    faults, started = FAULTS.total, time.perf_counter()
    memory, records = [], []
    for number in range(1, calls + 1):
        soak.call()
        if number % every == 0:
            soak.inject(INJECTED[number // every % 3])
            soak.check()
            memory.append(resident())
            records.append(len(soak.core.records))
            if number % (10 * every) == 0:
                spent, megabytes = time.perf_counter() - started, memory[-1] / 2**20
                print(f"{number:,} calls, {spent:.0f} s, {megabytes:.1f} MB", file=sys.stderr)
    soak.settle()
    soak.check()
    assert FAULTS.total == faults, f"our code failed: {FAULTS.counts}"
    half = len(memory) // 2
    return {
        "seconds": round(time.perf_counter() - started, 1),
        "seen": dict(soak.seen),
        "evicted_tokens": soak.policy.evicted_tokens,
        "refused": soak.core.refused,
        "most_records": max(records, default=0),
        "memory_mb": [round(m / 2**20, 1) for m in memory[:: max(1, len(memory) // 20)]],
        "growth_second_half": round(memory[-1] / memory[half] - 1, 4) if half else 0.0,
    }


def main() -> int:
    cli = argparse.ArgumentParser(prog="python -m evals.soak", description=__doc__)
    cli.add_argument("--calls", type=int, default=200_000)
    cli.add_argument("--page-size", type=int, default=16)
    cli.add_argument("--seed", type=int, default=0)
    cli.add_argument("--json", type=Path, help="write the figures here")
    args = cli.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning)
    logging.getLogger("sglang").setLevel(logging.ERROR)
    try:
        report = run(args.calls, args.page_size, args.seed)
    except AssertionError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    print(json.dumps(report, indent=1))
    if args.json:
        args.json.write_text(json.dumps(report, indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
