"""A request's way into the policy: namespace, ids, arrival, end, abort.

The functions at the bottom are hooks (see ``plugin.HOOKS``). Each guards its own part and calls
SGLang's original exactly once, whatever happens in ours.
"""

from __future__ import annotations

import functools
import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from radix_policy.call import Call, Dispatch, Namespace, Tokens
from radix_policy.prefix_store import Prefix
from radix_policy.scout import Scout
from scout_sglang.counters import Counters
from scout_sglang.faults import FAULTS, guarded

if TYPE_CHECKING:
    from scout_sglang.shadow import Shadow
    from scout_sglang.upkeep import Upkeep

logger = logging.getLogger(__name__)
MOST_CALLS = 1 << 16
LABELS = {"agent", "session", "end_of_session"}
_NOT_A_CALL = "HEALTH_CHECK"
_NOT_TOKENS = (
    "multimodal_inputs",
    "input_embeds",
    "positional_embed_overrides",
    "token_type_ids",
    "session",
)
"""Fields of a request that change what its KV holds beside the token ids."""


class Underway(NamedTuple):
    """A call between arrival and end: what the policy made of it, its prompt's length.

    ``agent_named``: the client said which agent calls. ``tokens``: those of a warm-up that has
    not run yet.
    """

    dispatch: Dispatch
    prompt: int
    agent_named: bool = False
    tokens: Tokens | None = None


class Calls:
    """The calls under way, by request id, and their passage into :class:`Scout`.

    ``loaded``: tokens that warm-ups have brought back from a host tier. ``settle``: the tree core's
    to set, called before the calls under way change.

    At most ``MOST_CALLS`` are kept; should an end never be announced, the oldest is abandoned.
    """

    def __init__(self, scout: Scout) -> None:
        self.scout = scout
        self.counters = Counters()
        self.mode = "on"
        self.shadow: Shadow | None = None
        self.upkeep: Upkeep | None = None
        self.upkeep_due = 0.0
        self._by_rid: OrderedDict[str, Underway] = OrderedDict()
        self._admitted: set[str] = set()
        self._started: set[str] = set()
        self._pieces: dict[str, Underway] = {}
        self.loaded = 0
        self.settle: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        return len(self._by_rid)

    def get(self, rid: str) -> Underway | None:
        """The call under way with this request id, or None."""
        return self._by_rid.get(rid)

    def arrive(self, rid: str, call: Call) -> None:
        """The request enters the queue. A retracted one that queues again has arrived before."""
        if rid in self._by_rid:
            return
        self.settle()
        with self.counters.step("arrive"):
            dispatch = self.scout.observe(call)
        self._by_rid[rid] = Underway(dispatch, len(call.tokens), call.agent is not None)
        self.counters.arrived(dispatch.number)
        if call.end_of_session:
            self.counters.ended_by_label()
        if len(self._by_rid) > MOST_CALLS:
            self.abandon(next(iter(self._by_rid)))

    def warm(self, rid: str, prefix: Prefix) -> None:
        """A warm-up of ``prefix`` enters the queue: it marks nodes, and nothing is learned."""
        self.settle()
        tenant, agent, session, number, anchor, tokens = prefix
        number = number or self.scout.clock
        dispatch = Dispatch(tenant, session, agent, number, anchor, labelled=True)
        self._pieces[rid] = Underway(dispatch, len(tokens), tokens=tokens)

    def is_piece(self, rid: str) -> bool:
        """Whether this warm-up is queued or runs."""
        return rid in self._pieces

    def admit(self, rid: str) -> Underway | None:
        """The request is being matched against the tree; returns the call, None if unknown."""
        if rid in self._pieces:
            return self._pieces[rid]
        underway = self._by_rid.get(rid)
        if underway is not None and rid not in self._admitted:
            self._admitted.add(rid)
            self.scout.admit(underway.dispatch)
        return underway

    @guarded("start")
    def start(self, rid: str, hit: int, req: Any = None) -> Underway | None:
        """The request's prefill has run, ``hit`` of its tokens cached; returns the call.

        ``req``: SGLang's request, for a shadow to follow.
        """
        if (piece := self._pieces.get(rid)) is not None:
            return self._warmed(rid, piece, hit)
        underway = self._by_rid.get(rid)
        if underway is not None and rid not in self._started:
            self._started.add(rid)
            call, would_hit = underway.dispatch, self._follow(req, underway, hit)
            lru_hit = self._learn_start(underway, hit) if would_hit is None else hit
            agent = (call.tenant, call.agent)
            self.counters.served(agent, underway.prompt, hit, lru_hit, would_hit)
            self.counters.named(call.labelled, underway.agent_named)
        return underway

    def _learn_start(self, underway: Underway, hit: int) -> int:
        """Tell the policy; returns what LRU is estimated to have hit, 0 without a guard."""
        guard = self.scout.guard
        before = 0 if guard is None else guard.shadow_hits
        with self.counters.step("start"):
            self.scout.start(underway.dispatch, underway.prompt, hit)
        return 0 if guard is None else guard.shadow_hits - before

    def finish(self, rid: str, tokens: Tokens, cached: int) -> None:
        """The request ended well with ``tokens`` (prompt and output), ``cached`` of them hit."""
        self.settle()
        underway = self._by_rid.get(rid)
        if underway is not None:
            new_tokens = self._unfollow(rid, tokens[underway.prompt :])
            self._pop(rid)
            if new_tokens is None:
                new_tokens = max(0, len(tokens) - cached)
            with self.counters.step("finish"):
                self.scout.finish(underway.dispatch, tokens, underway.prompt, new_tokens)

    def abandon(self, rid: str) -> None:
        """The request is gone without an end to learn from."""
        self.settle()
        underway = self._pop(rid)
        if underway is not None:
            self._unfollow(rid, None)
            self.scout.abandon(underway.dispatch)

    def _warmed(self, rid: str, piece: Underway, hit: int) -> Underway:
        if piece.tokens is not None:
            self.scout.warmed(piece.dispatch, piece.tokens, hit)
            self._pieces[rid] = piece._replace(tokens=None)
        return piece

    @guarded("flush")
    def flush(self) -> None:
        """The cache was emptied."""
        self.scout.flush()
        if self.shadow is not None:
            self.shadow.clear()

    # -- the shadow --------------------------------------------------------------------

    def _follow(self, req: Any, underway: Underway, hit: int) -> int | None:
        if self.shadow is None:
            return None
        try:
            with self.counters.step("shadow"):
                return self.shadow.begin(req, underway, hit)
        except Exception:
            self._lose_shadow()
            return None

    def _unfollow(self, rid: str, output: Tokens | None) -> int | None:
        if self.shadow is None:
            return None
        try:
            with self.counters.step("shadow"):
                return self.shadow.end(rid, output)
        except Exception:
            self._lose_shadow()
            return None

    def _lose_shadow(self) -> None:
        """A half-done step leaves books that nothing can be built on: no estimate from now on."""
        FAULTS.record("shadow")
        self.shadow = None

    def _pop(self, rid: str) -> Underway | None:
        self._pieces.pop(rid, None)
        self._admitted.discard(rid)
        self._started.discard(rid)
        return self._by_rid.pop(rid, None)


