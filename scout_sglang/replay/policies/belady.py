"""Bélády's rule page by page, with tail trimming: no policy can hit more in this memory.

It knows all future calls and frees the page whose next use lies furthest ahead; a page is never
used later than the pages that follow it, so tails go first and prefixes stay whole. Running calls
hold their pages, as in the real cache. Source: Bélády, "A study of replacement algorithms for a
virtual-storage computer", IBM Systems Journal 5(2), 1966. This is a simulation of its own:
SGLang's tree core evicts whole leaves.
"""

from __future__ import annotations

import heapq
from itertools import pairwise

import numpy as np

from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.oracle import Ids, Oracle
from scout_sglang.replay.timing import Job

Run = tuple[int, int, int, Ids]
"""(-next use, -depth of the last page, ticket, pages): neighbours on a path with one next use."""


def build(setting: Setting) -> BeladyPolicy:
    return BeladyPolicy(
        Oracle(setting.events(), setting.page_size), setting.capacity, setting.page_size
    )


class BeladyPolicy:
    """The page-level optimum under SGLang's locks and admission rule."""

    guard_switches = 0
    warmed_tokens = 0

    def __init__(self, oracle: Oracle, capacity: int, page_size: int):
        self.oracle = oracle
        self.page_size = page_size
        self.capacity = self.free = capacity // page_size
        self.resident = np.zeros(oracle.n_pages, dtype=bool)
        self.locks = np.zeros(oracle.n_pages, dtype=np.int32)
        self.runs: list[Run] = []
        self.locked_runs: list[Run] = []
        self.private: dict[int, int] = {}
        self.cached = self.locked = 0
        self.runs_limit = 65536
        self.ticket = 0
        self.now = -1
        self.evicted_tokens = 0

    def start(self, job: Job) -> int | None:
        self.now = job.number
        path = self.oracle.paths[job.number][: self.oracle.prompt_pages[job.number]]
        usable = path[: self.oracle.usable_pages[job.number]]
        missing = np.flatnonzero(~self.resident[usable])
        hit = int(missing[0]) if len(missing) else len(usable)
        self._lock(path[:hit])
        prompt, output = len(job.prompt), len(job.output)
        room = (self.free + self.cached - self.locked) * self.page_size
        if prompt - hit * self.page_size + output + self.page_size >= room:
            self._unlock(path[:hit])
            return None
        demand = -(-(prompt + max(output - 1, 0)) // self.page_size) - hit
        self._evict(demand - self.free)
        self.free -= demand
        fresh = self._insert(path[hit:])
        self._lock(path[hit:])
        self.private[job.number] = demand - fresh
        return hit * self.page_size

    def finish(self, job: Job) -> None:
        path = self.oracle.paths[job.number]
        prompt_pages = self.oracle.prompt_pages[job.number]
        fresh = self._insert(path[prompt_pages:])
        self.free += self.private.pop(job.number) - fresh
        self._unlock(path[:prompt_pages])
        self._offer(path)
        for run in self.locked_runs:
            heapq.heappush(self.runs, run)
        self.locked_runs = []

    def close(self) -> None:
        held = sum(self.private.values())
        assert self.free + self.cached + held == self.capacity

    def _lock(self, pages: Ids) -> None:
        self.locked += int(np.count_nonzero(self.locks[pages] == 0))
        self.locks[pages] += 1

    def _unlock(self, pages: Ids) -> None:
        self.locks[pages] -= 1
        self.locked -= int(np.count_nonzero(self.locks[pages] == 0))

    def _insert(self, pages: Ids) -> int:
        """Take over the pages that are new; the number of them."""
        fresh = int(np.count_nonzero(~self.resident[pages]))
        self.resident[pages] = True
        self.cached += fresh
        return fresh

    def _offer(self, path: Ids) -> None:
        """Put a path up for eviction, cut where the next use changes."""
        if not len(path):
            return
        uses = self.oracle.next_use(path, self.now)
        cuts = np.flatnonzero(np.diff(uses)) + 1
        bounds = [0, *cuts.tolist(), len(path)]
        for start, end in pairwise(bounds):
            self.ticket += 1
            heapq.heappush(self.runs, (-int(uses[start]), -end, self.ticket, path[start:end]))

    def _evict(self, pages: int) -> None:
        while pages > 0:
            key, depth, ticket, run = heapq.heappop(self.runs)
            kept = len(run)
            while kept and pages > 0 and not self.locks[run[kept - 1]]:
                kept -= 1
                if self.resident[run[kept]]:
                    self.resident[run[kept]] = False
                    self.cached -= 1
                    self.free += 1
                    pages -= 1
                    self.evicted_tokens += self.page_size
            if kept:
                rest = (key, depth + len(run) - kept, ticket, run[:kept])
                if self.locks[run[kept - 1]]:
                    self.locked_runs.append(rest)
                else:
                    heapq.heappush(self.runs, rest)
        self._drop_stale()

    def _drop_stale(self) -> None:
        # A run whose next use is past was offered again when that call ended, and sinks.
        if len(self.runs) > self.runs_limit:
            self.runs = [run for run in self.runs if -run[0] > self.now]
            heapq.heapify(self.runs)
            self.runs_limit = max(65536, 2 * len(self.runs))
