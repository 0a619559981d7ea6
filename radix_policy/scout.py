"""Scout: observe, score, predict, act. The only class that the engine side talks to.

Everything learned belongs to one tenant (a cache namespace) and never crosses to another; tenants
share the logical clock and the horizon, since they share the memory. No wall clock, no random,
no address order: two ranks that are told the same calls decide alike.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from radix_policy import saved, snapshot, tags, tenants
from radix_policy.accuracy import Accuracy
from radix_policy.call import Call, Dispatch, Namespace, Tokens
from radix_policy.config import CacheScoutConfig, IdentityConfig, ScoutConfig
from radix_policy.guard import Guard, Hashes
from radix_policy.hashing import rolling
from radix_policy.horizon import Horizon
from radix_policy.identity import Identity
from radix_policy.peek import Peek
from radix_policy.prefix_store import Prefix, PrefixStore
from radix_policy.snapshot import Frozen
from radix_policy.tags import SHARED, NodeClass, Tag
from radix_policy.tenants import Tenant, Value, hidden
from radix_policy.value import ScoutValue
from radix_policy.warmup import Room, WarmupPlan, WarmupPlanner, Whose
from radix_policy.warmup_ledger import WarmupLedger

_TENANT_MIX = 0x9E3779B97F4A7C15


@dataclass(slots=True)
class _Running:
    """Of a call under way: its prompt's grid hashes, and its last node in the shadow."""

    grid: Hashes
    last: int | None = None