def namespace_of(req: Any) -> Namespace:
    """The tenant boundary of a request: what keeps its prefix from being shared."""
    return (req.extra_key, req.cache_salt, req.lora_id)


def call_of(req: Any) -> Call:
    """The policy's view of an SGLang request, ids included where the client sent them.

    ``custom_params: {"scout": {"agent", "session", "end_of_session"}}`` in the sampling
    parameters is explicit; ``session_id`` names the session; a routing key is evidence only.
    """
    label = (req.sampling_params.custom_params or {}).get("scout") or {}
    if not label.keys() <= LABELS:
        _complain_of_labels()
    session = label.get("session") or req.session_id
    agent = label.get("agent")
    return Call(
        tokens=_tokens(req.origin_input_ids),
        namespace=namespace_of(req),
        agent=None if agent is None else str(agent),
        session=None if session is None else str(session),
        routing_key=req.routing_key,
        end_of_session=bool(label.get("end_of_session", False)),
        plain=all(getattr(req, name, None) is None for name in _NOT_TOKENS),
    )


@functools.cache
def _complain_of_labels() -> None:
    """Once for all: the name comes from a client, and a request is no place to fail."""
    logger.warning(
        "scout: a request has custom_params.scout with an unknown field, which is ignored; "
        "accepted: %s",
        ", ".join(sorted(LABELS)),
    )


def _tokens(*parts: Any) -> Tokens:
    ids = [np.asarray(part, dtype=np.int32) for part in parts]
    return ids[0] if len(ids) == 1 else np.concatenate(ids)


def calls_of(tree_cache: Any) -> Calls | None:
    """The calls table of a cache that runs one of our policies, else None."""
    return getattr(getattr(tree_cache, "tree_core", None), "scout_calls", None)


@guarded("arrive")
def _arrive(scheduler: Any, req: Any) -> None:
    calls = calls_of(scheduler.tree_cache)
    if calls is None:
        return
    if (piece := getattr(req, "scout_piece", None)) is not None:
        tokens = _tokens(req.origin_input_ids)
        calls.warm(req.rid, Prefix._make((*piece, tokens)))
    elif not req.rid.startswith(_NOT_A_CALL):
        calls.arrive(req.rid, call_of(req))
        if (warmup := getattr(scheduler, "scout_warmup", None)) is not None:
            warmup.keep_list.refresh()


@guarded("abandon")
def _abandon(scheduler: Any, req: Any) -> None:
    calls = calls_of(scheduler.tree_cache)
    if calls is not None:
        calls.abandon(req.rid)


@guarded("finish")
def _finish(cache: Any, req: Any) -> None:
    from sglang.srt.managers.schedule_batch import FINISH_ABORT

    calls = calls_of(cache)
    if calls is None or not req.finished():
        return
    if calls.is_piece(req.rid):
        calls.loaded += req.cached_tokens_host
        calls.abandon(req.rid)
        return
    if isinstance(req.finished_reason, FINISH_ABORT):
        calls.abandon(req.rid)
        return
    calls.finish(req.rid, _tokens(req.origin_input_ids, req.output_ids), req.cached_tokens)


def on_queue(queue: Callable[..., Any], scheduler: Any, req: Any, *args: Any, **kw: Any) -> Any:
    """AROUND Scheduler._add_request_to_queue: a call arrives."""
    _arrive(scheduler, req)
    return queue(scheduler, req, *args, **kw)


def on_queue_abort(release: Callable[..., Any], scheduler: Any, req: Any) -> Any:
    """AROUND Scheduler._release_aborted_request: it leaves the queue without having run."""
    _abandon(scheduler, req)
    return release(scheduler, req)


def on_release(release: Callable[..., Any], cache: Any, req: Any, **kwargs: Any) -> Any:
    """AROUND UnifiedRadixCache.on_release: its memory is given back; it may be done."""
    result = release(cache, req, **kwargs)
    _finish(cache, req)
    return result
