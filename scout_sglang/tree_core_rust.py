"""The policy on SGLang's Rust tree core, by delegation: Rust keeps the tree, we pick the victims.

Rust is built with policy "lru". A call leaves a :class:`Mark` where its match and its inserts
end; marks of evicted nodes are joined into their parents', so that a leaf's mark is complete.
Victims come from :class:`Buckets`; each is checked against Rust's own books first.

Where the order is by recency (guard, faults, leaves without a mark), the walk is Rust's own.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams, MatchResult
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.rust_tree_core.adapter import RustUnifiedTreeCore
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core_interface import (
    EvictDeviceNextNodeResult,
)

from radix_policy.blend import BlendedWalk
from radix_policy.buckets import Buckets
from radix_policy.marks import Mark, inherit
from radix_policy.scout import Scout
from scout_sglang.dispatch import Calls, Underway
from scout_sglang.faults import FAULTS
from scout_sglang.rust_nodes import RustNodes, Victim
from scout_sglang.survey import Survey
from scout_sglang.tree_core_python import ScoutStrategy

logger = logging.getLogger(__name__)

BACKEND = "scout-rust"
FULL = ComponentType.FULL
_TOKEN_BYTES = 4


class _Inserted(NamedTuple):
    """A leaf that a call has made."""

    id: int
    start: int
    end: int
    call: int


class RustScoutCore(RustUnifiedTreeCore):
    """SGLang's Rust core with our victims; FULL component only, without a host tier."""

    BACKEND = BACKEND

    def __init__(self, params: Any, components: Any) -> None:
        self.scout_calls: Calls | None = None
        self.current: Underway | None = None
        self.shortfall: int | None = None
        self.records: dict[int, Mark] = {}
        super().__init__(replace(params, eviction_policy="lru", eviction_policy_config=None))
        strategy = ScoutStrategy(params.eviction_policy.lower(), **_config(params))
        scout = Scout(strategy.config, params.token_to_kv_pool_allocator.size, params.page_size)
        self.eviction_strategy = strategy
        self.trims = strategy.config.trim
        self.survey = Survey(
            self, lambda: len(self.records), lambda: self.nodes.marked(self.records)
        )
        self.join(Calls(scout))
        self.buckets = Buckets(self.records, self._order)
        self.nodes = RustNodes(self._binding, self._bindings)
        self._clock = 0
        self._parked: set[int] = set()
        self._inserted: _Inserted | None = None
        self._insert_key: RadixKey | None = None
        self._missing = False
        self._rust_walks = False
        self._requested = 0
        self._blend: BlendedWalk | None = None
        self._victim: Victim | None = None
        self.refused = 0

    def join(self, calls: Any) -> None:
        """Take calls from this table, and decide by its policy."""
        self.scout_calls = calls
        self.scout = self.eviction_strategy.scout = calls.scout

    # -- marks where calls end ---------------------------------------------------------

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        result = super().match_prefix(params)
        if result.device_prefix_len:
            try:
                self._matched(params.req, result.last_device_node, result.device_prefix_len)
            except Exception:
                self._lost("match")
        elif params.req is not None and self.scout_calls is not None:
            try:
                self.scout_calls.admit(params.req.rid)
            except Exception:
                self._lost("match")
        return result

    def _matched(self, req: Any, node: int, end: int) -> None:
        assert self.scout_calls is not None
        underway = None if req is None else self.scout_calls.admit(req.rid)
        if underway is not None:
            if (mark := self.records.get(node)) is not None:
                self.scout_calls.counters.hit(mark.tag, underway.dispatch.number)
            self._touch(node, end, underway)
        elif node in self.records:
            self._clock += 1
            self.records[node].last = self._clock

    def begin_insert(self, params: Any) -> Any:
        self._insert_key = params.key
        step = super().begin_insert(params)
        if step.result is not None:
            self._insert_ended(step.result)
        return step

    def resume_insert(self) -> Any:
        step = super().resume_insert()
        if step.result is not None:
            self._insert_ended(step.result)
        return step

    def _insert_ended(self, result: Any) -> None:
        key, self._insert_key = self._insert_key, None
        if key is None or result.rotation_tail_declined:
            return
        try:
            end = len(key) // self.page_size * self.page_size
            if result.prefix_len < end:
                self._added(result.last_device_node, result.prefix_len, end, key)
            elif end and self.current is not None:
                self._touch(result.last_device_node, end, self.current)
        except Exception:
            self._lost("insert")

    def _added(self, node: int, start: int, end: int, key: RadixKey) -> None:
        """An insert has made a new leaf."""
        self._clock += 1
        mark = self.records[node] = Mark(self._clock)
        tokens = np.frombuffer(key.token_ids, dtype=np.int64)[start:end]
        mark.tail = tokens.astype(np.int32).tobytes()
        if (current := self.current) is not None:
            prompt = current.prompt // self.page_size * self.page_size
            mark.claim(current.dispatch, start, end, prompt)
            self._inserted = _Inserted(node, start, end, current.dispatch.number)
        self.buckets.put(node, mark)

    def _touch(self, node: int, end: int, underway: Underway) -> None:
        """``underway`` ends at ``node``, which it has not made."""
        self._clock += 1
        mark = self.records.get(node)
        if mark is None:
            # Rust has split a node, whose lower half keeps its id: this is the upper one.
            mark = self.records[node] = Mark(self._clock)
            self._cut_off(mark, end, underway)
        mark.last = self._clock
        call, tag = underway.dispatch, mark.tag
        if tag is None:
            prompt = underway.prompt // self.page_size * self.page_size
            mark.claim(call, end - 1, end, prompt)
        else:
            owner = tag.session
            self.scout.touch(tag, call, end)
            mark.touched(call, owner)
        if mark.bucket is not None:
            self.buckets.put(node, mark)

    def _cut_off(self, upper: Mark, end: int, underway: Underway) -> None:
        """A call that inserts prompt and output at once cuts its new leaf where the prompt ends."""
        made, call = self._inserted, underway.dispatch
        lower = None if made is None else self.records.get(made.id)
        if self.current is None or made is None or lower is None or lower.tail is None:
            return
        if made.call == call.number and made.start < end < made.end:
            cut = (end - made.start) * _TOKEN_BYTES
            upper.tail, lower.tail = lower.tail[:cut], lower.tail[cut:]
            tag, prompt = lower.tag, lower.prompt
            if tag is not None and not tag.shared and tag.number == call.number and end >= prompt:
                lower.claim(call, end, made.end, prompt)
                if lower.bucket is not None:
                    self.buckets.put(made.id, lower)

    def _lost(self, kind: str) -> None:
        """A fault may have left a leaf without a mark; the next walk looks for it."""
        FAULTS.record(kind)
        self._missing = True

    # -- locks -------------------------------------------------------------------------

    def dec_lock_ref(self, node_id: int, params: Any, skip_swa: bool = False) -> Any:
        result = super().dec_lock_ref(node_id, params, skip_swa)
        if node_id in self._parked:
            self._unpark(node_id)
        return result

    def dec_full_pin(self, node_id: int) -> None:
        super().dec_full_pin(node_id)
        if node_id in self._parked:
            self._unpark(node_id)

    def _unpark(self, node: int) -> None:
        self._parked.discard(node)
        mark = self.records.get(node)
        if mark is not None:
            try:
                self.buckets.put(node, mark)
            except Exception:
                self._lost("insert")

    # -- the walk ----------------------------------------------------------------------

    def evict_device_start(self, component_type: ComponentType, request_cnt: int) -> None:
        self._requested = request_cnt
        if self.shortfall is None:
            self.shortfall = request_cnt
        self._rust_walks, self._blend, self._victim = False, None, None
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
            self.buckets.refresh(self.scout.epoch, self.scout.moved())
            if beta > 0:
                self._blend = BlendedWalk(self.buckets, beta)
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
            try:
                victim = self._next_victim()
                if victim is not None:
                    return EvictDeviceNextNodeResult(node_id=victim, made_progress=True)
            except Exception:
                FAULTS.record("score")
            if not self.full_evictable_size():
                return EvictDeviceNextNodeResult()
            self._let_rust_walk()
        return super().evict_device_next_node(component_type, tracker)

    def _next_victim(self) -> int | None:
        """The id of the leaf to evict next, cut to what is needed; None if none is known."""
        while True:
            found = (self._blend.first() if self._blend else None) or self.buckets.first()
            if found is None:
                return None
            node, mark = found
            victim = self._evictable(node, mark)
            if victim is not None:
                try:
                    victim = self._trim(victim, mark)
                except Exception:
                    FAULTS.record("trim")
                self._victim = victim
                return node
            self.refused += 1

    def _evictable(self, node: int, mark: Mark) -> Victim | None:
        """What Rust says of a candidate; None, and no candidate any more, if it must stay."""
        victim = self.nodes.victim(node)
        if victim is None:
            self.buckets.drop(mark)
            del self.records[node]
            return None
        if victim.children:
            self.buckets.drop(mark)
            return None
        if not self.nodes.unlocked(node):
            self.buckets.drop(mark)
            self._parked.add(node)
            return None
        return victim

    def evict_device_leaf(self, node_id: int, is_write_back: bool) -> Any:
        victim, self._victim = self._victim, None
        if victim is None or victim.id != node_id:
            victim = self.nodes.victim(node_id)
        result = super().evict_device_leaf(node_id, is_write_back)
        if victim is not None and result.backup_kv is None:
            try:
                self._evicted(victim)
            except Exception:
                self._lost("evict")
        return result

    def _evicted(self, victim: Victim) -> None:
        """Hand the mark of a node that is gone up to its parent, which may be a leaf now."""
        self._parked.discard(victim.id)
        mark = self.records.pop(victim.id, None)
        self._count_eviction(mark, victim.end - victim.start)
        if mark is not None:
            self.buckets.drop(mark)
        parent = victim.parent
        if parent is None:
            return
        upper = self.records.get(parent.id)
        if upper is None:
            upper = self.records[parent.id] = Mark(0)
        if mark is not None:
            inherit(upper, mark, parent.start, parent.end, self._root)
            size = (victim.end - victim.start) * _TOKEN_BYTES
            if upper.tail is None and mark.tail is not None and len(mark.tail) > size:
                upper.tail = mark.tail[:-size]
        if parent.children == 1:
            self.buckets.put(parent.id, upper)
            if self._blend is not None and upper.bucket is not None:
                self._blend.offer(upper.bucket)

    def _count_eviction(self, mark: Mark | None, tokens: int) -> None:
        if self.scout_calls is None:
            return
        tag = None if mark is None else mark.tag
        bucket = None if mark is None else mark.bucket
        value = None if bucket is None else self.scout.value_of(bucket.value)
        reason = "recency" if self._rust_walks else "blend" if self._blend else "value"
        self.scout_calls.counters.evicted(tag, tokens, value, reason)

    def evict_device_end(self, component_type: ComponentType) -> None:
        if self._rust_walks:
            super().evict_device_end(component_type)
        self._rust_walks, self._blend, self._victim = False, None, None
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
                mark = self.records.get(step.node_id)
                if mark is None:
                    mark = self.records[step.node_id] = Mark(self._clock)
                self._parked.discard(step.node_id)
                self.buckets.put(step.node_id, mark)
        finally:
            super().evict_device_end(FULL)
        self._missing = False

    # -- trimming ----------------------------------------------------------------------

    def _trim(self, victim: Victim, mark: Mark) -> Victim:
        """Cut the victim so that only its tail goes: what memory is short of, or past the anchor.

        Returns the victim as it is then.
        """
        size = victim.end - victim.start
        shortfall = self.shortfall or 0
        kept = (size - max(shortfall, 1)) // self.page_size * self.page_size if self.trims else 0
        anchor = mark.anchor // self.page_size * self.page_size - victim.start
        if anchor < size:
            kept = max(kept, anchor)
        if kept > 0 and mark.tail is not None and len(mark.tail) >= size * _TOKEN_BYTES:
            tokens = np.frombuffer(mark.tail, dtype=np.int32)[-size:]
            victim = self.nodes.split(victim, tokens[:kept])
            size -= kept
        self.shortfall = max(0, shortfall - size)
        return victim

    # -- the rest ----------------------------------------------------------------------

    def _order(self, tag: Any) -> float:
        return self.scout.priority(tag, 0)

    def _root(self, tenant: int, session: int) -> int:
        return self.scout.root(tenant, session)

    def reset(self) -> None:
        super().reset()
        self.records.clear()
        if self.scout_calls is None:
            return
        self.buckets.clear()
        self._parked.clear()
        self._inserted = None
        self._missing = False
        self.scout_calls.flush()


def _config(params: Any) -> dict[str, Any]:
    return dict(params.eviction_policy_config or {})
