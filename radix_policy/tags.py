"""What a radix node is to the policy: whose it is, how it came to be, when it was used.

The engine keeps one :class:`Tag` per node and calls ``born``, ``touch`` and ``split``; the policy
values the tag's class. Two sessions meeting on a node make it shared. Where sessions are
inferred, the first stranger beyond the anchor only takes the node over: a missed link between
two calls of one session must not turn its whole history into everybody's.
"""

from __future__ import annotations

from typing import NamedTuple

from radix_policy.call import Dispatch, NodeKind

SHARED = -1
BEYOND_ANCHOR = 64


class NodeClass(NamedTuple):
    """All that a node's value depends on: equal classes have equal values.

    ``session``: its owner, or SHARED. ``agents``: ascending ids of the agents whose prompts pass
    it. ``used``: for a private node the dispatch that used it last, 0 for a shared one.
    """

    tenant: int
    session: int
    agents: tuple[int, ...]
    kind: NodeKind
    used: int


class Tag:
    """The policy's mark on one radix node.

    ``number``: the dispatch that used the node last. ``foreign``: a stranger took it over once.
    """

    __slots__ = ("agents", "foreign", "kind", "number", "session", "tenant")

    def __init__(self, tenant: int, session: int, agents: tuple[int, ...], kind: NodeKind) -> None:
        self.tenant = tenant
        self.session = session
        self.agents = agents
        self.kind = kind
        self.number = 0
        self.foreign = False

    @property
    def shared(self) -> bool:
        """Whether two or more sessions have used the node."""
        return self.session == SHARED

    def node_class(self) -> NodeClass:
        """The class that the node's value is looked up by."""
        return NodeClass(*self.owner_class(), 0 if self.session == SHARED else self.number)

    def owner_class(self) -> tuple[int, int, tuple[int, ...], NodeKind]:
        """The class but for when the node was used last."""
        if self.session == SHARED:
            return self.tenant, SHARED, self.agents, NodeKind.PROMPT
        return self.tenant, self.session, self.agents, self.kind


def born(call: Dispatch, start: int, end: int, prompt: int) -> Tag:
    """The tag of a node that ``call`` inserts at depths ``start`` to ``end``.

    What lies within the agent's known anchor is shared from the beginning: an anchor that was
    evicted and comes back need not wait for its second session. ``prompt``: the prompt's length.
    """
    kind = NodeKind.PROMPT if start < prompt else NodeKind.OUTPUT
    session = SHARED if end <= call.anchor else call.session
    tag = Tag(call.tenant, session, (call.agent,), kind)
    tag.number = call.number
    return tag


def split(tag: Tag) -> Tag:
    """A copy, for the upper half of a node that was split."""
    upper = Tag(tag.tenant, tag.session, tag.agents, tag.kind)
    upper.number, upper.foreign = tag.number, tag.foreign
    return upper


def touch(tag: Tag, call: Dispatch, owner: int, end: int) -> None:
    """``call`` passes through the node, whose last token is at depth ``end``. Idempotent.

    ``owner``: the session that the tag's session has become (sessions may be merged).
    """
    if tag.shared:
        _join(tag, call)
    elif owner == call.session:
        tag.session = SHARED if end <= call.anchor else owner
        if tag.number != call.number:
            tag.kind = NodeKind.SPINE
        _join(tag, call)
    elif call.labelled or tag.foreign or end <= call.anchor + BEYOND_ANCHOR:
        tag.session = SHARED
        _join(tag, call)
    else:
        tag.session, tag.agents, tag.kind = call.session, (call.agent,), NodeKind.SPINE
        tag.foreign = True
    tag.number = max(tag.number, call.number)


def _join(tag: Tag, call: Dispatch) -> None:
    if call.agent not in tag.agents:
        tag.agents = tuple(sorted((*tag.agents, call.agent)))
