"""SGLang's Python tree core with the policy's tags on its nodes and the policy's victims.

Nodes are tagged where calls pass (match), create (insert) and cut (split) them; an eviction walk
orders leaves by ``Scout.priority``, then last access, then id: a total order, equal on all ranks.
When our code fails during a walk, that walk goes by last access alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams, MatchResult
from sglang.srt.mem_cache.evict_policy import EvictionStrategy
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_cache.unified_tree_core import UnifiedTreeCore, UnifiedTreeNode

from radix_policy import tags
from radix_policy.config import parse_config
from radix_policy.scout import Scout
from scout_sglang.dispatch import Calls, Underway
from scout_sglang.faults import FAULTS
from scout_sglang.survey import Survey

BACKEND = "scout-python"
Order = tuple[float, float, int]


@dataclass(frozen=True)
class Blend:
    """(1 - beta) rank(V) + beta rank(last use), ranks among the leaves of one walk."""

    beta: float
    orders: Any
    recencies: Any

    def rank(self, order: float, recency: float) -> float:
        """The blended order of a leaf; comparable within the walk only."""
        by_value = np.searchsorted(self.orders, order) / len(self.orders)
        by_recency = np.searchsorted(self.recencies, recency) / len(self.recencies)
        return float((1 - self.beta) * by_value + self.beta * by_recency)


class ScoutStrategy(EvictionStrategy):
    """What SGLang asks for a leaf's priority; the lowest is evicted first."""

    def __init__(self, policy: str, **config: Any) -> None:
        self.policy = policy
        self.config = parse_config(policy, config)
        self.scout: Scout | None = None
        self.lru = False
        self.by_recency = False
        self._blend: Blend | None = None

    @property
    def blends(self) -> bool:
        """Whether this walk goes by value and recency together."""
        return self._blend is not None

    def begin_walk(self, leaves: Iterable[UnifiedTreeNode]) -> None:
        """Fix how much recency counts in this walk (see ``radix_policy.guard``)."""
        self.by_recency = False
        self._blend = None
        try:
            beta = self.scout.guard.beta if self.scout is not None and self.scout.guard else 0.0
            self.by_recency = self.lru or beta >= 1
            if 0 < beta < 1 and not self.lru:
                pairs = [(self._order(leaf), leaf.last_access_time) for leaf in leaves]
                orders, recencies = zip(*pairs, strict=True) if pairs else ((), ())
                self._blend = Blend(beta, np.sort(orders), np.sort(recencies))
        except Exception:
            FAULTS.record("walk")
            self.by_recency = True

    def get_priority(self, node: UnifiedTreeNode) -> Order:
        """(policy's order, last access, id); the policy's order is 0 while by recency alone."""
        order = 0.0
        if not self.by_recency and self.scout is not None:
            order = self._order(node)
            if self._blend is not None:
                order = self._blend.rank(order, node.last_access_time)
        return (order, node.last_access_time, node.id)

    def _order(self, node: UnifiedTreeNode) -> float:
        tag = getattr(node, "scout_tag", None)
        if tag is None:
            return float("-inf")
        try:
            assert self.scout is not None
            return self.scout.priority(tag, len(node.key))
        except Exception:
            FAULTS.record("score")
            self.by_recency = True
            return 0.0


