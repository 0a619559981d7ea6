"""Scout: observe, score, predict, act. The only class that the engine side talks to.

Everything learned belongs to one tenant (a cache namespace) and never crosses to another; tenants
share the logical clock and the horizon, since they share the memory. No wall clock, no random,
no address order: two ranks that are told the same calls decide alike.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from radix_policy import tags
from radix_policy.cachescout import CacheScoutValue
from radix_policy.call import Call, Dispatch, Namespace, Tokens
from radix_policy.config import CacheScoutConfig, IdentityConfig, ScoutConfig
from radix_policy.hashing import prefix_hashes
from radix_policy.horizon import Horizon
from radix_policy.identity import Identity
from radix_policy.tags import NodeClass, Tag
from radix_policy.value import ScoutValue
from radix_policy.warmup import Residency, WarmupPiece, choose

Value = ScoutValue | CacheScoutValue


@dataclass(slots=True)
class _Tenant:
    number: int
    identity: Identity
    value: Value


class Scout:
    """A cache policy for agents, under either value rule.

    ``config``: a ScoutConfig or a CacheScoutConfig, which selects the rule. ``capacity``: tokens
    that the cache holds. Observing costs O(prompt) for hashing; scoring a class is a look-up
    after its first time within a dispatch.
    """

    def __init__(self, config: IdentityConfig, capacity: int) -> None:
        self.config = config
        self.horizon = Horizon(capacity)
        self.clock = 0
        self._tenants: OrderedDict[Namespace, _Tenant] = OrderedDict()
        self._by_number: dict[int, _Tenant] = {}
        self._next_tenant = 0
        self._worth: dict[NodeClass, float] = {}

    # -- observe -----------------------------------------------------------------------

    def observe(self, call: Call) -> Dispatch:
        """A call enters the queue: find its agent and session, learn the step it makes."""
        self.clock += 1
        self._worth.clear()
        tenant = self._tenant(call.namespace)
        who = tenant.identity.identify(call, self.clock)
        for absorbed, survivor in who.merged:
            tenant.value.merge(absorbed, survivor)
        self.horizon.dispatched(who.new_session)
        tenant.value.arrive(who.session, who.agent, self.clock)
        if isinstance(tenant.value, ScoutValue):
            tenant.value.reuse.returned(who.session, who.agent, prefix_hashes(call.tokens))
        if call.end_of_session:
            tenant.value.end(who.session)
        labelled = call.session is not None
        return Dispatch(tenant.number, who.session, who.agent, self.clock, who.anchor, labelled)

    def admit(self, call: Dispatch) -> None:
        """The call has been matched against the tree; once per call is enough."""
        self._worth.clear()
        if (tenant := self._by_number.get(call.tenant)) is not None:
            tenant.value.admit(tenant.identity.root(call.session), call.agent, call.number)

    def finish(self, call: Dispatch, tokens: Tokens, prompt: int, new_tokens: int) -> None:
        """The call has ended well.

        ``tokens``: prompt and output, shape (N,). ``prompt``: length of the prompt. ``new_tokens``:
        how many of the N the cache did not have.
        """
        self.abandon(call)
        self.horizon.filled(new_tokens)
        tenant = self._by_number.get(call.tenant)
        if tenant is None:
            return
        session = tenant.identity.root(call.session)
        tenant.identity.finish(session, call.agent, tokens, prompt, self.clock)
        if isinstance(tenant.value, ScoutValue):
            hashes = prefix_hashes(tokens)
            tenant.value.reuse.leave(session, call.agent, hashes, call.anchor, prompt)

    def abandon(self, call: Dispatch) -> None:
        """The call is gone without an output to learn from (aborted, disconnected)."""
        self._worth.clear()
        if (tenant := self._by_number.get(call.tenant)) is not None:
            tenant.value.depart(tenant.identity.root(call.session), call.agent)

    def end_session(self, namespace: Namespace, session: int) -> None:
        """The client says that the session is over."""
        self._worth.clear()
        if (tenant := self._tenants.get(namespace)) is not None:
            tenant.value.end(tenant.identity.root(session))
            tenant.identity.end_session(session)

    # -- score -------------------------------------------------------------------------

    def score(self, node: NodeClass) -> float:
        """How likely a node of this class is to be used again before it would be evicted.

        In [0, 1]; 0 for a node of a session or tenant that is forgotten.
        """
        worth = self._worth.get(node)
        if worth is None:
            tenant = self._by_number.get(node.tenant)
            worth = 0.0 if tenant is None else tenant.value.worth(self._rooted(node), self.clock)
            self._worth[node] = worth
        return worth

    def priority(self, tag: Tag, size: int) -> float:
        """What an engine orders leaves by, the lowest evicted first. ``size`` in tokens."""
        tenant = self._by_number.get(tag.tenant)
        if tenant is None:
            return -np.inf
        return tenant.value.order(self.score(tag.node_class()), self.clock - tag.number, size)

    def _rooted(self, node: NodeClass) -> NodeClass:
        if node.session == tags.SHARED:
            return node
        root = self._by_number[node.tenant].identity.root(node.session)
        return node if root == node.session else node._replace(session=root)

    # -- tags --------------------------------------------------------------------------

    def touch(self, tag: Tag, call: Dispatch, end: int) -> None:
        """``call`` passes through a node that ends at depth ``end``."""
        owner = tag.session
        if owner != tags.SHARED and (tenant := self._by_number.get(tag.tenant)) is not None:
            owner = tenant.identity.root(owner)
        tags.touch(tag, call, owner, end)

    # -- predict, act ------------------------------------------------------------------

    def predict(self, call: Dispatch) -> dict[int, float]:
        """Who calls next in the session of ``call``, if it goes on: chances by agent id."""
        tenant = self._by_number.get(call.tenant)
        return {} if tenant is None else tenant.value.predict(tenant.identity.root(call.session))

    def act(
        self, tenant: int, residency: Mapping[int, Residency], displaced: float = 0.0
    ) -> WarmupPiece | None:
        """The anchor to bring back while nothing runs, or None if none is worth it.

        ``residency``: per agent id of ``tenant`` what of its anchor is cached. ``displaced``: the
        highest score among what would have to make room.
        """
        owner = self._by_number.get(tenant)
        if owner is None:
            return None
        return choose(tenant, owner.value.expected(self.clock), residency, displaced)

    # -- tenants -----------------------------------------------------------------------

    def _tenant(self, namespace: Namespace) -> _Tenant:
        tenant = self._tenants.get(namespace)
        if tenant is None:
            if len(self._tenants) >= self.config.max_namespaces:
                _, gone = self._tenants.popitem(last=False)
                del self._by_number[gone.number]
            tenant = _Tenant(self._next_tenant, Identity(self.config), self._new_value())
            self._next_tenant += 1
            self._tenants[namespace] = tenant
            self._by_number[tenant.number] = tenant
        self._tenants.move_to_end(namespace)
        return tenant

    def _new_value(self) -> Value:
        if isinstance(self.config, CacheScoutConfig):
            return CacheScoutValue(self.config)
        assert isinstance(self.config, ScoutConfig)
        return ScoutValue(self.config, self.horizon)

    def state(self) -> dict[str, object]:
        """Numbers for a log line or a metrics page; no token ids, no client labels."""
        return {
            "dispatches": self.clock,
            "tenants": len(self._tenants),
            "agents": sum(len(t.value.rows) for t in self._tenants.values()),
            "horizon": round(self.horizon.turnover, 1),
            "bytes": sum(t.value.bytes() for t in self._tenants.values()),
        }
