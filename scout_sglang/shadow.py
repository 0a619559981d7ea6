"""Shadow mode: what the policy would have hit while the cache is served by lru.

A second cache of SGLang's own classes, without KV behind it, runs under the policy beside the real
one. Each served call is matched, given slots and inserted there as well, and evicts there what the
policy would have evicted. The policy learns once, and by what happens in the shadow: guard and
horizon see the hits that it would have had.

Every rank runs its shadow on the same calls in the same order: what is learned stays alike on all
ranks, so that switching on cannot part them.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
from sglang.srt.mem_cache.common import evict_from_tree_cache
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from radix_policy import report
from radix_policy.call import Tokens
from scout_sglang.counters import Counters, Served
from scout_sglang.faults import FAULTS
from scout_sglang.replay.policies.radix import RadixPolicy
from scout_sglang.replay.pools import make_cache
from scout_sglang.replay.request import LabRequest

logger = logging.getLogger(__name__)

MOST_RUNNING = 1024
MOST_SLOTS = 1 << 24
"""Calls that the shadow follows at a time, and their longest lengths together, 4 bytes a token;
those beyond are served and not followed."""
being_cast = False
"""A cache that is built now is a shadow's."""
_ALL = 1 << 32
_MIX = 0x9E3779B97F4A7C15
_BALLAST_EVERY = 64


class Followed(NamedTuple):
    """A running call: the real request, its double in the shadow, what the policy made of it."""

    req: Any
    double: LabRequest
    underway: Any


