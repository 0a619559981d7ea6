"""SGLang's memory as the warm-up planner sees it, on either tree core. Reading leaves no trace."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

from sglang.srt.mem_cache.radix_cache import RadixKey

from radix_policy.buckets import ID_BITS
from radix_policy.call import Namespace, Tokens
from radix_policy.warmup import Worth
from scout_sglang.tokens import token_array

_ID = (1 << ID_BITS) - 1
CLASSES = 256
"""Classes of leaves that are looked at for victims: those worth least when last valued."""
LEAVES = 1024
"""Leaves that are looked at where they are in no classes: the longest unused.

Eviction takes what is worth least of all leaves, so what has to go is never worth more than what is
found here.
"""


class CacheRoom:
    """A ``radix_policy.warmup.Room`` over a UnifiedRadixCache that runs one of our policies."""

    def __init__(self, cache: Any) -> None:
        self._core = cache.tree_core
        self._allocator = cache.token_to_kv_pool_allocator

    @property
    def whole(self) -> bool:
        core = self._core
        return not core.trims or core.enable_hicache or core.is_eagle

    def resident(self, namespace: Namespace, tokens: Tokens) -> int:
        extra_key, salt, *_ = (*namespace, None, None)
        key = RadixKey(token_array(tokens), extra_key=extra_key, cache_salt=salt)
        return int(self._core.match_full_device_prefix(key)[0])

    def free(self) -> int:
        # SGLang takes a page more than it needs while it allocates.
        return max(0, int(self._allocator.available_size()) - int(self._core.page_size))

    def victims(self, worth: Worth) -> Iterator[tuple[float, int]]:
        """(value, tokens) of evictable leaves, the least valued first."""
        if hasattr(self._core, "buckets"):
            return self._rust_victims(worth)
        return self._python_victims(worth)

    def _rust_victims(self, worth: Worth) -> Iterator[tuple[float, int]]:
        core = self._core
        locked = core.full_protected_size() > 0
        least = heapq.nsmallest(
            CLASSES, core.buckets, key=lambda bucket: (bucket.value, bucket.key)
        )
        classes = [leaves for bucket in least if (leaves := self._leaves(core.records, bucket))]
        heads = [(worth(core.records[c[0]].tag), n, 0) for n, c in enumerate(classes)]
        heapq.heapify(heads)
        while heads:
            value, n, place = heapq.heappop(heads)
            node = classes[n][place]
            victim = core.nodes.victim(node)
            leaf = victim is not None and not victim.children
            if leaf and (not locked or core.nodes.unlocked(node)):
                yield value, victim.end - victim.start
            if place + 1 < len(classes[n]):
                following = worth(core.records[classes[n][place + 1]].tag)
                heapq.heappush(heads, (following, n, place + 1))

    @staticmethod
    def _leaves(records: Any, bucket: Any) -> list[int]:
        """Nodes of a bucket, the longest unused first."""
        nodes = {place & _ID for place in bucket.heap}
        leaves = [
            (leaf.last, n)
            for n in nodes
            if (leaf := records.get(n)) is not None and leaf.bucket is bucket
        ]
        return [node for _, node in sorted(leaves)]

    def _python_victims(self, worth: Worth) -> Iterator[tuple[float, int]]:
        leaves = heapq.nsmallest(
            LEAVES, self._core.evictable_device_leaves, key=lambda n: (n.last_access_time, n.id)
        )
        worths = [worth(getattr(leaf, "scout_tag", None)) for leaf in leaves]
        for n in sorted(range(len(leaves)), key=lambda n: (worths[n], leaves[n].id)):
            yield worths[n], len(leaves[n].key)
