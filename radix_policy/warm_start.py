"""The hot anchors in a saved state, so that after a restart they are there before the first call.

The one place where a state holds token ids: those of text that three sessions of an agent began
with, which is what the state's hashes tell of as well. A namespace that says something (a salt, an
adapter) is not written down; its anchors wait for its first call.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from radix_policy.call import Namespace, Tokens

if TYPE_CHECKING:
    from radix_policy.scout import Scout

Hot = tuple[int, Namespace | None, int, Tokens]
"""(tenant, its namespace if that is no secret, agent, token ids)."""

SESSIONS = 3


def hot(scout: Scout) -> list[Hot]:
    """The anchors last seen, up to ``warm_start`` tokens."""
    found: list[Hot] = []
    room = scout.config.warm_start
    for prefix in reversed(list(scout.anchors)):
        tenant, agent, size = scout.tenant(prefix.tenant), prefix.agent, len(prefix.tokens)
        if tenant is None or tenant.identity.sessions_of(agent) < SESSIONS or size > room:
            continue
        room -= size
        told = tenant.namespace is not None and not any(tenant.namespace)
        namespace = tenant.namespace if told else None
        found.append((prefix.tenant, namespace, agent, prefix.tokens))
    return found[::-1]


def take_up(scout: Scout, anchors: Iterable[Hot]) -> None:
    """Put the anchors of a saved state into a fresh one whose tenants are restored already."""
    for number, namespace, agent, tokens in anchors:
        tenant = scout.tenant(number)
        if tenant is not None:
            scout.anchors.put_anchor(number, agent, tokens)
            tenant.namespace = namespace
