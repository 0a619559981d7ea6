"""What a configuration bounds, counted: for restored states and for tests that flood live ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from radix_policy.anchors import AnchorIndex
from radix_policy.cachescout import CacheScoutValue
from radix_policy.config import IdentityConfig
from radix_policy.identity import Identity
from radix_policy.value import ScoutValue


class Held(NamedTuple):
    """``most`` entries may be ``held`` of what ``limit``, a field of the configuration, bounds."""

    limit: str
    held: int
    most: int


def held(
    identity: Identity, value: ScoutValue | CacheScoutValue, config: IdentityConfig
) -> Iterator[Held]:
    """Every table of one tenant whose size the configuration bounds. O(sessions)."""
    agents = [len(identity._agents), len(identity._agent_labels), len(value.rows)]
    sessions = [len(identity._sessions), len(identity._session_labels), len(identity._label_of)]
    if isinstance(value, ScoutValue):
        sessions.append(len(value.sessions))
        agents.append(len({agent for agent, _ in value.reuse._sums}))
        agents += [len(entry.calls) for entry in value.sessions.by_id.values()]
    else:
        sessions.append(len(value._current))
    yield Held("max_agents", max(agents), config.max_agents)
    yield Held("max_sessions", max(sessions), config.max_sessions)
    yield from _anchors(identity._anchors)


def _anchors(anchors: AnchorIndex) -> Iterator[Held]:
    for trie in (anchors._trie, anchors._synced):
        yield Held("max_anchor_nodes", trie.size, trie.max_nodes)
