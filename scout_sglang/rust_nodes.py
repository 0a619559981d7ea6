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
    """A node on a path, as ``collect_path_info`` of the binding gives it."""

    id: int
    parent: int
    start: int
    end: int
    value_len: int | None
    children: int


class Victim(NamedTuple):
    """A leaf about to be evicted; ``parent`` is None below the root."""

    id: int
    node: Node
    parent: Node | None


class RustNodes:
    """The nodes behind a ``RustUnifiedTreeCoreBinding``, by id. Each call is O(depth)."""

    def __init__(self, binding: Any, bindings: Any) -> None:
        self._binding = binding
        self._bindings = bindings

    def path(self, node: int) -> list[Node] | None:
        """The last two nodes from the root to ``node``; None if it is gone."""
        try:
            path = self._binding.collect_path_info([node])[0]
        except KeyError:
            return None
        return [Node(*info) for info in path[-2:]] or None

    def sizes(self, node: int) -> list[tuple[int, int]]:
        """Id and tokens of every node from the root to ``node``; empty if it is gone."""
        try:
            path = self._binding.collect_path_info([node])[0]
        except KeyError:
            return []
        return [(info[0], info[3] - info[2]) for info in path]

    def marked(self, records: Mapping[int, Any]) -> Iterator[tuple[Any, list[tuple[int, int]]]]:
        """Of each node with a tagged mark: the tag, and id and tokens of the nodes down to it."""
        for node in list(records):
            mark = records.get(node)
            if mark is not None and mark.tag is not None:
                yield mark.tag, self.sizes(node)

    def victim(self, node: int) -> Victim | None:
        """``node`` as a victim, whether or not it may be evicted; None if it is gone."""
        path = self.path(node)
        if path is None:
            return None
        return Victim(node, path[-1], path[-2] if len(path) > 1 else None)

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
            self._binding.insert_host(victim.node.parent, extra_key, key, _NOTHING, [], salt)
        finally:
            self._binding.set_is_write_back(False)
        path = self.path(victim.id)
        assert path is not None and len(path) == 2
        return Victim(victim.id, path[1], path[0])