class ScoutTreeCore(UnifiedTreeCore):
    """The reference core: every leaf is scored on every walk, O(leaves log leaves)."""

    BACKEND = BACKEND

    def __init__(self, params: Any, components: Any) -> None:
        self.scout_calls: Calls | None = None
        self.current: Underway | None = None
        self.shortfall: int | None = None
        self._requested = 0
        super().__init__(params, components)
        assert isinstance(self.eviction_strategy, ScoutStrategy)
        self.trims = self.eviction_strategy.config.trim
        capacity = params.token_to_kv_pool_allocator.size
        scout = Scout(self.eviction_strategy.config, capacity, params.page_size)
        self.survey = Survey(self, lambda: len(self.evictable_device_leaves), self._tagged)
        self.join(Calls(scout))

    def join(self, calls: Any) -> None:
        """Take calls from this table, and decide by its policy."""
        self.scout_calls = calls
        self.scout = self.eviction_strategy.scout = calls.scout

    # -- tags --------------------------------------------------------------------------

    def match_prefix(self, params: MatchPrefixParams) -> MatchResult:
        result = super().match_prefix(params)
        if params.req is not None and self.scout_calls is not None:
            try:
                underway = self.scout_calls.admit(params.req.rid)
                if underway is not None:
                    last = self.node_by_id(result.best_match_node)
                    tag = getattr(last, "scout_tag", None)
                    self.scout_calls.counters.hit(tag, underway.dispatch.number)
                    self._touch_path(result.best_match_node, underway)
            except Exception:
                FAULTS.record("match")
        return result

    def _touch_path(self, node_id: int, underway: Underway) -> None:
        node = self.node_by_id(node_id)
        while node is not self.root_node:
            self._touch_tag(node, underway)
            node = node.parent

    def _touch_tag(self, node: UnifiedTreeNode, underway: Underway) -> None:
        tag = getattr(node, "scout_tag", None)
        if tag is None:
            start = node.scout_end - len(node.key)
            node.scout_tag = tags.born(underway.dispatch, start, node.scout_end, underway.prompt)
        else:
            assert self.scout_calls is not None
            self.scout_calls.scout.touch(tag, underway.dispatch, node.scout_end)

    def _finish_insert_walk_node(self, state: Any, node: UnifiedTreeNode, prefix_len: int) -> None:
        super()._finish_insert_walk_node(state, node, prefix_len)
        if self.current is not None:
            try:
                self._touch_tag(node, self.current)
            except Exception:
                FAULTS.record("insert")

    def _add_new_node(self, parent: UnifiedTreeNode, key: Any, *args: Any, **kwargs: Any) -> Any:
        node = super()._add_new_node(parent, key, *args, **kwargs)
        start = getattr(parent, "scout_end", 0)
        node.scout_end = start + len(key)
        if self.current is not None:
            try:
                self._mark_new(node, start, self.current)
            except Exception:
                FAULTS.record("insert")
        return node

    def _mark_new(self, node: UnifiedTreeNode, start: int, underway: Underway) -> None:
        """Tag a new node, its part within the agent's anchor apart from the rest."""
        call = underway.dispatch
        prompt = underway.prompt // self.page_size * self.page_size
        anchor = call.anchor // self.page_size * self.page_size
        if start < anchor < node.scout_end and not self.eviction_strategy.lru:
            upper, _ = self._split_node(node.key, node, anchor - start)
            upper.scout_tag = tags.born(call, start, anchor, prompt)
            start = anchor
        node.scout_tag = tags.born(call, start, node.scout_end, prompt)

    def _split_node(self, key: Any, child: UnifiedTreeNode, split_len: int) -> Any:
        last_access = child.last_access_time
        upper, action = super()._split_node(key, child, split_len)
        upper.scout_end = child.scout_end - len(child.key)
        if not self.eviction_strategy.lru:
            upper.last_access_time = last_access
        tag = getattr(child, "scout_tag", None)
        if tag is not None:
            try:
                upper.scout_tag = tags.split(tag)
                self._name_output(child, tag, upper.scout_end)
            except Exception:
                FAULTS.record("split")
        return upper, action

    def _name_output(self, child: UnifiedTreeNode, tag: tags.Tag, start: int) -> None:
        """The lower half is the call's output if the split is where its prompt ends."""
        call = self.current
        if call is not None and tag.number == call.dispatch.number and not tag.shared:
            prompt = call.prompt // self.page_size * self.page_size
            if start >= prompt and tag.kind == tags.NodeKind.PROMPT:
                tag.kind = tags.NodeKind.OUTPUT

    # -- victims -----------------------------------------------------------------------

    def evict_device_start(self, component_type: ComponentType, request_cnt: int) -> None:
        strategy = self.eviction_strategy
        strategy.begin_walk(self.evictable_device_leaves)
        by_recency = strategy.by_recency
        super().evict_device_start(component_type, request_cnt)
        if strategy.by_recency and not by_recency:
            self._restart_walk(component_type, request_cnt)
        self._requested = request_cnt
        if self.shortfall is None:
            self.shortfall = request_cnt

    def _restart_walk(self, component_type: ComponentType, request_cnt: int) -> None:
        """A fault half-way has mixed two orders in one heap."""
        super().evict_device_end(component_type)
        super().evict_device_start(component_type, request_cnt)

    def evict_device_next_node(self, component_type: ComponentType, tracker: Any) -> Any:
        by_recency = self.eviction_strategy.by_recency
        result = super().evict_device_next_node(component_type, tracker)
        if self.eviction_strategy.by_recency and not by_recency:
            self._restart_walk(component_type, self._requested)
            result = super().evict_device_next_node(component_type, tracker)
        if component_type is ComponentType.FULL and result.node_id is not None:
            try:
                self._trim(self.node_by_id(result.node_id))
            except Exception:
                FAULTS.record("trim")
        return result

    def evict_device_leaf(self, node_id: int, is_write_back: bool) -> Any:
        try:
            self._count_eviction(self.node_by_id(node_id))
        except Exception:
            FAULTS.record("evict")
        return super().evict_device_leaf(node_id, is_write_back)

    def _count_eviction(self, node: UnifiedTreeNode) -> None:
        if self.scout_calls is None:
            return
        strategy, tag = self.eviction_strategy, getattr(node, "scout_tag", None)
        reason = "recency" if strategy.by_recency else "blend" if strategy.blends else "value"
        self.scout_calls.counters.evicted([(tag, len(node.key), None)], reason)

    def evict_device_end(self, component_type: ComponentType) -> None:
        super().evict_device_end(component_type)
        self.shortfall = None

    def _trim(self, victim: UnifiedTreeNode) -> None:
        """Cut the victim so that only its tail is freed, if it is larger than the shortfall."""
        size = len(victim.key)
        shortfall = self.shortfall or 0
        kept = (size - max(shortfall, 1)) // self.page_size * self.page_size
        if kept > 0 and self._may_trim():
            self._split_node(victim.key, victim, kept)
            size -= kept
        self.shortfall = max(0, shortfall - size)

    def _may_trim(self) -> bool:
        plain = not self.enable_hicache and not self.is_eagle
        return self.trims and plain and not self.eviction_strategy.by_recency

    def _tagged(self) -> Iterator[tuple[Any, list[tuple[int, int]]]]:
        """Of each tagged node its tag, and its id and tokens."""
        waiting = list(self.root_node.children.values())
        while waiting:
            node = waiting.pop()
            waiting += node.children.values()
            tag = getattr(node, "scout_tag", None)
            if tag is not None:
                yield tag, [(node.id, len(node.key))]

    def reset(self) -> None:
        super().reset()
        if self.scout_calls is not None:
            self.scout_calls.flush()
