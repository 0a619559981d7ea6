"""Between value and recency: the order of a walk while the guard brakes."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from radix_policy.buckets import ID_BITS, Bucket, Buckets

MOST_BUCKETS = 1024
MOST_LEAVES = 2048


class BlendedWalk:
    """Leaves by (1 - beta) rank(V) + beta rank(last use), ranks as the walk finds the leaves.

    A bucket's first leaf has the least rank of its leaves, so that only first leaves compete. Of
    more than ``MOST_BUCKETS`` buckets those compete that stand first in the heap of values, and
    ranks are taken among ``MOST_LEAVES`` leaves of theirs. Setting up is O(what these bound).
    """

    def __init__(self, buckets: Buckets, beta: float) -> None:
        self._buckets = buckets
        self._beta = beta
        found = buckets.heads(MOST_BUCKETS)
        values = np.array([value for value, _, _ in found])
        sizes = np.array([bucket.size for _, _, bucket in found], dtype=np.int64)
        recencies = buckets.recencies([bucket for _, _, bucket in found], MOST_LEAVES)
        self._values = np.sort(np.repeat(values, sizes))
        self._recencies = np.sort(np.array(recencies, dtype=np.int64))
        lasts = np.array([place >> ID_BITS for _, place, _ in found], dtype=np.int64)
        ranks = self._rank(values, lasts).tolist() if found else []
        self._heap = [
            (r, place, bucket) for r, (_, place, bucket) in zip(ranks, found, strict=True)
        ]
        heapq.heapify(self._heap)

    def offer(self, bucket: Bucket) -> None:
        """The bucket has a leaf that it had not when the walk began."""
        value, place = self._buckets.head(bucket)
        rank = float(self._rank(value, place >> ID_BITS))
        heapq.heappush(self._heap, (rank, place, bucket))

    def first(self) -> tuple[int, Any] | None:
        """The leaf to evict next and its record, or None."""
        while self._heap:
            _, place, bucket = self._heap[0]
            if not bucket.size:
                heapq.heappop(self._heap)
                continue
            value, now = self._buckets.head(bucket)
            if now == place:
                return self._buckets.leaf(place)
            rank = float(self._rank(value, now >> ID_BITS))
            heapq.heapreplace(self._heap, (rank, now, bucket))
        return None

    def _rank(self, value: Any, last: Any) -> Any:
        by_value = np.searchsorted(self._values, value) / max(len(self._values), 1)
        by_recency = np.searchsorted(self._recencies, last) / max(len(self._recencies), 1)
        return (1 - self._beta) * by_value + self._beta * by_recency
