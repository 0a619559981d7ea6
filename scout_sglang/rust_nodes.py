"""What SGLang's Rust tree says of its nodes, and the one cut that the policy makes in it.

Rust panics, and its mutex stays poisoned, when told to evict what is not an unlocked leaf: a
victim is looked up and probed here first.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

_NOTHING = torch.empty(0, dtype=torch.int64)


class Node(NamedTuple):
    """A node as the binding describes it on a path.

    ``above``: id of the node above, the root's if there is no other. ``start``, ``end``: its
    depths. ``slots``: tokens in memory. ``children``: how many, none if it is a leaf.
    """

    id: int
    above: int
    start: int
    end: int
    slots: int | None
    children: int


class Victim(NamedTuple):
    """A :class:`Node` about to be evicted; ``parent``: the one above, None of the root."""

    id: int
    above: int
    start: int
    end: int
    slots: int | None
    children: int
    parent: Node | None


class RustNodes:
    """The nodes behind a ``RustUnifiedTreeCoreBinding``, by id. Each call is O(depth)."""

    def __init__(self, binding: Any) -> None:
        self._binding = binding

    def marked(self, records: Mapping[int, Any]) -> Iterator[tuple[Any, list[tuple[int, int]]]]:
        """Of each node with a tagged mark: the tag, and id and tokens of the nodes down to it."""
        for node in list(records):
            mark = records.get(node)
            if mark is not None and mark.tag is not None:
                yield mark.tag, self._sizes(node)

    def _sizes(self, node: int) -> list[tuple[int, int]]:
        try:
            path = self._binding.collect_path_info([node])[0]
        except KeyError:
            return []
        return [(info[0], info[3] - info[2]) for info in path]

    def victim(self, node: int) -> Victim | None:
        """``node`` as a victim, whether or not it may be evicted; None if it is gone."""
        try:
            path = self._binding.collect_path_info([node])[0]
        except KeyError:
            return None
        if not path:
            return None
        parent = Node._make(path[-2]) if len(path) > 1 else None
        return Victim._make((*path[-1], parent))

    def unlocked(self, node: int) -> bool:
        """Whether a lock on it takes tokens out of the evictable ones; leaves no lock behind."""
        binding = self._binding
        before = binding.full_evictable_size()
        binding.inc_full_pin(node)
        held = before - binding.full_evictable_size()
        binding.dec_full_pin(node)
        return bool(held)

    def split(self, victim: Victim, head: Any) -> Victim:
        """Make ``head``, the first tokens of the victim as int32, a node of their own.

        Returns the victim, which keeps its id, as it is then. Inserting on the host what the
        device has does no more than that under write-back (``UnifiedTreeCore.insert_host``).
        """
        extra_key, salt = self._binding.prefetch_anchor_info(victim.id)
        key = array("q")
        key.frombytes(head.astype(np.int64).tobytes())
        self._binding.set_is_write_back(True)
        try:
            self._binding.insert_host(victim.above, extra_key, key, _NOTHING, [], salt)
        finally:
            self._binding.set_is_write_back(False)
        cut = self.victim(victim.id)
        assert cut is not None and cut.parent is not None
        return cut
