"""SGLang's Rust tree core that keeps a mark wherever a call's match or insert ends.

Rust keeps the tree. Which calls have used a node, and in which order leaves were used last, is
kept here: a :class:`Mark` by node id, and those of leaves in :class:`Buckets`.

A match only notes where it ended; what follows from it is worked out before anything that could
depend on it: an insert, an eviction, another call's arrival or end, a look at the marks. SGLang
matches its whole waiting queue at every step, and waits for each match.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams, MatchResult
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.rust_tree_core.adapter import RustUnifiedTreeCore

from radix_policy.buckets import Buckets
from radix_policy.marks import Mark
from radix_policy.scout import Scout
from radix_policy.tags import Tag
from scout_sglang.dispatch import Calls, Underway
from scout_sglang.faults import FAULTS
from scout_sglang.tokens import packed
from scout_sglang.tree_core_python import ScoutStrategy

TOKEN_BYTES = 4
_MOST_ENDED = 1024
_Ended = tuple[str | None, int, int]
"""Of a match: who was matched, the node where it ended, at which depth."""
_Inserted = tuple[int, int, int, int]
"""A leaf that a call has made: its id, its depths, the call's number."""


class MarkedRustCore(RustUnifiedTreeCore):
    """Marks and candidates; who is evicted is for the subclass to say.

    ``current``: the call that inserts belong to, if it is known.
    ``scout_calls``: the calls under way; None while SGLang's own constructor runs.
    """

    def __init__(self, params: Any, components: Any) -> None:
        self.scout_calls: Calls | None = None
        self.current: Underway | None = None
        self._records: dict[int, Mark] = {}
        self._ended: list[_Ended] = []
        super().__init__(replace(params, eviction_policy="lru", eviction_policy_config=None))
        config = dict(params.eviction_policy_config or {})
        self.eviction_strategy = ScoutStrategy(params.eviction_policy.lower(), **config)
        capacity = params.token_to_kv_pool_allocator.size
        self.join(Calls(Scout(self.eviction_strategy.config, capacity, params.page_size)))
        self._buckets = Buckets(self._records, self._order, self._foresee)
        self._clock = 0
        self._parked: set[int] = set()
        self._inserted: _Inserted | None = None
        self._insert_key: RadixKey | None = None
        self._missing = False

    def join(self, calls: Any) -> None:
        """Take calls from this table, and decide by its policy."""
        self.scout_calls = calls
        self.scout = self.eviction_strategy.scout = calls.scout
        self._waits = isinstance(calls, Calls)
        if isinstance(calls, Calls):
            calls.settle = self.settle

    @property
    def records(self) -> dict[int, Mark]:
        """Marks by node id."""
        self.settle()
        return self._records

    @property
    def buckets(self) -> Buckets:
        """The leaves among them."""
        self.settle()
        return self._buckets

    def _order(self, tag: Tag) -> float:
        return self.scout.priority(tag)

    def _foresee(self, tags: Sequence[Tag]) -> None:
        self.scout.foresee(tags)

    # -- marks where calls end ---------------------------------------------------------

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        result = super().match_prefix(params)
        req, end, ended = params.req, result.device_prefix_len, self._ended
        if req is not None or end:
            ended.append((None if req is None else req.rid, result.last_device_node, end))
            if self.current is not None or not self._waits or len(ended) >= _MOST_ENDED:
                self.settle()
        return result

    def settle(self) -> None:
        """Work out what the latest matches mean for marks and candidates."""
        while self._ended:
            ended, self._ended = self._ended, []
            for rid, node, end in ended:
                try:
                    self._matched(rid, node, end)
                except Exception:
                    self._lost("match")

    def _matched(self, rid: str | None, node: int, end: int) -> None:
        calls = self.scout_calls
        assert calls is not None
        underway = None if rid is None else calls.admit(rid)
        if not end:
            return
        mark = self._records.get(node)
        if underway is not None:
            if mark is not None:
                calls.counters.hit(mark.tag, underway.dispatch.number)
            self._touch(node, end, underway)
        elif mark is not None:
            self._clock += 1
            mark.last = self._clock

    def begin_insert(self, params: Any) -> Any:
        self._insert_key = params.key
        if self._ended:
            self.settle()
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
            end = len(key) // self._page_size * self._page_size
            if result.prefix_len < end:
                self._added(result.last_device_node, result.prefix_len, end, key)
            elif end and self.current is not None:
                self._touch(result.last_device_node, end, self.current)
        except Exception:
            self._lost("insert")

    def _added(self, node: int, start: int, end: int, key: RadixKey) -> None:
        """An insert has made a new leaf."""
        self._clock += 1
        mark = self._records[node] = Mark(self._clock)
        mark.tail = packed(key.token_ids, start, end)
        if (current := self.current) is not None:
            prompt = current.prompt // self._page_size * self._page_size
            mark.claim(current.dispatch, start, end, prompt)
            self._inserted = (node, start, end, current.dispatch.number)
        self._buckets.put(node, mark)

    def _touch(self, node: int, end: int, underway: Underway) -> None:
        """``underway`` ends at ``node``, which it has not made."""
        self._clock += 1
        mark = self._records.get(node)
        if mark is None:
            # Rust has split a node, whose lower half keeps its id: this is the upper one.
            mark = self._records[node] = Mark(self._clock)
            self._cut_off(mark, end, underway)
        mark.last = self._clock
        call, tag = underway.dispatch, mark.tag
        if tag is None:
            prompt = underway.prompt // self._page_size * self._page_size
            mark.claim(call, end - 1, end, prompt)
        else:
            owner = tag.session
            self.scout.touch(tag, call, end)
            mark.touched(call, owner)
        if mark.bucket is not None:
            self._buckets.put(node, mark)

    def _cut_off(self, upper: Mark, end: int, underway: Underway) -> None:
        """A call that inserts prompt and output at once cuts its new leaf where the prompt ends."""
        if self.current is None or self._inserted is None:
            return
        (made, start, stop, number), call = self._inserted, underway.dispatch
        lower = self._records.get(made)
        if lower is None or lower.tail is None:
            return
        if number == call.number and start < end < stop:
            cut = (end - start) * TOKEN_BYTES
            upper.tail, lower.tail = lower.tail[:cut], lower.tail[cut:]
            tag, prompt = lower.tag, lower.prompt
            if tag is not None and not tag.shared and tag.number == call.number and end >= prompt:
                lower.claim(call, end, stop, prompt)
                if lower.bucket is not None:
                    self._buckets.put(made, lower)

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
        mark = self._records.get(node)
        if mark is not None:
            try:
                self._buckets.put(node, mark)
            except Exception:
                self._lost("insert")

    # -- the rest ----------------------------------------------------------------------

    def reset(self) -> None:
        self.settle()
        super().reset()
        self._records.clear()
        if self.scout_calls is None:
            return
        self._buckets.clear()
        self._parked.clear()
        self._inserted = None
        self._missing = False
        self.scout_calls.flush()
