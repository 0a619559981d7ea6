"""Least hit density: keep what will hit soonest for the memory it occupies until then.

A page's hit density at its age is the chance that it still hits, divided by the time it is expected
to stay until it hits or is evicted; both are learned from the ages at which pages of its class hit
or left. A class is the time between a page's last uses. One leaf in 64 is kept beyond its worth,
so that ages at which the policy itself would always evict are seen too. Ages are counted in calls
and fall into bins of a quarter octave (the paper: equal bins, rescaled now and then). Source:
Beckmann, Chen and Cidon, "LHD: Improving cache hit rate by maximizing hit density", NSDI 2018.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.by_page import PagePolicy, PageScore
from scout_sglang.replay.policies.oracle import Ids, Oracle
from scout_sglang.replay.timing import Job

CLASSES = 16
BINS = 80
REFRESH = 64
"""Calls between two recalculations of the densities."""
DECAY = 0.9
"""What is left of old counts at each recalculation."""
EXPLORED = 64
"""One page in so many is kept ``EXPLORED_AGES`` times the usual age at eviction."""
EXPLORED_AGES = 4.0
NOT_CACHED = -1

_EDGES = 2.0 ** (np.arange(BINS + 1) / 4)


def build(setting: Setting) -> PagePolicy:
    oracle = Oracle(setting.events(), setting.page_size)
    return PagePolicy(oracle, HitDensity(oracle.n_pages), setting)


def hit_densities(hits: NDArray[np.float64], evictions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Expected hits for each page and call of stay, by class and age.

    ``hits``, ``evictions``: how many pages of a class hit or left at an age, shape (classes, bins).
    What ends within a bin is taken to end at its middle.
    """
    ends = hits + evictions
    width = np.diff(_EDGES)
    hits_ahead = np.cumsum(hits[:, ::-1], axis=1)[:, ::-1]
    ends_ahead = np.cumsum(ends[:, ::-1], axis=1)[:, ::-1]
    stay_in_bin = width * (ends_ahead - ends / 2)
    stay_ahead = np.cumsum(stay_in_bin[:, ::-1], axis=1)[:, ::-1]
    return np.divide(hits_ahead, stay_ahead, out=np.zeros_like(hits), where=ends_ahead > 1e-5)


class HitDensity(PageScore):
    """Worth: the hit density of the page's class at its age."""

    def __init__(self, n_pages: int):
        self.now = 0
        self.last_use = np.full(n_pages, NOT_CACHED, dtype=np.int64)
        # Time between the last two uses and the one before; a new page looks like a cold one.
        self.interval = np.zeros(n_pages)
        self.interval_before = np.full(n_pages, np.inf)
        self.hits = np.zeros((CLASSES, BINS))
        self.evictions = np.zeros((CLASSES, BINS))
        self.eviction_age = 1.0
        # Until something is learned, recency decides.
        self.density = 1.0 / np.tile(_EDGES[:-1], (CLASSES, 1))

    def arrived(self, job: Job, pages: Ids) -> None:
        self.now = job.number + 1
        found = pages[self.last_use[pages] != NOT_CACHED]
        ages = self.now - self.last_use[found]
        self._count(self.hits, found, ages)
        self.interval_before[found] = self.interval[found]
        self.interval[found] = ages
        self.last_use[pages] = self.now
        if self.now % REFRESH == 0:
            self.density = hit_densities(self.hits, self.evictions)
            self.hits *= DECAY
            self.evictions *= DECAY

    def evicted(self, pages: Ids) -> None:
        ages = self.now - self.last_use[pages]
        self._count(self.evictions, pages, ages)
        self.eviction_age += 0.01 * (float(ages.mean()) - self.eviction_age)
        self.last_use[pages] = NOT_CACHED
        self.interval[pages] = 0.0
        self.interval_before[pages] = np.inf

    def score(self, page: int) -> float:
        age = self.now - self.last_use[page]
        if page % EXPLORED == 0 and age < EXPLORED_AGES * self.eviction_age:
            return np.inf
        return float(self.density[self._classes(page), _bins(age)])

    def _count(self, table: NDArray[np.float64], pages: Ids, ages: Ids) -> None:
        np.add.at(table, (self._classes(pages), _bins(ages)), 1.0)

    def _classes(self, pages: Ids | int) -> NDArray[np.int64]:
        recent = self.interval[pages] + self.interval_before[pages]
        octave = np.log2(np.clip(recent, 1, 2.0 ** (CLASSES - 1)))
        return octave.astype(np.int64)


def _bins(ages: Ids | int) -> NDArray[np.int64]:
    octave = np.log2(np.maximum(ages, 1))
    return np.minimum((4 * octave).astype(np.int64), BINS - 1)
