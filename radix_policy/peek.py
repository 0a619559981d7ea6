"""What the policy would say, asked without a trace.

When values are worked out anew depends on when they are asked for, and all tensor-parallel ranks
have to ask alike. A warm-up is planned on one rank only, so it asks here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import TYPE_CHECKING

from radix_policy.call import NodeKind
from radix_policy.prefix_store import Prefix
from radix_policy.tags import SHARED, NodeClass, Tag
from radix_policy.warmup import Wanted

if TYPE_CHECKING:
    from radix_policy.scout import Scout
    from radix_policy.tenants import Value


class Peek:
    """A Scout as of now; not to be used after the next call has arrived or ended."""

    def __init__(self, scout: Scout) -> None:
        self._scout = scout
        self._values: dict[int, Value] = {}

    def score(self, node: NodeClass) -> float:
        """V of a class of nodes in [0, 1]; 0 for one of a session or tenant that is forgotten."""
        value = self._value(node.tenant)
        return 0.0 if value is None else self._scout.worth(node, value)

    def anchor(self, tenant: int, agent: int) -> float:
        """V of what all prompts of the agent begin with."""
        return self.score(NodeClass(tenant, SHARED, (agent,), NodeKind.PROMPT, 0))

    def worth(self, tag: Tag | None) -> float:
        """V of a node in [0, 1]; 0 for one that no call has claimed."""
        if tag is None or (value := self._value(tag.tenant)) is None:
            return 0.0
        return self._scout.worth(tag.node_class(), value)

    def wanted(self) -> Iterator[Wanted]:
        """Every prefix that is remembered, where the routing is predictable enough (Eq. 11)."""
        scout = self._scout
        least = scout.config.warmup_r_min
        gates: dict[int, bool] = {}
        for prefix in chain(scout.anchors, scout.prompts):
            tenant = prefix.tenant
            value, known = self._value(tenant), scout.tenant(tenant)
            if value is None or known is None or known.namespace is None:
                continue
            kept = prefix.session == SHARED and (tenant, prefix.agent) in scout.kept
            if tenant not in gates:
                gates[tenant] = value.evident_predictability() >= least
            if kept or gates[tenant]:
                worth = scout.worth(_last_node(prefix), value)
                yield Wanted(prefix, known.namespace, worth, kept)

    def _value(self, tenant: int) -> Value | None:
        if tenant not in self._values:
            known = self._scout.tenant(tenant)
            if known is None:
                return None
            self._values[tenant] = known.value.peek()
        return self._values[tenant]


def _last_node(prefix: Prefix) -> NodeClass:
    """The class of the node that the prefix would end in."""
    agents = (prefix.agent,)
    return NodeClass(prefix.tenant, prefix.session, agents, NodeKind.PROMPT, prefix.number)
