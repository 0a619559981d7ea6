"""The policy on SGLang's Rust tree core, by delegation: Rust keeps the tree, we pick the victims.

Rust is built with policy "lru". A call leaves a :class:`Mark` where its match and its inserts
end; marks of evicted nodes are joined into their parents', so that a leaf's mark is complete.
Victims come from :class:`Buckets`; each is checked against Rust's own books first.

Where the order is by recency (guard, faults, leaves without a mark), the walk is Rust's own.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import torch
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import (
    EvictDeviceNextNodeResult,
)

from radix_policy.blend import BlendedWalk
from radix_policy.marks import Mark, inherit
from radix_policy.tags import Tag
from scout_sglang.faults import FAULTS
from scout_sglang.rust_marks import TOKEN_BYTES, MarkedRustCore
from scout_sglang.rust_nodes import RustNodes, Victim
from scout_sglang.survey import Survey

logger = logging.getLogger(__name__)

BACKEND = "scout-rust"
FULL = ComponentType.FULL


class RustScoutCore(MarkedRustCore):
    """SGLang's Rust core with our victims; FULL component only, without a host tier.

    ``shortfall``: tokens that the walk under way still has to free, None outside of one.
    ``one_by_one``: someone else decides after each victim whether another one has to go.
    """

    BACKEND = BACKEND

    def __init__(self, params: Any, components: Any) -> None:
        super().__init__(params, components)
        self.trims = self.eviction_strategy.config.trim
        self.nodes = RustNodes(self._binding)
        self.survey = Survey(
            self, lambda: len(self._records), lambda: self.nodes.marked(self.records)
        )
        self.shortfall: int | None = None
        self.one_by_one = False
        self._rust_walks = False
        self._requested = 0
        self._blend: BlendedWalk | None = None
        self._gone: list[tuple[Tag | None, int, float | None]] = []
        self.refused = 0

    # -- the walk ----------------------------------------------------------------------

    def evict_device_start(self, component_type: ComponentType, request_cnt: int) -> None:
        self.settle()
        self._requested = request_cnt
        if self.shortfall is None:
            self.shortfall = request_cnt
        self._rust_walks, self._blend = False, None
        if self._by_recency(self._beta()):
            self._let_rust_walk()

    def _beta(self) -> float:
        """How much recency counts in this walk (see ``radix_policy.guard``)."""
        if self.eviction_strategy.lru:
            return 1.0
        try:
            if self._missing:
                self._find_missing()
            return self.scout.guard.beta if self.scout.guard is not None else 0.0
        except Exception:
            FAULTS.record("walk")
            return 1.0

    def _by_recency(self, beta: float) -> bool:
        """Whether recency alone decides; else values are looked up again as far as needed."""
        if beta >= 1 or self.enable_hicache or self.enable_external_cache_linker:
            return True
        try:
            self._buckets.refresh(self.scout.epoch, self.scout.moved())
            if beta > 0:
                self._blend = BlendedWalk(self._buckets, beta)
            return False
        except Exception:
            FAULTS.record("score")
            return True

    def _let_rust_walk(self) -> None:
        self._rust_walks = True
        super().evict_device_start(FULL, self._requested)

    def evict_device_next_node(self, component_type: ComponentType, tracker: Any) -> Any:
        if not self._rust_walks:
            if tracker[FULL] >= self._requested:
                return EvictDeviceNextNodeResult()
            step = self._evict_next()
            if step.made_progress or not self.full_evictable_size():
                return step
            self._let_rust_walk()
        return super().evict_device_next_node(component_type, tracker)

    def _evict_next(self) -> EvictDeviceNextNodeResult:
        """Evict the next leaf, and as many after it as the shortfall is known to take.

        To hand them to the cache one by one would cost more than to find them.
        """
        step = EvictDeviceNextNodeResult()
        slots: list[torch.Tensor] = []
        freed = 0
        while (victim := self._next_victim()) is not None:
            gone = self._binding.evict_device_leaf(victim.id)
            step.made_progress = True
            for tensors in gone.new_device_frees.values():
                slots += tensors
            if actions := gone.cache_actions:
                step.cache_actions += self._cache_actions_from_tagged(actions)
            tokens = victim.end - victim.start
            freed += tokens
            self.shortfall = max(0, (self.shortfall or 0) - tokens)
            self._evicted(victim)
            if self.one_by_one or not self.shortfall:
                break
        self._count_evictions()
        if slots:
            step.tracker[FULL] = freed
            step.device_frees[FULL] = slots if len(slots) == 1 else [torch.cat(slots)]
        return step

    def _next_victim(self) -> Victim | None:
        """The leaf to evict next, cut to what is needed; None if none is known."""
        try:
            buckets, blend = self._buckets, self._blend
            while (found := (blend.first() if blend else None) or buckets.first()) is not None:
                node, mark = found
                victim = self._evictable(node, mark)
                if victim is not None:
                    fits = victim.end - victim.start <= (self.shortfall or 0)
                    whole = fits and mark.anchor <= victim.start
                    return victim if whole else self._cut(victim, mark)
                self.refused += 1
        except Exception:
            FAULTS.record("score")
        return None

    def _evictable(self, node: int, mark: Mark) -> Victim | None:
        """What Rust says of a candidate; None, and no candidate any more, if it must stay."""
        victim = self.nodes.victim(node)
        if victim is None:
            self._buckets.drop(mark)
            del self._records[node]
            return None
        if victim.children:
            self._buckets.drop(mark)
            return None
        if not self.nodes.unlocked(node):
            self._buckets.drop(mark)
            self._parked.add(node)
            return None
        return victim

    def evict_device_leaf(self, node_id: int, is_write_back: bool) -> Any:
        victim = self.nodes.victim(node_id)
        result = super().evict_device_leaf(node_id, is_write_back)
        if victim is not None and result.backup_kv is None:
            self._evicted(victim)
            self._count_evictions()
        return result

    def _evicted(self, victim: Victim) -> None:
        try:
            self._hand_up(victim)
        except Exception:
            self._lost("evict")

    def _hand_up(self, victim: Victim) -> None:
        """Hand the mark of a node that is gone up to its parent, which may be a leaf now."""
        node, above, start, end, _, _, parent = victim
        records = self._records
        self._parked.discard(node)
        mark = records.pop(node, None)
        if mark is None:
            self._gone.append((None, end - start, None))
        else:
            bucket = mark.bucket
            value = None if bucket is None else self.scout.value_of(bucket.value)
            self._gone.append((mark.tag, end - start, value))
            self._buckets.drop(mark)
        if parent is None:
            return
        upper = records.get(above)
        if upper is None:
            upper = records[above] = Mark(0)
        if mark is not None:
            inherit(upper, mark, parent.start, parent.end, self._root)
            if upper.tail is None and mark.tail is not None:
                upper.tail = mark.tail[: (start - end) * TOKEN_BYTES] or None
        if parent.children == 1:
            self._buckets.put(above, upper)
            if self._blend is not None and upper.bucket is not None:
                self._blend.offer(upper.bucket)

    def _count_evictions(self) -> None:
        gone, self._gone = self._gone, []
        if (calls := self.scout_calls) is not None:
            reason = "recency" if self._rust_walks else "blend" if self._blend else "value"
            try:
                calls.counters.evicted(gone, reason)
            except Exception:
                FAULTS.record("evict")

    def evict_device_end(self, component_type: ComponentType) -> None:
        if self._rust_walks:
            super().evict_device_end(component_type)
        self._rust_walks, self._blend = False, None
        self.shortfall = None

    def _find_missing(self) -> None:
        """After a fault: every leaf that Rust would evict is a candidate again."""
        super().evict_device_start(FULL, self.full_evictable_size())
        nothing = {FULL: 0}
        try:
            while True:
                step = super().evict_device_next_node(FULL, nothing)
                if step.node_id is None:
                    break
                mark = self._records.get(step.node_id)
                if mark is None:
                    mark = self._records[step.node_id] = Mark(self._clock)
                self._parked.discard(step.node_id)
                self._buckets.put(step.node_id, mark)
        finally:
            super().evict_device_end(FULL)
        self._missing = False

    # -- trimming ----------------------------------------------------------------------

    def _cut(self, victim: Victim, mark: Mark) -> Victim | None:
        try:
            return self._trim(victim, mark)
        except Exception:
            FAULTS.record("trim")
            return self.nodes.victim(victim.id)

    def _trim(self, victim: Victim, mark: Mark) -> Victim:
        """Cut the victim so that only its tail goes: what memory is short of, or past the anchor.

        Returns the victim as it is then.
        """
        size, page = victim.end - victim.start, self._page_size
        kept = (size - max(self.shortfall or 0, 1)) // page * page if self.trims else 0
        anchor = mark.anchor // page * page - victim.start
        if anchor < size:
            kept = max(kept, anchor)
        if kept > 0 and mark.tail is not None and len(mark.tail) >= size * TOKEN_BYTES:
            tokens = np.frombuffer(mark.tail, dtype=np.int32)[-size:]
            return self.nodes.split(victim, tokens[:kept])
        return victim

    def _root(self, tenant: int, session: int) -> int:
        return self.scout.root(tenant, session)
