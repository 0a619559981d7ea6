"""Leaves by the class that their value depends on: the least valuable one without a scan.

A *bucket* holds the leaves that agree in tenant, owner, agents and kind, in order of last access;
its first leaf speaks for it: within a bucket only staleness tells values apart, and the longest
unused are stale first. (Should an agent reuse what it left behind more often than what it went on
with, the first leaf is not the least valuable of its bucket.) An ordered set of buckets yields
victims as (order(V), last access, id), a total order. A bucket's value is looked up again when it
comes first, when its session moved, and otherwise in turn, a bounded number a dispatch: a value
that rose is corrected when the bucket comes first, one that fell as soon as it is seen.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any

from radix_policy.tags import Tag

ID_BITS = 32
_ID = (1 << ID_BITS) - 1
_UNKNOWN = float("-inf")
_NOBODY: Any = (-1, -1, (), 0)
REFRESHED = 32
"""Buckets whose value is looked up again in turn, per dispatch."""
SURE = 512
"""Look-ups in one walk after which a value looked up before is believed."""

Key = tuple[Any, ...]
Entry = tuple[float, int, "Bucket"]


class Leaf:
    """What the buckets read and write of an engine's record of a node.

    ``last``: last access on a logical clock, only ever raised. ``tag``: None for a node that no
    call has claimed; it goes first. ``bucket``: where the leaf is, None while it is no candidate.
    """

    __slots__ = ("bucket", "last", "tag")

    def __init__(self, tag: Tag | None, last: int) -> None:
        self.tag = tag
        self.last = last
        self.bucket: Bucket | None = None


class Bucket:
    """Leaves of one class; gone with its last leaf.

    ``heap``: last access and id of each, some of them outdated. ``entry``: its place among the
    buckets; other entries that name it are outdated. ``epoch``: when its value was looked up.
    """

    __slots__ = ("entry", "epoch", "heap", "key", "size", "used", "value")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.heap: list[int] = []
        self.size = 0
        self.value = _UNKNOWN
        self.epoch = -1
        self.used = -1
        self.entry: Entry | None = None

    def __lt__(self, other: Bucket) -> bool:
        """Live entries never tie, they name different leaves; outdated ones may stand anyhow."""
        return False


class Buckets:
    """The leaves of a tree, ready to be evicted in order.

    ``records``: the engine's records by node id, of leaves and others. ``order``: what a tag's
    leaf is ordered by, the lowest first. ``foresee`` is told the tags that it will be asked for,
    where those are many. ``put`` is O(log leaves); ``first`` looks up the value of every bucket
    that it meets first, usually one or two.
    """

    def __init__(
        self,
        records: MutableMapping[int, Any],
        order: Callable[[Tag], float],
        foresee: Callable[[Sequence[Tag]], None] = lambda tags: None,
    ) -> None:
        self._records = records
        self._order = order
        self._foresee = foresee
        self._buckets: dict[Key, Bucket] = {}
        self._of_session: dict[Key, list[Bucket]] = {}
        self._first: list[Entry] = []
        self._turn: deque[Bucket] = deque()
        self._epoch = 0
        self._looked_up = 0

    def __len__(self) -> int:
        """The number of leaves."""
        return sum(bucket.size for bucket in self._buckets.values())

    def __iter__(self) -> Iterator[Bucket]:
        return iter(self._buckets.values())

    @property
    def classes(self) -> int:
        """The number of buckets."""
        return len(self._buckets)

    # -- leaves come and go ------------------------------------------------------------

    def put(self, node: int, leaf: Leaf) -> None:
        """``node`` is a candidate, or its tag or last access changed while it was one."""
        key = _NOBODY if leaf.tag is None else leaf.tag.owner_class()
        bucket = leaf.bucket
        if bucket is not None:
            if bucket.key == key:
                return
            self.drop(leaf)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._open(key)
        leaf.bucket = bucket
        bucket.size += 1
        if len(bucket.heap) > 2 * bucket.size + 16:
            self._compact(bucket)
        place = leaf.last << ID_BITS | node
        heapq.heappush(bucket.heap, place)
        if bucket.heap[0] == place:
            bucket.epoch = -1
            self._announce(bucket, _UNKNOWN, place)

    def drop(self, leaf: Leaf) -> None:
        """The leaf is no candidate any more; nothing happens if it was none."""
        bucket = leaf.bucket
        if bucket is None:
            return
        leaf.bucket = None
        bucket.size -= 1
        if not bucket.size:
            self._close(bucket)

    def clear(self) -> None:
        """Forget all leaves; the records are the engine's to clear."""
        for bucket in self._buckets.values():
            bucket.entry = None
        self._buckets.clear()
        self._of_session.clear()
        self._first.clear()
        self._turn.clear()

    def _open(self, key: Key) -> Bucket:
        bucket = self._buckets[key] = Bucket(key)
        self._of_session.setdefault(key[:2], []).append(bucket)
        self._turn.append(bucket)
        return bucket

    def _close(self, bucket: Bucket) -> None:
        del self._buckets[bucket.key]
        bucket.entry = None
        bucket.heap = []
        siblings = self._of_session[bucket.key[:2]]
        siblings.remove(bucket)
        if not siblings:
            del self._of_session[bucket.key[:2]]
        if len(self._turn) > 2 * len(self._buckets) + 64:
            self._turn = deque(b for b in self._turn if b.size)

    # -- order -------------------------------------------------------------------------

    def refresh(self, epoch: int, moved: Iterable[Key]) -> None:
        """Look up values that may have changed.

        ``epoch``: values stay as they are while it does. ``moved``: the (tenant, session) pairs
        of which more than time may have changed the values.
        """
        self._looked_up = 0
        due = [bucket for session in moved for bucket in self._of_session.get(session, ())]
        if epoch != self._epoch:
            self._epoch = epoch
            due += self._in_turn()
        self._look_again(due)

    def _in_turn(self) -> list[Bucket]:
        """The buckets whose turn it is."""
        turn = self._turn
        due = [turn.popleft() for _ in range(min(REFRESHED, len(turn)))]
        due = [bucket for bucket in due if bucket.size]
        turn.extend(due)
        return due

    def first(self) -> tuple[int, Any] | None:
        """The leaf to evict before all others and its record, or None if there is no leaf."""
        heap, records = self._first, self._records
        while heap:
            entry = heap[0]
            bucket = entry[2]
            if bucket.entry is not entry:
                heapq.heappop(heap)
                continue
            place = self._head(bucket)
            leaf = records[place & _ID]
            value = self._value(bucket, leaf)
            if value != entry[0] or place != entry[1]:
                bucket.entry = fresh = (value, place, bucket)
                heapq.heapreplace(heap, fresh)
                if heap[0] is not fresh:
                    continue
            return place & _ID, leaf
        return None

    def heads(self, most: int) -> list[tuple[float, int, Bucket]]:
        """Value, last access with id, and bucket, of up to ``most`` that may come first."""
        live = [b for entry in self._first if (b := entry[2]).entry is entry][:most]
        return [(*self.head(bucket), bucket) for bucket in live]

    def head(self, bucket: Bucket) -> tuple[float, int]:
        """Value of the bucket's first leaf, and its last access with its id."""
        place = self._head(bucket)
        return self._value(bucket, self._records[place & _ID]), place

    def recencies(self, buckets: Iterable[Bucket], most: int) -> list[int]:
        """Last access of the leaves in ``buckets``, in no order, until there are ``most``."""
        found: list[int] = []
        for bucket in buckets:
            for node in {place & _ID for place in bucket.heap}:
                leaf = self._records.get(node)
                if leaf is not None and leaf.bucket is bucket:
                    found.append(leaf.last)
            if len(found) >= most:
                break
        return found

    def leaf(self, place: int) -> tuple[int, Any]:
        """Id and record behind a last access with id."""
        return place & _ID, self._records[place & _ID]

    def _head(self, bucket: Bucket) -> int:
        """Last access and id of the bucket's first leaf; it has one."""
        heap, records = bucket.heap, self._records
        while True:
            place = heap[0]
            leaf = records.get(place & _ID)
            if leaf is None or leaf.bucket is not bucket:
                heapq.heappop(heap)
            elif leaf.last != place >> ID_BITS:
                heapq.heapreplace(heap, leaf.last << ID_BITS | place & _ID)
            else:
                return place

    def _value(self, bucket: Bucket, leaf: Leaf) -> float:
        if leaf.tag is None:
            return _UNKNOWN
        used = leaf.tag.number
        fresh = bucket.epoch == self._epoch or (bucket.epoch >= 0 and self._looked_up > SURE)
        if not fresh or bucket.used != used:
            bucket.value = self._order(leaf.tag)
            bucket.epoch, bucket.used = self._epoch, used
            self._looked_up += 1
        return bucket.value

    def _look_again(self, due: list[Bucket]) -> None:
        records, order, epoch = self._records, self._order, self._epoch
        heads = []
        for bucket in due:
            place = bucket.heap[0]
            leaf = records.get(place & _ID)
            if leaf is None or leaf.bucket is not bucket or leaf.last != place >> ID_BITS:
                place = self._head(bucket)
                leaf = records[place & _ID]
            if leaf.tag is not None:
                heads.append((bucket, place, leaf.tag))
        self._foresee([tag for _, _, tag in heads])
        self._looked_up += len(heads)
        for bucket, place, tag in heads:
            bucket.value = value = order(tag)
            bucket.epoch, bucket.used = epoch, tag.number
            if bucket.entry is None or value < bucket.entry[0]:
                self._announce(bucket, value, place)

    def _announce(self, bucket: Bucket, value: float, place: int) -> None:
        bucket.entry = (value, place, bucket)
        heapq.heappush(self._first, bucket.entry)
        if len(self._first) > 4 * len(self._buckets) + 64:
            self._first = [b.entry for b in self._buckets.values() if b.entry is not None]
            heapq.heapify(self._first)

    def _compact(self, bucket: Bucket) -> None:
        """Leave out what is outdated or there twice."""
        nodes = {place & _ID for place in bucket.heap}
        bucket.heap = [
            self._records[node].last << ID_BITS | node
            for node in nodes
            if node in self._records and self._records[node].bucket is bucket
        ]
        heapq.heapify(bucket.heap)
