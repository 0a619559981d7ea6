"""Warm-up while the scheduler has nothing to do: anchors come back piece by piece.

Each piece is a request of its own. The rank that reads the sockets plans and sends; a piece goes
the way of all requests to the other ranks, and every rank executes it. It is sent only when nothing
waits or runs and no request has come while it was planned, so a call that comes next waits for one
piece at most.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sglang.srt.managers.io_struct import (
    AbortReq,
    BatchTokenizedEmbeddingReqInput,
    BatchTokenizedGenerateReqInput,
    TokenizedEmbeddingReqInput,
    TokenizedGenerateReqInput,
)

from radix_policy.warmup import Budget, PieceSize, WarmupPlan
from scout_sglang.dispatch import calls_of
from scout_sglang.faults import guarded
from scout_sglang.keep_list import KeepList
from scout_sglang.warmup_modes import why_not_now, why_off
from scout_sglang.warmup_request import RID, WarmupReq, piece_of, request
from scout_sglang.warmup_room import CacheRoom

logger = logging.getLogger(__name__)

CALLS = (
    TokenizedGenerateReqInput,
    TokenizedEmbeddingReqInput,
    BatchTokenizedGenerateReqInput,
    BatchTokenizedEmbeddingReqInput,
)
_NEVER = -1
MOST_PLANS = 64
"""Plans between two events of clients: a server that nobody calls comes to rest."""


class Warmup:
    """Warm-ups of one scheduler. Every rank has one; only the rank that reads sockets sends.

    ``clock``: seconds, for the budget and for the time that calls were delayed.
    """

    def __init__(self, scheduler: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.scheduler = scheduler
        calls = calls_of(scheduler.tree_cache)
        assert calls is not None
        self.calls = calls
        self.scout = calls.scout
        config = self.scout.config
        self.off = why_off(scheduler, config)
        self._remembers = config.warmup
        self.keep_list = KeepList(self.scout, scheduler.tokenizer, config.keep)
        self.budget = Budget(config.warmup_idle_share, config.warmup_per_minute)
        self.room = CacheRoom(scheduler.tree_cache)
        most = _largest_piece(scheduler, config.warmup_piece)
        self.piece = PieceSize(scheduler.page_size, most, config.warmup_piece_ms / 1000)
        self.scout.planner.longest = _longest(scheduler, most)
        self.sent = self.yielded = self.lost = self.plans = self.delayed = 0
        self.seconds = self.delay = 0.0
        self._clock = clock
        self._plan: WarmupPlan | None = None
        self._at = 0
        self._epoch = self._counted = _NEVER
        self._left = 0
        self._under_way: tuple[str, float, int] | None = None
        self._waiting = 0
        self._polled = 0.0
        self._held: list[Any] = []
        self._said: set[str] = set()

    # -- between two polls of the sockets ----------------------------------------------

    def next(self, received: list[Any]) -> list[Any]:
        """What has to run before ``received``: a piece if that is empty, an abort, or nothing."""
        first = []
        if self._under_way is not None:
            first = self._follow(received)
        if received or self._held or not self.wants():
            return first
        return [self._send()]

    def wants(self) -> bool:
        """Whether a piece would be sent now."""
        if self.off or self._under_way is not None:
            return False
        if self._resting:
            return False
        if not self.scheduler.is_fully_idle() or self._not_now():
            return False
        self._count_time()
        plan = self._current_plan()
        return plan is not None and self.budget.allows(self._stop(plan) - self._at)

    @property
    def _resting(self) -> bool:
        """Nothing has happened since the last plan came out empty."""
        return self._plan is None and self._left == 0 and self._epoch == self.scout.epoch

    def withdraw(self) -> None:
        """A request came while a piece was being prepared: it has not been sent after all."""
        self.sent -= 1
        self.yielded += 1
        self._under_way = self._plan = None

    def hold(self, received: list[Any]) -> list[Any]:
        """What of ``received`` to hand on now.

        A command that needs a scheduler at rest (a flush) must not fail for a piece under way: it
        waits the moment until that has ended, and with it what came beside it.
        """
        received, self._held = [*self._held, *received], []
        if self._under_way is None or all(isinstance(req, CALLS) for req in received):
            return received
        self._held = received
        return []

    @property
    def busy(self) -> bool:
        """Whether a piece is under way, or one would be sent now: no time to sleep."""
        return self._under_way is not None or bool(self._held) or self.wants()

    def _follow(self, received: list[Any]) -> list[Any]:
        """Where is the piece that was sent? If it could not be admitted, it is called back."""
        assert self._under_way is not None
        rid, since, stop = self._under_way
        now = self._clock()
        calls = sum(isinstance(req, CALLS) for req in received)
        self.delayed += calls
        self._waiting += calls
        if self._running(rid):
            self._polled = now
            if any(req.rid == rid for req in self.scheduler.waiting_queue):
                return [AbortReq(rid=rid)]
            return []
        self.delay += self._waiting * (now - max(since, self._polled))
        self._waiting = 0
        self._under_way = None
        self.seconds += now - since
        self.budget.spend(stop - self._at, now - since)
        if stop - self._at == self.piece.tokens:
            self.piece.took(now - since)
        self._landed(stop)
        return []

    def _running(self, rid: str) -> bool:
        """The piece has not ended, or SGLang's batches have not let go of it yet."""
        batches = (self.scheduler.last_batch, self.scheduler.running_batch)
        left = any(piece_of(req) for batch in batches if batch is not None for req in batch.reqs)
        return left or self.calls.is_piece(rid)

    def _landed(self, stop: int) -> None:
        plan = self._plan
        if plan is None:
            return
        if self.room.resident(plan.namespace, plan.prefix.tokens[:stop]) < stop:
            self.lost += 1
            self.scout.planner.settled(plan.whose, False, self.scout.clock)
            self._plan = None
        self._at = stop
        if stop >= plan.stop:
            self._plan = None

    def _send(self) -> Any:
        plan = self._plan
        assert plan is not None
        stop = self._stop(plan)
        most = int(plan.prefix.tokens[:stop].max())
        if most >= self.scheduler.model_config.vocab_size:
            self._plan, self._left = None, 0
            raise ValueError(f"a plan with a token id of {most}, beyond the vocabulary")
        self.sent += 1
        piece = plan.prefix._replace(tokens=plan.prefix.tokens[:stop])
        self._under_way = (f"{RID}{self.sent}", self._clock(), stop)
        self._polled = 0.0
        return request(piece, plan.namespace, self.sent)

    def _stop(self, plan: WarmupPlan) -> int:
        return min(self._at + self.piece.tokens, plan.stop)

    def _current_plan(self) -> WarmupPlan | None:
        """The plan under way, as long as nothing has happened; else a new one, if any."""
        epoch = self.scout.epoch
        if self._epoch != epoch:
            self._epoch, self._plan, self._left = epoch, None, MOST_PLANS
        if self._plan is None and self._left > 0:
            left, self._left = self._left - 1, 0  # should planning fail, it is not tried again
            self.scout.ledger.look(self._resident)
            plan = self._plan = self.scout.act(self.room)
            if plan is not None:
                self.plans += 1
                self._at, self._left = plan.start, left
        return self._plan

    def _resident(self, tenant: int, tokens: Any) -> int:
        known = self.scout.tenant(tenant)
        if known is None or known.namespace is None:
            return 0
        return self.room.resident(known.namespace, tokens)

    def _count_time(self) -> None:
        """Since the last count it was idle if no call has come or gone."""
        idle = self._counted == self.scout.epoch
        self._counted = self.scout.epoch
        self.budget.pass_time(self._clock(), idle)

    def _not_now(self) -> bool:
        reason = why_not_now(self.scheduler)
        if reason is not None and reason not in self._said:
            self._said.add(reason)
            logger.info("scout: warm-up rests while %s", reason)
        return reason is not None

    # -- for operators -----------------------------------------------------------------

    def set_keep(self, entries: Sequence[str]) -> None:
        """Replace the keep-list while serving; to be called on every rank at the same point.

        ``entries``: as in the configuration's ``keep``.

        Raises:
            ValueError: the list cannot be used; the old one stands.
        """
        self.keep_list.set(entries)

    def set_limit(self, name: str, value: Any) -> None:
        """Change a ``warmup...`` field or ``keep_share`` while serving, on every rank alike.

        Raises:
            ValueError: it is ``warmup``, to be switched on where it cannot be.
        """
        config = replace(self.scout.config, **{name: value})
        off = why_off(self.scheduler, config)
        if name == "warmup" and value and not self._remembers:
            off = "the server was started without it, and no anchors are remembered"
        if name == "warmup" and value and off:
            raise ValueError(f"warm-up cannot be switched on: {off}")
        self.scout.config, self.off = config, off
        self.scout.planner.limit(config)
        self.budget.limit(config.warmup_idle_share, config.warmup_per_minute)
        most = _largest_piece(self.scheduler, config.warmup_piece)
        self.piece.limit(most, config.warmup_piece_ms / 1000)
        self.scout.planner.longest = _longest(self.scheduler, most)
        self.keep_list.refit()
        self._plan, self._epoch = None, _NEVER  # plan anew, by these numbers

    def state(self) -> dict[str, float]:
        """Numbers alone. tokens_prefilled = tokens_used + tokens_wasted + tokens_resident.

        ``tokens_loaded`` came back from the host tier and were not prefilled.
        """
        ledger = self.scout.ledger
        ledger.look(self._resident)
        return {
            "on": int(self.off is None),
            "resting": int(bool(self.off or self._resting or why_not_now(self.scheduler))),
            "pieces_sent": self.sent,
            "pieces_yielded": self.yielded,
            "pieces_lost": self.lost,
            "plans": self.plans,
            "tokens_prefilled": ledger.sent,
            "tokens_loaded": self.calls.loaded,
            "tokens_used": ledger.used,
            "tokens_wasted": ledger.wasted,
            "tokens_resident": ledger.resident,
            "agents_backed_off": self.scout.planner.waiting,
            "anchors": len(self.scout.anchors),
            "anchor_tokens": self.scout.anchors.tokens,
            "prompt_tokens": self.scout.prompts.tokens,
            "kept": len(self.keep_list.kept),
            "seconds": round(self.seconds, 3),
            "foreground_delayed": self.delayed,
            "foreground_delay_ms": round(1000 * self.delay, 1),
        }


