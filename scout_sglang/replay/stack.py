"""LRU at every capacity in one pass: stack distances of pages, exact near the top of the stack.

LRU is a stack algorithm: a page hits in every cache that has room for all pages used since its last
use, and itself. On prefixes this stays true if a path counts as used from its end to its root, so
that tails leave first and what is cached is always a prefix. Pages of one path that were last used
by one call then lie together on the stack, so it is enough to count, for each call, the pages whose
last use it was: a Fenwick tree over calls, one query for each run of pages with one last use.

This LRU trims page by page and knows calls by their arrival only. SGLang's evicts whole leaves and
reserves room for outputs, which costs hits; it cannot evict what runs, which where calls are long
keeps what their sessions need next.

Memory stays bounded: beyond ``most_pages`` pages, of those in the lower part of the stack only
every second, fourth, ... is followed, chosen by its hash, and counts for two, four, ... The upper
half of ``most_pages`` stays exact, so the few hot pages that all calls share are never sampled;
plain SHARDS errs by points there. Sources: Mattson et al., "Evaluation techniques for storage
hierarchies", IBM Systems Journal 9(2), 1970; Waldspurger et al., "Efficient MRC construction with
SHARDS", FAST 2015 (sampling by hash, at fixed size).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from radix_policy.hashing import Hashes
from scout_sglang.replay.pages import cached_pages
from scout_sglang.replay.timing import Event

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StackCurve:
    """What LRU hits at every capacity, and how much memory reuse needs at all.

    ``bounds``: rising distances in pages, shape (n,); ``reused``: looked-up prompt pages whose
    distance is at most that, shape (n,). ``live``: mean number of pages that were used and will
    be used again. ``exact_pages``: the curve is exact up to this many pages, None if all of it.
    """

    page_size: int
    bounds: Ints
    reused: Ints
    prompt_tokens: int
    live: float
    exact_pages: int | None

    def hit_rate(self, capacity: int) -> float:
        """Share of prompt tokens that LRU finds in ``capacity`` token slots."""
        place = np.searchsorted(self.bounds, capacity // self.page_size, side="right")
        hits = int(self.reused[place - 1]) if place else 0
        return hits * self.page_size / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def limit(self) -> float:
        """The hit rate without evictions."""
        return self.hit_rate(int(self.bounds[-1]) * self.page_size) if len(self.bounds) else 0.0

    def capacity_for(self, hit_rate: float) -> int | None:
        """Fewest token slots in which LRU reaches ``hit_rate``, None if it never does."""
        needed = hit_rate * self.prompt_tokens / self.page_size
        place = int(np.searchsorted(self.reused, needed - 1e-6))
        return int(self.bounds[place]) * self.page_size if place < len(self.bounds) else None

    @property
    def working_set(self) -> int:
        """Mean token slots that hold exactly what will be used again."""
        return round(self.live * self.page_size)


def stack_curve(
    events: Iterable[Event], page_size: int, uncounted_calls: int = 0, most_pages: int = 400_000
) -> StackCurve:
    """The curve of a schedule whose first ``uncounted_calls`` calls are not counted.

    Time O(pages + runs log calls), memory O(``most_pages``).
    """
    stack = PageStack(most_pages)
    histogram: dict[int, int] = {}
    prompt_tokens = 0
    for event in events:
        if not event.starts:
            continue
        job = event.job
        reuses = stack.use(cached_pages(job, page_size), (len(job.prompt) - 1) // page_size)
        if job.number < uncounted_calls:
            continue
        prompt_tokens += len(job.prompt)
        for distance, pages in reuses:
            histogram[distance] = histogram.get(distance, 0) + pages
    bounds = np.array(sorted(histogram), dtype=np.int64)
    reused = np.cumsum(np.array([histogram[bound] for bound in bounds.tolist()], dtype=np.int64))
    live = stack.waited / stack.calls if stack.calls else 0.0
    return StackCurve(page_size, bounds, reused, prompt_tokens, live, stack.exact_pages)


class Reuse(NamedTuple):
    """A page found at a stack distance in pages; it stands for ``pages`` of them."""

    distance: int
    pages: int


class PageStack:
    """LRU's stack of pages, where each call's pages lie together.

    ``waited``: sum over pages and reuses of the calls that lay between two uses.
    """

    def __init__(self, most_pages: int):
        self.most_pages = most_pages
        self.exact_pages: int | None = None
        self.calls = self.waited = 0
        self._last_use: dict[int, int] = {}
        self._begin(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))

    def use(self, pages: Hashes, usable: int) -> list[Reuse]:
        """A call looks up its first ``usable`` pages and stores all of them."""
        if self._now == self._owned.size:
            self._renumber()
        path = pages.tolist()
        found = [
            (place, owner)
            for place, page in enumerate(path)
            if (owner := self._last_use.get(page, -1)) >= 0
        ]
        reuses, moved = [], 0
        for owner, places in _runs(found):
            weight = int(self._weight[owner])
            above = moved + self._owned.total - self._owned.upto(owner)
            reuses += [
                Reuse(above + weight * number, weight)
                for number, place in enumerate(places, 1)
                if place < usable
            ]
            self.waited += weight * len(places) * (self.calls - int(self._number[owner]))
            self._owned.add(owner, -weight * len(places))
            moved += weight * len(places)
        self._owned.add(self._now, len(path))
        self._last_use.update(dict.fromkeys(path, self._now))
        self._number[self._now] = self.calls
        self._now += 1
        self.calls += 1
        if len(self._last_use) > self.most_pages:
            self._thin_out()
        return reuses

    def _thin_out(self) -> None:
        """Follow half as many of the pages below the exact part, until a quarter is free."""
        self._renumber()
        counts = self._counts // self._weight[: self._now]
        below = np.cumsum(counts[::-1])[::-1] > self.most_pages // 2
        depth = int(self._counts[~below].sum())
        self.exact_pages = min(depth, self.exact_pages or depth)
        kept, weight = self._last_use, self._weight
        while len(kept) > self.most_pages * 3 // 4:
            weight[: self._now][below] *= 2
            kept = {page: owner for page, owner in kept.items() if page % int(weight[owner]) == 0}
        self._last_use = kept
        self._renumber()

    def _renumber(self) -> None:
        """Calls that own no page any more are forgotten; the others keep their order."""
        owners = np.fromiter(self._last_use.values(), np.int64, len(self._last_use))
        alive, place, counts = np.unique(owners, return_inverse=True, return_counts=True)
        self._last_use = dict(zip(self._last_use, place.tolist(), strict=True))
        self._begin(self._number[alive], self._weight[alive], counts)

    def _begin(self, number: Ints, weight: Ints, pages: Ints) -> None:
        """Start with these calls: when they came, how many pages each of theirs stands for."""
        self._now = len(number)
        spare = np.zeros(max(1024, len(number)), dtype=np.int64)
        self._number = np.concatenate([number, spare])
        self._weight = np.concatenate([weight, spare + 1])
        self._counts = pages * weight
        self._owned = _Fenwick(len(self._number), self._counts)


def _runs(found: list[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """(owner, places) of neighbours with one owner."""
    places: list[int] = []
    for index, (place, owner) in enumerate(found):
        places.append(place)
        if index + 1 == len(found) or found[index + 1][1] != owner:
            yield owner, places
            places = []


class _Fenwick:
    """Counts with fast prefix sums. Source: Fenwick, Software: Practice and Experience, 1994."""

    def __init__(self, size: int, counts: Ints):
        self.size = size
        self.total = 0
        self._tree = [0] * (size + 1)
        for place, count in enumerate(counts.tolist()):
            self.add(place, count)

    def add(self, place: int, count: int) -> None:
        self.total += count
        place += 1
        while place <= self.size:
            self._tree[place] += count
            place += place & -place

    def upto(self, place: int) -> int:
        """Sum of the counts at places 0..``place``."""
        total, place = 0, place + 1
        while place:
            total += self._tree[place]
            place -= place & -place
        return total