class Shadow:
    """The shadow of one real cache, and the calls table of its tree core.

    ``sample``: share of sessions followed, in a cache that is smaller by as much, the agents'
    anchors excepted, which all sessions share. ``fair``: the real cache is as empty as the shadow;
    if it is not, counting begins when the shadow has filled.
    """

    mode = "on"

    def __init__(self, real: Any, scout: Any, sample: float, fair: bool) -> None:
        strategy = real.tree_core.eviction_strategy
        capacity = real.token_to_kv_pool_allocator.size
        longest = min(real.req_to_token_pool.req_to_token.shape[1], capacity)
        cache = make_cache(
            policy=strategy.policy,
            policy_config={**asdict(scout.config), "mode": "on"},
            capacity=capacity,
            page_size=real.page_size,
            max_tokens=longest,
            max_running=max(16, min(MOST_RUNNING, MOST_SLOTS // longest)),
            core=None,
        )
        self.scout = scout
        self.sample = sample
        self.counting = fair
        self.followed = Served()
        self.lru_hit = 0
        self.counters = Counters()
        self._steps = RadixPolicy(cache)
        self._running: dict[str, Followed] = {}
        self._held = self._steps.allocator.alloc(0)
        self._ballast = 0
        self._until_ballast = 0
        cache.tree_core.join(self)

    # -- what the served calls do ------------------------------------------------------

    def begin(self, req: Any, underway: Any, hit: int) -> int | None:
        """A served call's prefill has run, ``hit`` tokens cached; what the shadow hits, or None."""
        if not self._follows(underway.dispatch):
            return None
        self._hold()
        double = LabRequest(
            req.rid, np.asarray(req.origin_input_ids, np.int32), req.extra_key, req.cache_salt
        )
        double.lora_id = req.lora_id
        self._running[req.rid] = Followed(req, double, underway)
        would_hit = self._steps.admit(double, 0)
        if would_hit is None:
            del self._running[req.rid]
            return None
        self.counting |= self._steps.evicted_tokens > 0
        if self.counting:
            self.followed.add(underway.prompt, would_hit)
            self.lru_hit += hit
        return would_hit

    def end(self, rid: str, output: Tokens | None) -> int | None:
        """A call is done with ``output``, None if it was aborted.

        Returns how many of its tokens the shadow had to compute, None if it is not followed.
        """
        known = self._running.get(rid)
        if known is None:
            return None
        self._hold(but=rid)
        steps, double = self._steps, known.double
        room = steps.allocator.available_size() + steps.cache.evictable_size() - steps.page_size
        # The last token's KV is never computed.
        decoded = 0 if output is None else min(max(len(output) - 1, 0), max(room, 0))
        if decoded:
            steps.decode(double, decoded)
        double.finish(np.zeros(0, np.int32) if output is None else output[: decoded + 1])
        steps.release(double)
        self._running.pop(rid, None)
        return len(double.origin_input_ids) + decoded - double.cached_tokens

    def clear(self) -> None:
        """The real cache was emptied: both are equally empty now."""
        self._running.clear()
        cache = self._steps.cache
        cache.reset()
        cache.req_to_token_pool.clear()
        self._steps.allocator.clear()
        self._held = self._held[:0]
        self.counting = True

    def state(self) -> dict[str, Any]:
        """What was followed, in tokens of prompts; ``saved_share`` of those that lru recomputed."""
        saved = self.followed.hit - self.lru_hit
        recomputed = self.followed.prompt - self.lru_hit
        return {
            "policy": self._steps.cache.tree_core.eviction_strategy.policy,
            "sample": self.sample,
            "counting": self.counting,
            "calls": self.followed.calls,
            "prompt_tokens": self.followed.prompt,
            "hit_tokens": self.followed.hit,
            "lru_hit_tokens": self.lru_hit,
            "saved_tokens": saved,
            "saved_share": round(saved / recomputed, 4) if recomputed else 0.0,
        }

    # -- the calls table of the shadow's core ------------------------------------------

    def get(self, rid: str) -> Any:
        """The call behind a double, None if there is none."""
        known = self._running.get(rid)
        return None if known is None else known.underway

    admit = get

    def is_piece(self, rid: str) -> bool:
        """No warm-up runs in a shadow."""
        return False

    def start(self, rid: str, hit: int, req: Any = None) -> Any:
        """The double has hit ``hit`` tokens: that is what the policy learns."""
        underway = self.get(rid)
        if underway is not None:
            self.scout.start(underway.dispatch, underway.prompt, hit)
        return underway

    def finish(self, rid: str, tokens: Tokens, cached: int) -> None:
        """The policy hears of the end from the real call."""

    def flush(self) -> None:
        """The policy hears of it from the real cache."""

    # -- memory that is not in the tree ------------------------------------------------

    def _follows(self, call: Any) -> bool:
        if self.sample >= 1:
            return True
        mixed = (call.session * 2 + 1) * _MIX % (1 << 64) >> 32
        return mixed < self.sample * _ALL

    def _hold(self, but: str | None = None) -> None:
        """Keep slots for what running calls have generated, and for what is not followed."""
        generated = sum(
            max(len(known.req.output_ids) - 1, 0)
            for rid, known in self._running.items()
            if rid != but
        )
        page = self._steps.page_size
        wanted = -(-(generated + self._unfollowed()) // page) * page
        missing = wanted - len(self._held)
        if missing < 0:
            self._steps.allocator.free(self._held[wanted:])
            self._held = self._held[:wanted]
        elif missing:
            evict_from_tree_cache(self._steps.cache, missing)
            more = self._steps.allocator.alloc(missing)
            if more is not None:
                self._held = _joined(self._held, more)

    def _unfollowed(self) -> int:
        """Slots that the sessions which are not followed would fill."""
        if self.sample >= 1:
            return 0
        if self._until_ballast == 0:
            self._until_ballast = _BALLAST_EVERY
            anchors = sum(known.anchor for known in report.agents(self.scout).values())
            capacity = self._steps.capacity
            rest = capacity - min(anchors, capacity // 2)
            self._ballast = int((1 - self.sample) * rest)
            if self.scout.guard is not None:
                self.scout.guard.follow(capacity - self._ballast)
        self._until_ballast -= 1
        return self._ballast


def _joined(one: Any, other: Any) -> Any:
    import torch

    return torch.cat([one, other])


def unsupported(cache: Any) -> str | None:
    """Why no estimate can be made for this cache, or None."""
    core = cache.tree_core
    if tuple(cache.tree_components) != (ComponentType.FULL,):
        return "the cache has components beside full attention"
    if core.is_eagle:
        return "the tree's keys are pairs of tokens"
    if core.enable_hicache or core.enable_external_cache_linker:
        return "a second tier takes part in eviction"
    return None


def cast(real: Any, calls: Any, fair: bool) -> Shadow | None:
    """The shadow of a cache, or None, with a line in the log, where none can be had."""
    if why := unsupported(real):
        logger.warning("scout: shadow mode serves as lru but estimates nothing: %s", why)
        return None
    global being_cast
    being_cast = True
    try:
        return Shadow(real, calls.scout, calls.scout.config.shadow_sample, fair)
    except Exception:
        FAULTS.record("shadow")
        return None
    finally:
        being_cast = False
