"""A trie of prefix hashes that remembers how sessions used its forks."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

KEY = 8
_NEW_KEYS = 32
_SESSIONS_PER_NODE = 2048
_MOST_USES = 1 << 18
_FEW_SESSIONS = 64
_CHILDREN_PER_SESSION = 32

_ROLE_MOVERS = 3
_ROLE_RETURNS = 6
_ROLE_MOVES = 0.12
_ROLE_STAYS = 0.10
_HEAVY_STAYS = 8
_KEPT_SESSIONS = 3
_NUMBERS = (
    "number", "owner", "sessions", "visits", "moves", "stays", "siblings_used", "private_moves",
    "restarts", "heavy", "signed",
)  # fmt: skip


class Node:
    """A run of prefix boundaries that no prompt forks within.

    ``edge``: its boundary hashes, 8 bytes each. ``used``: session -> branches it took from here,
    the latest last, and whether it counted as using a sibling beside each: the branch itself if it
    is the only one, ``NO_BRANCH`` if the session's prompts ended here; of many sessions, those that
    came last. While one session alone came by, only ``owner`` is kept. ``movers``: the first three
    sessions that moved. ``restarts``: moves on to a branch that nobody had taken, from one with
    hardly a fixed text: a worker's history that begins anew. ``private_moves``: moves back to a
    branch of the session's own.
    """

    __slots__ = (
        "agent", "children", "edge", "heavy", "movers", "moves", "number", "owner", "parent",
        "private_moves", "restarts", "sessions", "siblings_used", "signed", "stays", "used",
        "visits",
    )  # fmt: skip

    def __init__(self, number: int, edge: bytes, parent: Node | None) -> None:
        self.number = number
        self.edge = edge
        self.parent = parent
        self.children: dict[bytes, Node] = {}
        self.owner = -1
        self.used: dict[int, Taken] | None = None
        self.sessions = 0
        self.visits = 0
        self.moves = 0
        self.movers: list[int] = []
        self.stays = 0
        self.siblings_used = 0
        self.private_moves = 0
        self.restarts = 0
        self.agent: int | None = None
        self.heavy = False
        self.signed = False

    def depth(self) -> int:
        """Boundaries from the root to this node's end."""
        node: Node | None = self
        keys = 0
        while node is not None:
            keys += len(node.edge) // KEY
            node = node.parent
        return keys

    def has_fixed_text(self) -> bool:
        """Several sessions share more of this branch than its first boundary."""
        if self.sessions < 2:
            return False
        return len(self.edge) > KEY or any(c.sessions > 1 for c in self.children.values())

    def is_role_fork(self) -> bool:
        returns = self.moves + self.stays
        return (
            len(self.movers) >= _ROLE_MOVERS
            and returns >= _ROLE_RETURNS
            and self.moves - self.restarts >= _ROLE_MOVES * returns
            and self.stays >= _ROLE_STAYS * returns
        )

    def separates(self) -> bool:
        """Sessions come back to the branch they took: applications part here."""
        returns = self.moves + self.stays
        return self.stays >= _HEAVY_STAYS and self.moves < _ROLE_MOVES * returns


class Path(NamedTuple):
    """A prompt laid along the trie.

    ``keys``: its boundary hashes, 8 bytes each. ``nodes``: nodes it covers wholly, the root first.
    ``matched``: keys covered. ``partial``: the node whose edge it leaves, if any, and how many of
    that edge's keys it shares. ``shared``: tokens that at least three sessions have in common.
    """

    keys: bytes
    nodes: list[Node]
    matched: int
    partial: tuple[Node, int] | None
    shared: int


Taken = Node | dict[Node, bool] | tuple[()]
NO_BRANCH: tuple[()] = ()