class Scout:
    """A cache policy for agents, under either value rule.

    ``config``: a ScoutConfig or a CacheScoutConfig, which selects the rule. ``capacity``: tokens
    that the cache holds, in pages of ``page_size``. Observing costs O(prompt) for hashing; scoring
    a class is a look-up after its first time within a dispatch.
    """

    KEPT = 0.999
    """The value of an anchor on the operator's keep-list."""

    def __init__(self, config: IdentityConfig, capacity: int, page_size: int = 1) -> None:
        self.config = config
        self._page_size = page_size
        self.horizon = Horizon(capacity)
        self.clock = 0
        self.guard: Guard | None = None
        if isinstance(config, ScoutConfig) and config.guard:
            self.guard = Guard(capacity, page_size, config.guard_rate)
        self._running: dict[int, _Running] = {}
        self._last_calls: set[int] = set()
        self._tenants: OrderedDict[Namespace, Tenant] = OrderedDict()
        self._by_number: dict[int, Tenant] = {}
        self._next_tenant = 0
        self.epoch = 0
        self.accuracy = Accuracy()
        self.sessions_begun = 0
        self.anchors = PrefixStore(config.warmup_anchors if config.warmup else 0)
        self.prompts = PrefixStore(config.warmup_prompts if config.warmup else 0)
        self.planner = WarmupPlanner(config, page_size, capacity)
        self.ledger = WarmupLedger(self._warmup_settled)
        self.kept: frozenset[tuple[int, int]] = frozenset()

    # -- observe -----------------------------------------------------------------------

    def observe(self, call: Call) -> Dispatch:
        """A call enters the queue: find its agent and session, learn the step it makes."""
        self.clock += 1
        self._value_again()
        tenant = self._tenant(call.namespace)
        hashes = rolling(call.tokens)
        who = tenant.identity.identify(call, self.clock, hashes)
        for absorbed, survivor in who.merged:
            tenant.value.merge(absorbed, survivor)
        self.horizon.dispatched(who.new_session)
        self.sessions_begun += who.new_session
        judge = self.accuracy.due(self.clock) and not who.new_session
        guess = tenant.value.arrive(who.session, who.agent, self.clock, judge)
        self.accuracy.judge(guess, who.agent)
        if isinstance(tenant.value, ScoutValue):
            tenant.value.reuse.returned(who.session, who.agent, hashes)
            if self.guard is not None:
                self._running[self.clock] = _Running(self._grid(hashes, tenant.number))
        if call.end_of_session:
            tenant.value.end(who.session)
            self._last_calls.add(self.clock)
        if call.plain and who.anchor and tenant.identity.begins(who.agent, call.tokens):
            anchor = call.tokens[: who.anchor]
            self.anchors.put_anchor(tenant.number, who.agent, anchor, hashes.item(len(anchor)))
        self.ledger.arrive(self.clock, tenant.number, call.tokens)
        labelled = call.session is not None
        return Dispatch(
            tenant.number, who.session, who.agent, self.clock, who.anchor, labelled, call.plain
        )

    def admit(self, call: Dispatch) -> None:
        """The call has been matched against the tree; once per call is enough."""
        self._value_again()
        if (tenant := self._by_number.get(call.tenant)) is not None:
            tenant.value.admit(tenant.root(call.session), call.agent, call.number)

    def start(self, call: Dispatch, prompt: int, hit: int) -> None:
        """The call runs, ``hit`` of its ``prompt`` tokens cached. Once per call."""
        self.ledger.start(call.number, hit)
        running = self._running.get(call.number)
        if self.guard is not None and running is not None and running.last is None:
            running.last = self.guard.admitted(running.grid, prompt, hit)

    def finish(self, call: Dispatch, tokens: Tokens, prompt: int, new_tokens: int) -> None:
        """The call has ended well.

        ``tokens``: prompt and output, shape (N,). ``prompt``: length of the prompt. ``new_tokens``:
        how many of the N the cache did not have.
        """
        self.horizon.filled(new_tokens)
        tenant = self._by_number.get(call.tenant)
        if tenant is None:
            self.abandon(call)
            return
        session = tenant.root(call.session)
        hashes = rolling(tokens)
        tenant.identity.finish(session, call.agent, tokens, prompt, self.clock, hashes)
        if isinstance(tenant.value, ScoutValue):
            tenant.value.reuse.leave(session, call.agent, hashes, call.anchor, prompt)
        if call.plain:
            self.prompts.put(
                Prefix(call.tenant, call.agent, session, call.number, call.anchor, tokens)
            )
        self._depart(call, self._grid(hashes, call.tenant))

    def abandon(self, call: Dispatch) -> None:
        """The call is gone without an output to learn from (aborted, disconnected)."""
        self._depart(call, None)

    def flush(self) -> None:
        """The cache was emptied; what was learned stays."""
        self._value_again()
        self.ledger.flush()
        if self.guard is not None:
            self.guard.shadow.clear()

    def _depart(self, call: Dispatch, hashes: Hashes | None) -> None:
        self._value_again()
        self.ledger.depart(call.number)
        if (tenant := self._by_number.get(call.tenant)) is not None:
            session = tenant.root(call.session)
            tenant.value.depart(session, call.agent)
            if call.number in self._last_calls:
                tenant.identity.end_session(session)
        self._last_calls.discard(call.number)
        running = self._running.pop(call.number, None)
        if self.guard is not None and running is not None and running.last is not None:
            self.guard.ended(running.last, hashes)

    def _grid(self, hashes: Hashes, tenant: int) -> Hashes:
        """Every grid-th prefix hash, apart for every tenant."""
        grid = self.guard.grid if self.guard is not None else len(hashes)
        return hashes[grid::grid] ^ np.uint64(tenant * _TENANT_MIX % (1 << 64))

    def end_session(self, namespace: Namespace, session: int) -> None:
        """The client says that the session is over."""
        self._value_again()
        if (tenant := self._tenants.get(namespace)) is not None:
            tenant.value.end(tenant.root(session))
            tenant.identity.end_session(session)

    # -- score -------------------------------------------------------------------------

    def _value_again(self) -> None:
        self.epoch += 1

    def moved(self) -> list[tuple[int, int]]:
        """(tenant, session) pairs of which more than time has changed the scores since last asked.

        What sessions share moves with each of them, a little; it is not named. Scores change only
        when ``epoch`` does. Empty under *cachescout*, whose scores say so by no session.
        """
        return [
            (number, session)
            for number, tenant in self._by_number.items()
            if isinstance(tenant.value, ScoutValue)
            for session in tenant.value.moved()
        ]

    def score(self, node: NodeClass) -> float:
        """How likely a node of this class is to be used again before it would be evicted.

        In [0, 1]; 0 for a node of a session or tenant that is forgotten.
        """
        tenant = self._by_number.get(node.tenant)
        return 0.0 if tenant is None else self.worth(node, tenant.value)

    def worth(self, node: NodeClass, value: Value) -> float:
        """The score of a node of a known tenant, asked of ``value``."""
        number, session, agents, kind, used = node
        worth = value.worth(self.root(number, session), agents, kind, used, self.clock)
        return max(worth, self._least(number, session, agents)) if self.kept else worth

    def _least(self, tenant: int, session: int, agents: tuple[int, ...]) -> float:
        """KEPT if the operator's keep-list names what all sessions share of one of ``agents``."""
        named = session == SHARED and any((tenant, agent) in self.kept for agent in agents)
        return self.KEPT if named else 0.0

    def priority(self, tag: Tag, size: int = 0) -> float:
        """What an engine orders leaves by, the lowest evicted first.

        ``size`` in tokens; *scout* does not look at it.
        """
        tenant = self._by_number.get(tag.tenant)
        if tenant is None:
            return -math.inf
        value, session = tenant.value, tag.session
        if session != SHARED:
            session = tenant.root(session)
        worth = value.worth(session, tag.agents, tag.kind, tag.number, self.clock)
        if self.kept:
            worth = max(worth, self._least(tag.tenant, session, tag.agents))
        return value.order(worth, self.clock - tag.number, size)

    def foresee(self, tags: Sequence[Tag]) -> None:
        """``priority`` of these tags will be asked for: what they share is worked out at once."""
        wanted: dict[int, set[int]] = {}
        for tag in tags:
            if tag.session == SHARED:
                wanted.setdefault(tag.tenant, set()).update(tag.agents)
        for number, agents in wanted.items():
            tenant = self._by_number.get(number)
            if tenant is not None and isinstance(tenant.value, ScoutValue):
                tenant.value.foresee(agents, self.clock)

    def value_of(self, order: float) -> float | None:
        """The value in [0, 1] behind a ``priority``, to a quarter octave; None if it tells none."""
        ours = isinstance(self.config, ScoutConfig) and math.isfinite(order)
        return 2.0 ** (order / 4) if ours else None

    def root(self, tenant: int, session: int) -> int:
        """The session that a tenant's session was merged into, or itself."""
        known = self._by_number.get(tenant)
        return session if known is None else known.root(session)

    # -- tags --------------------------------------------------------------------------

    def touch(self, tag: Tag, call: Dispatch, end: int) -> None:
        """``call`` passes through a node that ends at depth ``end``."""
        owner = tag.session
        if owner != SHARED and (tenant := self._by_number.get(tag.tenant)) is not None:
            owner = tenant.root(owner)
        tags.touch(tag, call, owner, end)

    # -- predict, act ------------------------------------------------------------------

    def predict(self, call: Dispatch) -> dict[int, float]:
        """Who calls next in the session of ``call``, if it goes on: chances by agent id."""
        tenant = self._by_number.get(call.tenant)
        return {} if tenant is None else tenant.value.predict(tenant.root(call.session))

    def act(self, room: Room) -> WarmupPlan | None:
        """What to bring back while nothing runs, or None if nothing is worth it.

        Leaves no trace: one rank may ask what the others do not. While the guard moves eviction
        towards recency, values do not say what would be displaced, and only free memory is used.
        """
        peek = Peek(self)
        by_value = self.guard is None or self.guard.beta == 0
        worth = peek.worth if by_value else None
        return self.planner.plan(peek.wanted(), room, self.clock, worth)

    def warmed(self, call: Dispatch, tokens: Tokens, start: int) -> None:
        """A warm-up has prefilled the end of ``tokens``, from ``start`` on."""
        self.horizon.crowded(len(tokens) - start)
        whose = call.tenant, call.agent, call.session != SHARED
        self.ledger.prefilled(whose, tokens, start, len(tokens))

    def keep(self, anchors: Collection[tuple[int, int]]) -> None:
        """Score these (tenant, agent) anchors as always expected, and bring them back first."""
        if self.kept != frozenset(anchors):
            self.kept = frozenset(anchors)
            self._value_again()

    def labelled(self, label: str) -> list[tuple[int, int]]:
        """(tenant, agent) of the agents that clients call so."""
        agents = ((t.number, t.identity.labelled(label)) for t in self._tenants.values())
        return [(tenant, agent) for tenant, agent in agents if agent is not None]

    def _warmup_settled(self, whose: Whose, used: bool) -> None:
        self.planner.settled(whose, used, self.clock)

    # -- tenants -----------------------------------------------------------------------

    def _tenant(self, namespace: Namespace) -> Tenant:
        # A restored one is known by its digest until it calls again.
        tenant = self._tenants.pop(namespace, None) or self._tenants.pop(hidden(namespace), None)
        if tenant is None:
            if len(self._tenants) >= self.config.max_namespaces:
                _, gone = self._tenants.popitem(last=False)
                del self._by_number[gone.number]
                self.anchors.forget_tenant(gone.number)
                self.prompts.forget_tenant(gone.number)
            tenant = tenants.fresh(self._next_tenant, self.config, self.horizon, namespace)
            self._next_tenant += 1
            self._by_number[tenant.number] = tenant
        self._tenants[namespace] = tenant
        tenant.namespace = namespace
        return tenant

    def tenant(self, number: int) -> Tenant | None:
        """What is known of a tenant; None if it is forgotten."""
        return self._by_number.get(number)

    # -- state on disk -----------------------------------------------------------------

    def snapshot(self, model: str = "") -> bytes:
        """What was learned; see ``radix_policy.snapshot`` for what that is and what it is not.

        ``model``: names the tokenizer, whose token ids the agents were recognised by.
        """
        return self.freeze(model).pack()

    def freeze(self, model: str = "") -> Frozen:
        """The same, to be packed later or elsewhere while this Scout goes on."""
        parts = saved.parts(self)
        return Frozen(parts, self._rule(), model)

    def restore(self, data: bytes, model: str = "") -> None:
        """Take up what was learned before; for a Scout that has seen no call.

        Raises:
            SnapshotError: ``data`` is no snapshot that fits; the message says why, and nothing
                has changed.
        """
        fresh = Scout(self.config, self.horizon.capacity, self._page_size)
        with snapshot.reading():
            saved.take_up(fresh, snapshot.unpack(data, self._rule(), model))
        kept = {"planner": self.planner, "ledger": self.ledger}
        self.__dict__.update(fresh.__dict__ | kept)

    def _rule(self) -> str:
        return "cachescout" if isinstance(self.config, CacheScoutConfig) else "scout"

    def tenants(self) -> list[tuple[int, Identity, Value]]:
        """Number, identity and value rule of every tenant; for reports, which change nothing."""
        return [(t.number, t.identity, t.value) for t in self._tenants.values()]

    def state(self) -> dict[str, object]:
        """Numbers for a log line or a metrics page; no token ids, no client labels."""
        return {
            "dispatches": self.clock,
            "tenants": len(self._tenants),
            "agents": sum(len(t.value.rows) for t in self._tenants.values()),
            **({"beta": 0.0, "guard_switches": 0} if self.guard is None else self.guard.state()),
            "horizon": round(self.horizon.turnover, 1),
            "bytes": self.bytes(),
        }

    def bytes(self) -> int:
        """Memory held by all that was learned and is remembered, without the tree's own tags."""
        tenants = sum(t.value.bytes() + t.identity.bytes() for t in self._tenants.values())
        guard = 0 if self.guard is None else self.guard.shadow.bytes()
        return tenants + self.anchors.bytes() + self.prompts.bytes() + guard
