"""Idle moments in the lab, and the warm-ups that a server would make use of them for.

After a share of the calls the scheduler is taken to be idle, drawn once for all policies. The
planner, the room, the marks and the books are those of the live server; only the prefill is played.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from radix_policy.warmup import Budget
from scout_sglang.replay.request import LabRequest
from scout_sglang.replay.timing import Job
from scout_sglang.warmup_room import CacheRoom


def is_idle(seed: int, call: int, share: float) -> bool:
    """Whether nothing waits or runs after call number ``call`` has ended."""
    return share > 0 and float(np.random.default_rng((seed, 5, call)).random()) < share


class LabWarmup:
    """Warm-ups for one policy of ours. Time is the arrival of the call that has just ended."""

    def __init__(self, policy: Any, share: float, seed: int) -> None:
        self.policy = policy
        self.share = share
        self.seed = seed
        self.scout = policy.calls.scout
        self.room = CacheRoom(policy.cache)
        self.budget = Budget(1.0, self.scout.config.warmup_per_minute)
        self.piece = max(1, self.scout.config.warmup_piece // policy.page_size) * policy.page_size
        self.scout.planner.longest = policy.cache.req_to_token_pool.max_context_len
        self.pieces = 0

    def after(self, job: Job) -> None:
        """The call has ended: if the scheduler is idle, warm up while anything is worth it."""
        if not is_idle(self.seed, job.number, self.share):
            return
        self.budget.pass_time(job.arrival, True)
        while self._warm():
            pass

    def _warm(self) -> bool:
        """One plan, piece by piece; whether all of it was done."""
        scout = self.scout
        scout.ledger.look(self._resident)
        plan = scout.act(self.room)
        if plan is None:
            return False
        for start in range(plan.start, plan.stop, self.piece):
            stop = min(start + self.piece, plan.stop)
            if not self.budget.allows(stop - start):
                return False
            self.pieces += 1
            rid = f"warmup-{self.pieces}"
            piece = plan.prefix._replace(tokens=plan.prefix.tokens[:stop])
            req = LabRequest(rid, piece.tokens, *plan.namespace[:2])
            self.policy.calls.warm(rid, piece)
            if self.policy.admit(req, 0) is None:
                self.policy.calls.abandon(rid)
                return False
            req.finished_reason = "length"
            self.policy.release(req)
            self.budget.spend(stop - start, 0.0)
        return True

    def _resident(self, tenant: int, tokens: Any) -> int:
        known = self.scout.tenant(tenant)
        return 0 if known is None else self.room.resident(known.namespace, tokens)
