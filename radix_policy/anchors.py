"""Which agent does a prompt belong to: a trie of prefix hashes with session statistics.

Prompts of one agent begin alike in every session; where prompts fork, sessions tell what kind of
fork it is. A conversation only *stays*: each session comes back to the branch it took. A stateless
worker only *moves*: a new branch at every call. One whose history begins anew with each errand
stays for its length, then goes on to a new branch and never back. A fork between agents has both
stays and moves back, or branches that the same sessions use side by side. Prefixes that everyone
shares (a chat header, a common preamble) are passed, whatever their length.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from radix_policy.hashing import Hashes, HashMap, window_hashes, window_keys
from radix_policy.signatures import Signatures
from radix_policy.trie import KEY, Node, Path, Trie

BOUNDARIES = np.concatenate(
    [
        np.arange(8, 65, 8),
        np.arange(80, 513, 16),
        np.arange(576, 4097, 64),
        np.arange(4352, 16385, 256),
    ]
)

_HEADER_SHARE = 0.85
_SIDE_BY_SIDE = 2
_SIDE_BY_SIDE_SHARE = 0.3
_ROLE_PRIVATE_MOVES = 1
_HEAVY_SESSIONS = 4
_EVIDENT_SESSIONS = 3

_BESIDE = 1024
_SYNC_WIDTH = 16
_SYNC_REACH = 1024
_SYNC_SAMPLE = np.uint64(7)
_SYNC_CHUNK = 32
_SYNC_CHUNKS = 12
_SYNC_POINTS = 4096
_SYNC_SESSION_BITS = 28
_SYNC_SESSION_MASK = (1 << _SYNC_SESSION_BITS) - 1


class AnchorIndex:
    """Prompt -> agent, for one namespace.

    ``max_nodes``: bound on trie nodes (about 600 bytes each, and 70 for a session it remembers).
    An agent's identity is a node of the trie; ids come from ``new_agent``. Once accepted an agent
    stays; if it turns out to be several, the branch with at least half of the sessions keeps the
    id.
    """

    def __init__(self, max_nodes: int) -> None:
        self._trie = Trie(max_nodes - max_nodes // 4)
        self._synced = Trie(max_nodes // 4)
        self._synced.root.agent = -1
        self._windows = HashMap(15)
        self._signatures = Signatures()
        self._points: dict[int, None] = {}
        self._next_agent = 0
        self._trie.root.agent = self.new_agent()

    def new_agent(self) -> int:
        """The next unused agent id; also serves agents that clients name."""
        self._next_agent += 1
        return self._next_agent - 1

    def forget(self, agent: int) -> None:
        """Stop recognising ``agent`` by its words; a prefix of its own still leads to it."""
        self._signatures.forget(agent)

    @property
    def size(self) -> int:
        return self._trie.size + self._synced.size

    @property
    def nbytes(self) -> int:
        """Bytes in the hash tables and, roughly, of the nodes and the sessions they remember."""
        nodes, uses = self.size, self._trie.uses + self._synced.uses
        return self._windows.nbytes + self._signatures.nbytes + 600 * nodes + 70 * uses

    def locate(self, H: Hashes) -> Path:
        """Lay a prompt along the trie. ``H``: rolling hashes, shape (n + 1,)."""
        lengths = BOUNDARIES[: np.searchsorted(BOUNDARIES, len(H) - 1, side="right")]
        keys = H[lengths].tobytes()
        nodes, matched, partial = self._trie.locate(keys)
        evident = matched if nodes[-1].sessions >= _EVIDENT_SESSIONS else 0
        if partial is not None and partial[0].sessions >= _EVIDENT_SESSIONS:
            evident = matched + partial[1]
        if not evident:
            for node in nodes:
                if node.sessions < _EVIDENT_SESSIONS:
                    break
                evident += len(node.edge) // KEY
        return Path(keys, nodes, matched, partial, int(BOUNDARIES[evident - 1]) if evident else 0)

    def peek(self, path: Path) -> int:
        """The agent as known before this prompt's session is."""
        holder = self._holder(path.nodes, None)
        assert holder.agent is not None
        return holder.agent

    def observe(self, path: Path, H: Hashes, session: int) -> int:
        """Learn from a prompt of ``session`` and return its agent."""
        nodes = self._trie.insert(path, session)
        holder = self._holder(nodes, H)
        assert holder.agent is not None
        if holder.parent is not None and not holder.heavy:
            return holder.agent
        start = _tokens(_last_common(nodes) if holder.parent is None else holder.parent)
        agent = self._signatures.match(H, start)
        if agent is None and holder.parent is None:
            agent = self._resync(H, start, session)
        return holder.agent if agent is None else agent

    def _resync(self, H: Hashes, start: int, session: int) -> int | None:
        """The agent of a prompt with private text first: its fixed text may follow later on."""
        point = self._sync_point(H, start, session)
        if point < 0:
            return None
        chunks = min(_SYNC_CHUNKS, (len(H) - 1 - point) // _SYNC_CHUNK)
        keys = b"".join(
            window_keys(H, point, point + size, size).tobytes()
            for size in (_SYNC_WIDTH, *range(_SYNC_CHUNK, _SYNC_CHUNK * chunks + 1, _SYNC_CHUNK))
        )
        located = self._synced.locate(keys)
        nodes = self._synced.insert(Path(keys, *located, 0), session)
        holder = self._holder(nodes, H, point)
        return holder.agent if holder.parent is not None else None

    def _sync_point(self, H: Hashes, start: int, session: int) -> int:
        """Where text known from several sessions begins after ``start``; -1 if nowhere."""
        stop = min(len(H) - 1, start + _SYNC_REACH)
        windows = window_hashes(H, start, stop, _SYNC_WIDTH)
        sample = np.flatnonzero(windows & _SYNC_SAMPLE == 0)
        hashes = windows[sample]
        seen = self._windows.get(hashes)
        count, last = seen >> _SYNC_SESSION_BITS, seen & _SYNC_SESSION_MASK
        missing = seen == HashMap.MISSING
        mine = session & _SYNC_SESSION_MASK
        count = np.where(missing, 1, np.minimum(count + (last != mine), _EVIDENT_SESSIONS))
        values = (count << _SYNC_SESSION_BITS | mine).astype(np.int32)
        self._windows.put(hashes, values, int(missing.sum()))
        known = [k for k, h in enumerate(hashes.tolist()) if h in self._points]
        if not known:
            known = np.flatnonzero(count >= _EVIDENT_SESSIONS).tolist()
            if not known:
                return -1
            self._points[int(hashes[known[0]])] = None
            if len(self._points) > _SYNC_POINTS:
                del self._points[next(iter(self._points))]
        return start + int(sample[known[0]])

    def _holder(self, nodes: list[Node], H: Hashes | None, point: int | None = None) -> Node:
        """The deepest node with an agent on ``nodes``; accepts new ones if ``H`` is given."""
        holder = nodes[0]
        for above, node in pairwise(nodes):
            kind = self._kind(above, node, holder)
            if node.agent is None and kind == "stop":
                break
            if H is not None and kind in ("agent", "heavy"):
                start = _tokens(above) if point is None else point
                if node.agent is None:
                    node.heavy = kind == "heavy"
                    node.agent = self._accept(node, holder, H, start)
                if kind == "agent":
                    self._sign(node, H, start)
            if node.agent is not None:
                holder = node
        return holder

    def _kind(self, above: Node, node: Node, holder: Node) -> str:
        if node.sessions < 2:
            private = above.is_role_fork() and above.private_moves >= _ROLE_PRIVATE_MOVES
            return "agent" if private and len(above.children) > 1 else "stop"
        if len(above.children) == 1:
            return "pass"
        side_by_side = node.siblings_used
        if side_by_side >= _SIDE_BY_SIDE and side_by_side >= _SIDE_BY_SIDE_SHARE * node.sessions:
            return "agent"
        if above.is_role_fork():
            return "agent"
        if node.sessions >= _HEADER_SHARE * above.sessions:
            return "pass"
        first = holder.parent is None
        if first and node.sessions >= _HEAVY_SESSIONS and above.separates():
            return "heavy"
        return "stop"

    def _accept(self, node: Node, holder: Node, H: Hashes, start: int) -> int:
        """The agent id for a node that turns out to be an agent's."""
        known = None
        if not node.heavy:
            known = self._signatures.match(H, start, _agents_beside(node))
        if known is None and 2 * node.sessions >= holder.sessions:
            known = holder.agent if holder is not self._synced.root else None
        if known == holder.agent:
            holder.agent = self.new_agent()
        return self.new_agent() if known is None else known

    def _sign(self, node: Node, H: Hashes, start: int) -> None:
        """Learn the agent's words, once it is known which of them are fixed."""
        node.heavy = False
        if node.signed or node.sessions < 2:
            return
        node.signed = True
        assert node.agent is not None
        stop = start + _SYNC_CHUNKS * _SYNC_CHUNK if self._is_synced(node) else _tokens(node)
        self._signatures.learn(H, start, stop, node.agent)

    def _is_synced(self, node: Node) -> bool:
        while node.parent is not None:
            node = node.parent
        return node is self._synced.root


def _agents_beside(node: Node) -> set[int]:
    """Agents on the other branches of the forks above that sessions use side by side."""
    agents: set[int] = set()
    waiting: list[Node] = []
    below, above = node, node.parent
    while above is not None:
        if below is node or len(above.movers) > 1:
            waiting += [child for child in above.children.values() if child is not below]
        below, above = above, above.parent
    for _ in range(_BESIDE):
        if not waiting:
            break
        other = waiting.pop()
        if other.agent is not None:
            agents.add(other.agent)
        waiting += [c for c in other.children.values() if c.sessions > 1 or c.agent is not None]
    return agents


def _tokens(node: Node) -> int:
    """Prompt tokens from the start to the end of ``node``."""
    keys = node.depth()
    return int(BOUNDARIES[keys - 1]) if keys else 0


def _last_common(nodes: list[Node]) -> Node:
    """The deepest node that two sessions passed."""
    common = nodes[0]
    for node in nodes[1:]:
        if node.sessions < 2:
            break
        common = node
    return common
