"""Whose the cached tokens are: a walk over the tree, a little at a time, beside the serving.

Nothing in the policy needs to know how much memory a class of nodes holds, so nobody keeps books;
whoever wants to see it has the tree walked. A pass takes :data:`TURN` seconds at a turn, follows at
most :data:`MOST_ENDS` ends of calls, and is replaced by the next one as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from radix_policy.call import NodeKind
from radix_policy.peek import Peek
from radix_policy.tags import SHARED, NodeClass, Tag

Paths = Iterator[tuple[Any, list[tuple[int, int]]]]

TURN = 0.0005
MOST_ENDS = 50_000
MOST_CLASSES = 4096
SMALL = 500
"""So many ends are walked at once: the pass takes a few milliseconds."""


class Holding(NamedTuple):
    """A class of nodes in memory: *anchor*, *history* of one session, or *other*.

    ``agent``: the only one whose prompts pass there, None if there are several or none.
    """

    kind: str
    agent: tuple[int, int] | None
    tokens: int
    value: float | None


class _Node:
    """A node's size and what all that ended at it or below say of it."""

    __slots__ = ("agents", "kind", "session", "size", "tenant", "used")

    def __init__(self, size: int, tag: Tag, session: int) -> None:
        self.size = size
        self.tenant, self.session, self.agents = tag.tenant, session, tag.agents
        self.kind, self.used = tag.kind, tag.number

    def join(self, tag: Tag, session: int) -> None:
        if self.session != session:
            self.session = SHARED
        if self.agents != tag.agents:
            self.agents = tuple(sorted({*self.agents, *tag.agents}))
        self.used = max(self.used, tag.number)

    def node_class(self) -> NodeClass:
        if self.session == SHARED:
            return NodeClass(self.tenant, SHARED, self.agents, NodeKind.PROMPT, 0)
        return NodeClass(self.tenant, self.session, self.agents, self.kind, 0)


class Survey:
    """The holdings of one cache, most tokens first, as they were at ``at`` (time.monotonic()).

    ``ends``: how many nodes ``paths`` will give, roughly. ``paths``: of each node that a call
    ended at, its tag, and id and tokens of the nodes down to it.
    """

    def __init__(self, core: Any, ends: Callable[[], int], paths: Callable[[], Paths]) -> None:
        self._core = core
        self._ends, self._paths = ends, paths
        self.at: float | None = None
        self.holdings: list[Holding] = []
        self._pass: Iterator[None] | None = None

    @property
    def under_way(self) -> bool:
        """Whether a pass has begun and not ended."""
        return self._pass is not None

    def begin(self) -> None:
        """Start a pass, unless one is under way; a small tree is walked at once."""
        if self._pass is None:
            self._pass = self._walk()
            if self._ends() <= SMALL:
                self._turn(None)

    def go_on(self) -> None:
        """Walk on for one turn."""
        self._turn(time.perf_counter() + TURN)

    def _turn(self, until: float | None) -> None:
        while self._pass is not None:
            if next(self._pass, self) is self:
                self._pass = None
            elif until is not None and time.perf_counter() > until:
                return

    def _walk(self) -> Iterator[None]:
        nodes: dict[int, _Node] = {}
        scout = self._core.scout_calls.scout
        for number, (tag, path) in enumerate(self._paths()):
            if number == MOST_ENDS:
                break
            session = SHARED if tag.shared else scout.root(tag.tenant, tag.session)
            for name, size in path:
                known = nodes.get(name)
                if known is None:
                    nodes[name] = _Node(size, tag, session)
                else:
                    known.join(tag, session)
            yield
        classes: dict[NodeClass, int] = {}
        surveyed = rest = 0
        for node in nodes.values():
            key = node.node_class()
            surveyed += node.size
            if key in classes or len(classes) < MOST_CLASSES:
                classes[key] = classes.get(key, 0) + node.size
            else:
                rest += node.size
        yield
        rest += max(0, self._core.evictable_size() + self._core.protected_size() - surveyed)
        self._publish(scout, classes, rest)

    def _publish(self, scout: Any, classes: dict[NodeClass, int], rest: int) -> None:
        peek = Peek(scout)
        holdings = [
            Holding(
                "anchor" if key.session == SHARED else "history",
                (key.tenant, key.agents[0]) if len(key.agents) == 1 else None,
                tokens,
                peek.score(key),
            )
            for key, tokens in classes.items()
        ]
        if rest:
            holdings.append(Holding("other", None, rest, None))
        self.holdings = sorted(holdings, key=lambda h: -h.tokens)
        self.at = time.monotonic()