def _largest_piece(scheduler: Any, wanted: int) -> int:
    """Tokens of a piece: whole pages, and no more than one chunk."""
    page = scheduler.page_size
    chunk = scheduler.chunked_prefill_size
    most = wanted if chunk is None or chunk <= 0 else min(wanted, chunk)
    return max(page, most // page * page)


def _longest(scheduler: Any, piece: int) -> int:
    """Tokens of the longest piece that SGLang takes: what a prompt may have, and memory."""
    capacity = scheduler.tree_cache.token_to_kv_pool_allocator.size
    return max(0, min(scheduler.max_req_input_len - 1, capacity - piece))


# -- hooks -----------------------------------------------------------------------------


_warmup: Warmup | None = None
"""This process's; a rank is a process."""


def warmup_of(scheduler: Any) -> Warmup | None:
    """The warm-up of a scheduler, None where the policy is not ours."""
    return getattr(scheduler, "scout_warmup", None)


@guarded("warmup")
def _attach(scheduler: Any) -> None:
    global _warmup
    if calls_of(scheduler.tree_cache) is None:
        return
    _warmup = scheduler.scout_warmup = Warmup(scheduler)
    if _warmup.off:
        logger.info("scout: warm-up is off: %s", _warmup.off)


def on_receiver(result: Any, scheduler: Any) -> None:
    """AFTER Scheduler.init_request_receiver: the scheduler is about to be whole."""
    _attach(scheduler)


def on_pull(pull: Callable[..., Any], receiver: Any) -> Any:
    """AROUND SchedulerRequestReceiver._pull_raw_reqs: a piece, if nothing else has come."""
    received = pull(receiver)
    warmup = _warmup
    if warmup is None or received is None:
        return received
    first = _next(warmup, received)
    if first and isinstance(first[0], WarmupReq):
        # Planning took a moment: look once more before the piece is under way.
        received = pull(receiver)
        if received:
            warmup.withdraw()
            return received
    return [*first, *_hold(warmup, received)]


@guarded("warmup", fallback=lambda *_: [])
def _next(warmup: Warmup, received: list[Any]) -> list[Any]:
    return warmup.next(received)


@guarded("warmup", fallback=lambda _, received: received)
def _hold(warmup: Warmup, received: list[Any]) -> list[Any]:
    return warmup.hold(received)


def on_sleep(sleep: Callable[..., Any], scheduler: Any) -> Any:
    """AROUND Scheduler.maybe_sleep_on_idle: not while there is a piece to send."""
    return None if _wants(scheduler) else sleep(scheduler)


@guarded("warmup", fallback=False)
def _wants(scheduler: Any) -> bool:
    warmup = warmup_of(scheduler)
    return warmup is not None and warmup.busy
