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


class Victim(NamedTuple):
    """A leaf about to be evicted.

    ``above``: id of the node above, the root's if there is no other. ``start``, ``end``: its
    depths. ``children``: of the node itself, none if it is a leaf. ``parent``: what is known of
    the node above, None of the root.
    """

    id: int
    above: int
    start: int
    end: int
    children: int
    parent: Parent | None


class Parent(NamedTuple):
    """The node above a victim: its depths, its children."""

    id: int
    start: int
    end: int
    children: int


class RustNodes:
    """The nodes behind a ``RustUnifiedTreeCoreBinding``, by id. Each call is O(depth)."""

    def __init__(self, binding: Any, bindings: Any) -> None:
        self._binding = binding
        self._bindings = bindings

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
        parent = None
        if len(path) > 1:
            number, _, start, end, _, children = path[-2]
            parent = Parent(number, start, end, children)
        _, above, start, end, _, children = path[-1]
        return Victim(node, above, start, end, children, parent)

    def unlocked(self, node: int) -> bool:
        """Whether locking it takes tokens out of the evictable ones; leaves no lock behind."""
        lock = self._binding.inc_lock_ref(node, [])
        receipt = self._bindings.DecLockRefParamsBinding(
            node_id=node,
            skipped_lock_components=lock.skipped_lock_components,
            component_lock_uuids=lock.component_lock_uuids,
            component_host_lock_uuids=lock.component_host_lock_uuids,
        )
        self._binding.dec_lock_ref(node, receipt, False)
        return bool(lock.delta)

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