class Trie:
    """One trie; ``max_nodes`` bounds it, leaves that nobody visits go first.

    ``size``: nodes. ``uses``: sessions that nodes remember, each node's counted; at most 2^18 (and
    64 a node) and 2,048 at one node.
    """

    def __init__(self, max_nodes: int) -> None:
        self.max_nodes = max_nodes
        self._next = 1
        self.root = Node(0, b"", None)
        self._leaves: dict[int, Node] = {}
        self.size = 1
        self.uses = 0

    def locate(self, keys: bytes) -> tuple[list[Node], int, tuple[Node, int] | None]:
        node, at = self.root, 0
        nodes = [node]
        while at < len(keys):
            child = node.children.get(keys[at : at + KEY])
            if child is None:
                break
            edge = child.edge
            if keys.startswith(edge, at):
                node, at = child, at + len(edge)
                nodes.append(node)
                continue
            return nodes, at // KEY, (child, common(edge, keys, at))
        return nodes, at // KEY, None

    def insert(self, path: Path, session: int) -> list[Node]:
        """Make the prompt's path exist as far as it may grow, and count this visit along it."""
        nodes = list(path.nodes)
        if path.partial is not None:
            child, common = path.partial
            self._split(child, common)
            nodes.append(child)
        at = path.matched + (path.partial[1] if path.partial else 0)
        last = nodes[-1]
        private = last.sessions == 1 and last.owner == session and not last.children
        if at * KEY < len(path.keys) and (last.parent is None or not private):
            nodes.append(self._grow(last, path.keys[at * KEY : (at + _NEW_KEYS) * KEY]))
        for k, node in enumerate(nodes):
            self._visit(node, nodes[k + 1] if k + 1 < len(nodes) else None, session)
        leaf = nodes[-1]
        if self._leaves.pop(leaf.number, None) is not None:
            self._leaves[leaf.number] = leaf
        while self.size > self.max_nodes and len(self._leaves) > 1:
            self._drop(next(iter(self._leaves.values())))
        return nodes

    def save(self) -> dict[str, Any]:
        """What several sessions have in common, for ``load``: nodes in pre-order, parents first."""
        order, waiting = [self.root], list(self.root.children.values())[::-1]
        while waiting:
            node = waiting.pop()
            if node.sessions >= _KEPT_SESSIONS:
                order.append(node)
                waiting += list(node.children.values())[::-1]
        place = {node: k for k, node in enumerate(order)}
        above = {node.parent for node in order}
        age = {number: k for k, number in enumerate(self._leaves)}
        bare = [node.number for node in order[1:] if node not in above]
        return {
            "edges": np.frombuffer(b"".join(n.edge for n in order), dtype=np.uint64),
            "keys": np.array([len(n.edge) // KEY for n in order]),
            "parents": np.array([place[n.parent] if n.parent else -1 for n in order]),
            "agents": np.array([-1 if n.agent is None else n.agent for n in order]),
            "named": np.array([n.agent is not None for n in order]),
            "numbers": np.array([[getattr(n, name) for name in _NUMBERS] for n in order]),
            "movers": [list(n.movers) for n in order],
            "leaves": sorted(bare, key=lambda number: (age.get(number, len(age)), number)),
            "next": self._next,
        }

    def load(
        self,
        edges: NDArray[np.uint64],
        keys: NDArray[np.int64],
        parents: NDArray[np.int64],
        agents: NDArray[np.int64],
        named: NDArray[np.bool_],
        numbers: NDArray[np.int64],
        movers: list[list[int]],
        leaves: list[int],
        next: int,
    ) -> None:
        """Become the trie that was saved, without the memory of which session went where."""
        ends = np.cumsum(keys)
        nodes: list[Node] = []
        for k, parent in enumerate(parents.tolist()):
            edge = edges[ends[k] - keys[k] : ends[k]].tobytes()
            node = Node(0, edge, nodes[parent] if k else None)
            for name, value in zip(_NUMBERS, numbers[k].tolist(), strict=True):
                setattr(node, name, value)
            node.heavy, node.signed = bool(node.heavy), bool(node.signed)
            node.agent = int(agents[k]) if named[k] else None
            node.movers = movers[k]
            node.used = {} if node.sessions else None
            if node.parent is not None:
                node.parent.children[edge[:KEY]] = node
            nodes.append(node)
        self.root, self.size, self._next, self.uses = nodes[0], len(nodes), next, 0
        by_number = {node.number: node for node in nodes}
        self._leaves = {number: by_number[number] for number in leaves}

    def _visit(self, node: Node, child: Node | None, session: int) -> None:
        """Count a visit of ``session`` to ``node`` that goes on to ``child``."""
        node.visits += 1
        if node.used is None:
            if node.sessions == 0:
                node.owner, node.sessions = session, 1
                if child is None:
                    return
                node.used = {}
            elif node.owner == session and child is None:
                return
            else:
                only = next(iter(node.children.values())) if child is not None else None
                node.used = {node.owner: only if only is not None and only.sessions else NO_BRANCH}
                self.uses += 1
        taken = node.used.pop(session, None)
        if taken is not None:
            node.used[session] = _onward(node, child, taken, session)
            return
        if node.owner != session:
            node.sessions += 1
        held = len(node.used)
        if held >= _SESSIONS_PER_NODE or (self.uses >= _MOST_USES and held >= _FEW_SESSIONS):
            del node.used[next(iter(node.used))]
            self.uses -= 1
        node.used[session] = NO_BRANCH if child is None else child
        self.uses += 1

    def _new(self, edge: bytes, parent: Node) -> Node:
        node = Node(self._next, edge, parent)
        self._next += 1
        self.size += 1
        return node

    def _grow(self, parent: Node, edge: bytes) -> Node:
        node = self._new(edge, parent)
        parent.children[edge[:KEY]] = node
        self._leaves.pop(parent.number, None)
        self._leaves[node.number] = node
        return node

    def _split(self, upper: Node, common: int) -> None:
        """Cut ``upper`` after ``common`` keys; what lies below goes to a new node."""
        cut = common * KEY
        lower = self._new(upper.edge[cut:], upper)
        upper.edge = upper.edge[:cut]
        for name in ("children", "owner", "used", "sessions", "visits", "moves", "movers",
                     "stays", "private_moves", "restarts"):  # fmt: skip
            setattr(lower, name, getattr(upper, name))
        for child in lower.children.values():
            child.parent = lower
        upper.children = {lower.edge[:KEY]: lower}
        if lower.used is not None:
            upper.used = dict.fromkeys(lower.used, lower)
            self.uses += len(lower.used)
        upper.moves = upper.private_moves = upper.restarts = 0
        upper.movers = []
        upper.stays = upper.visits - upper.sessions
        if self._leaves.pop(upper.number, None) is not None:
            self._leaves[lower.number] = lower

    def _drop(self, leaf: Node) -> None:
        parent = leaf.parent
        assert parent is not None
        del self._leaves[leaf.number]
        del parent.children[leaf.edge[:KEY]]
        self.uses -= len(leaf.used or ())
        leaf.parent, leaf.edge, leaf.used = None, b"", None
        self.size -= 1
        if not parent.children and parent.parent is not None:
            self._leaves[parent.number] = parent


def common(edge: bytes, keys: bytes, at: int) -> int:
    """How many keys ``edge`` shares with ``keys`` from ``at``: prefixes once apart stay apart."""
    low, high = 1, min(len(edge), len(keys) - at) // KEY
    while low < high:
        middle = (low + high + 1) // 2
        last = (middle - 1) * KEY
        if edge[last : last + KEY] == keys[at + last : at + last + KEY]:
            low = middle
        else:
            high = middle - 1
    return low


def _onward(node: Node, child: Node | None, taken: Taken, session: int) -> Taken:
    """What a session has taken from ``node`` once it goes on to ``child``, which is counted."""
    if isinstance(taken, Node) and taken.parent is not None:
        if child is taken:
            node.stays += 1
        if child is None or child is taken:
            return taken
        branches = {taken: False}
    else:
        # A branch without a parent was dropped, to be forgotten here.
        known = taken.items() if isinstance(taken, dict) else ()
        branches = {branch: beside for branch, beside in known if branch.parent is not None}
    if child is None:
        return branches or NO_BRANCH
    if not branches:
        return child
    _step(node, child, branches, session)
    return branches


def _step(node: Node, child: Node, taken: dict[Node, bool], session: int) -> None:
    last = next(reversed(taken))
    if child is last:
        node.stays += 1
        return
    # On from a branch with hardly a fixed text to one it had not taken: a list may have grown.
    onward = child not in taken and not last.has_fixed_text()
    if not onward or child.sessions == 0:
        node.moves += 1
        node.restarts += onward
        node.private_moves += child in taken and last.sessions < 2 and child.sessions < 2
        if len(node.movers) < _ROLE_MOVERS and session not in node.movers:
            node.movers.append(session)
    if not onward:
        for branch in (last, child):
            branch.siblings_used += not taken.get(branch, False)
        taken[last] = True
    taken.pop(child, None)
    taken[child] = not onward
    if len(taken) > _CHILDREN_PER_SESSION:
        del taken[next(iter(taken))]
