"""Tags that are kept only where calls end, and handed up when a node goes.

A radix node has been used by every call that ended in its subtree. Instead of tagging all nodes
on a call's path, a :class:`Mark` is kept where a match or an insert ends, and :func:`inherit`
joins it into the parent's when the node is evicted: by the time a node is a leaf, and its value
matters, its mark says what :mod:`radix_policy.tags` would have said.
"""

from __future__ import annotations

from collections.abc import Callable

from radix_policy import tags
from radix_policy.buckets import Leaf
from radix_policy.call import Dispatch, NodeKind
from radix_policy.tags import SHARED, Tag

_EVERYWHERE = 1 << 60


class Mark(Leaf):
    """What the calls that ended at a node, or below it where nodes are gone, made of it.

    ``first``: the number of the owner's first call. ``origin``: whom a stranger took it from.
    ``agents``: those of all calls, whoever owns the node. ``anchor``: their longest
    anchor. ``reach``: down to this depth a stranger shares the node instead of taking it over.
    ``prompt``: prompt length of the first call. ``tail``: the last tokens of the node as int32.
    """

    __slots__ = ("agents", "anchor", "first", "origin", "prompt", "reach", "tail")

    def __init__(self, last: int) -> None:
        super().__init__(None, last)
        self.agents: tuple[int, ...] = ()
        self.anchor = 0
        self.first = 0
        self.origin = SHARED
        self.prompt = 0
        self.reach = 0
        self.tail: bytes | None = None

    def claim(self, call: Dispatch, start: int, end: int, prompt: int) -> None:
        """``call`` is the first that is known to use the node, at depths ``start`` to ``end``."""
        self.tag = tags.born(call, start, end, prompt)
        self.first, self.prompt = call.number, prompt
        self._extend(call)

    def touched(self, call: Dispatch, owner_before: int) -> None:
        """``tags.touch`` has changed the tag for ``call``; its owner was ``owner_before``."""
        assert self.tag is not None
        if self.tag.session not in (owner_before, SHARED):
            self.first, self.origin = call.number, owner_before
        self._extend(call)

    def _extend(self, call: Dispatch) -> None:
        self.anchor = max(self.anchor, call.anchor)
        reach = _EVERYWHERE if call.labelled else call.anchor + tags.BEYOND_ANCHOR
        self.reach = max(self.reach, reach)
        if call.agent not in self.agents:
            self.agents = _union(self.agents, (call.agent,))


def inherit(
    upper: Mark, lower: Mark, start: int, end: int, root: Callable[[int, int], int]
) -> None:
    """All that passed ``lower``, which is gone, had passed its parent ``upper``.

    ``start``, ``end``: depths of ``upper``. ``root``: the session that a tenant's session has
    become. The order of the calls is known as far as the marks' first and last calls tell.
    """
    # Comparisons instead of max(): this runs once a victim.
    if lower.last > upper.last:
        upper.last = lower.last
    if lower.tag is None:
        return
    own = upper.tag
    if own is None:
        own = _copy(upper, lower, start)
    else:
        _join(upper, own, lower, lower.tag, end, root)
    if lower.anchor > upper.anchor:
        upper.anchor = lower.anchor
    if lower.reach > upper.reach:
        upper.reach = lower.reach
    upper.agents = _union(upper.agents, lower.agents)
    if own.foreign and end <= upper.reach:
        own.session, own.agents = SHARED, upper.agents
    elif end <= upper.anchor:
        own.session = SHARED


def _copy(upper: Mark, lower: Mark, start: int) -> Tag:
    assert lower.tag is not None
    upper.tag = tags.split(lower.tag)
    upper.first, upper.prompt, upper.origin = lower.first, lower.prompt, lower.origin
    if upper.tag.kind == NodeKind.OUTPUT and start < lower.prompt:
        upper.tag.kind = NodeKind.PROMPT
    return upper.tag


def _join(
    upper: Mark, own: Tag, lower: Mark, other: Tag, end: int, root: Callable[[int, int], int]
) -> None:
    number = own.number if own.number > other.number else other.number
    if own.session == SHARED or other.session == SHARED:
        _share(own, other)
    elif root(own.tenant, own.session) == root(other.tenant, other.session):
        own.session = root(own.tenant, own.session)
        if own.number != other.number or other.kind == NodeKind.SPINE:
            own.kind = NodeKind.SPINE
        own.agents = _union(own.agents, other.agents)
        own.foreign |= other.foreign
        upper.first = min(upper.first, lower.first)
    else:
        _meet(upper, own, lower, other, end)
    own.number = number


def _meet(upper: Mark, own: Tag, lower: Mark, other: Tag, end: int) -> None:
    """Two sessions: the later one shares the node or, once, takes it over (see ``tags.touch``)."""
    lower_is_late = lower.first > upper.first
    early, late = (own, other) if lower_is_late else (other, own)
    mark = lower if lower_is_late else upper
    third = late.foreign and mark.origin != early.session
    known = end <= max(upper.reach, lower.reach)
    if known or third or early.foreign or early.number >= mark.first:
        _share(own, other)
        return
    upper.first, upper.origin = mark.first, early.session
    own.session, own.agents, own.kind = late.session, late.agents, NodeKind.SPINE
    own.foreign = True


def _share(own: Tag, other: Tag) -> None:
    own.session = SHARED
    own.agents = _union(own.agents, other.agents)


def _union(ours: tuple[int, ...], theirs: tuple[int, ...]) -> tuple[int, ...]:
    if ours == theirs or (len(theirs) == 1 and theirs[0] in ours):
        return ours
    return tuple(sorted({*ours, *theirs}))
