"""Which session does a call belong to, from token ids alone.

In order of strength: the prompt continues a call's output; it quotes outputs of one session
(lineage); it extends a prompt that already quoted that session; it prolongs an earlier prompt up
to that one's last words; the task's own wording; else the session is new. Two sessions that turn
out to be one are merged, the older one surviving. The order and the constants come from recorded
multi-agent runs; a missed link costs more than a late one, a wrong link more than a missed one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from radix_policy.hashing import Hashes, HashMap, window_keys
from radix_policy.lineage import WIDTH, OutputIndex, Quote, TextIndex, Texts, unexplained

GRID = 4
_LEVEL_QUOTED = 1
_LEVEL_OWN = 2
_LEVEL_PART = 3
_RUNNER_UP = 1.5
_MERGE_COVERAGE = 0.7
_MERGE_WINDOWS = 8
_MERGE_CALLS = 2
_TEXT_WINDOWS = 16
_TEXT_RUNNER_UP = 2
_STUCK = 64
_MAX_AGENTS = 1024
_MAX_ABSORBED = 1024
_EXTENDED = 8
_DEEPER = 64
_TAIL = 512
_STEP = 32
_DEAD = -2


@dataclass(slots=True)
class _Session:
    """``prompt``: tokens of its last one; ``reached``: how many of them other prompts share."""

    last: int
    calls: int = 0
    running: int = 0
    reached: int = 0
    prompt: int = 0
    agents: list[int] = field(default_factory=list)
    absorbed: tuple[int, ...] = ()


class Link(NamedTuple):
    """``session``: id; ``new``: it begins with this call; ``merged``: (absorbed, survivor)."""

    session: int
    new: bool
    merged: tuple[tuple[int, int], ...] = ()


class _Known(NamedTuple):
    """The longest known prefix of a prompt: ``length`` 0 if there is none."""

    length: int = 0
    session: int = -1
    level: int = 0


class _Continuations:
    """Checkpoints of calls: a prefix of a conversation -> its session, on a grid of 4 tokens.

    Levels: 2, the prefix reaches into the conversation's own output; 1, past an output that the
    prompt quotes; 0, a whole prompt that nothing else explains, dead once two sessions had it; 3,
    the same without some of its last words.
    """

    def __init__(self, max_bits: int = 16) -> None:
        self._table = HashMap(max_bits)

    def find(self, H: Hashes, block: int = 4096) -> tuple[_Known, _Known, _Known]:
        """The longest prefix known at levels 1 and 2; the longest beyond it at level 0, at 3."""
        stop = (len(H) - 1) // GRID * GRID
        whole, part = _Known(), _Known()
        while stop >= GRID:
            start = max(GRID, stop - block + GRID)
            found, values = self._table.find(H[start : stop + 1 : GRID])
            for k, value in zip(found[::-1].tolist(), values[::-1].tolist(), strict=True):
                if value < 0:
                    continue
                session, level = divmod(value, 4)
                length = start + k * GRID
                if level == _LEVEL_PART:
                    part = part if part.length else _Known(length, session, level)
                    continue
                if level:
                    return _Known(length, session, level), whole, part
                # As long as the prompt itself it would be the same prompt: another's as well.
                if not whole.length and len(H) - 1 - length >= _EXTENDED:
                    whole = _Known(length, session, 0)
            stop = start - GRID
            block *= 4
        return _Known(), whole, part

    def add(self, H: Hashes, lengths: Iterable[int], above: int, session: int, level: int) -> None:
        """Remember those of ``lengths`` (moved down to the grid) that are above ``above``."""
        grid = sorted({n // GRID * GRID for n in lengths})
        kept = [n for n in grid if n > above]
        if kept:
            self._table.put(H[kept], session * 4 + level)

    def add_whole(self, H: Hashes, session: int, root: Callable[[int], int]) -> None:
        """Remember a whole prompt, without the few tokens that open the answer."""
        length = (len(H) - 1 - GRID) // GRID * GRID
        if length >= GRID:
            value = self._table.value(H.item(length))
            mine = value == HashMap.MISSING or (value >= 0 and root(value // 4) == session)
            if mine or value % 4 == 0:
                self._table.put(H[length : length + 1], session * 4 if mine else _DEAD)

    @property
    def nbytes(self) -> int:
        return self._table.nbytes


class _Trust:
    """How often a kind of hint agreed where stronger evidence told the truth.

    ``needed``: share that earns trust. ``prior``: share and weight of the belief before any proof.
    """

    def __init__(self, needed: float, prior: float, weight: float) -> None:
        self._needed = needed
        self._tries = weight
        self._right = weight * prior

    def earned(self) -> bool:
        return self._right >= self._needed * self._tries

    def learn(self, right: bool) -> None:
        self._tries += 1
        self._right += right


class SessionLinker:
    """Sessions of one namespace: linked by tokens, bounded in number, merged by union-find.

    ``max_sessions``: sessions kept; the one idle for longest is forgotten first. ``forgotten`` is
    told each session that is.
    """

    def __init__(self, max_sessions: int, forgotten: Callable[[int], None]) -> None:
        self._max = max_sessions
        self._forgotten = forgotten
        self._sessions: dict[int, _Session] = {}
        self._parent: dict[int, int] = {}
        self._next = 0
        self._continuations = _Continuations()
        self._outputs = OutputIndex()
        self._texts = TextIndex()
        self._keys: dict[str, int] = {}
        self._prompt_trust = _Trust(0.6, 0.8, 4)
        self._text_trust = _Trust(0.8, 0.8, 4)
        self._key_trust = _Trust(0.9, 0.8, 8)
        self._chains: dict[int, _Trust] = {}

    # -- ids ---------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._sessions)

    def alive(self, session: int) -> bool:
        return self.root(session) in self._sessions

    def root(self, session: int) -> int:
        """The session that ``session`` was merged into, or itself."""
        while (parent := self._parent.get(session)) is not None:
            session = parent
        return session

    def create(self, now: int) -> int:
        session = self._next
        self._next += 1
        self._sessions[session] = _Session(now)
        while len(self._sessions) > self._max:
            self.forget(next(iter(self._sessions)))
        return session

    def visit(self, session: int, agent: int, now: int) -> bool:
        """A call of ``agent`` in ``session`` arrives; True if it is that agent's first there."""
        record = self._sessions.pop(session)
        record.running = record.running + 1 if now - record.last < _STUCK else 1
        record.last = now
        record.calls += 1
        self._sessions[session] = record
        if agent in record.agents:
            return False
        if len(record.agents) >= _MAX_AGENTS:
            record.agents.clear()
        record.agents.append(agent)
        return True

    def leave(self, session: int) -> None:
        """A call of ``session`` has ended."""
        if (record := self._sessions.get(session)) is not None:
            record.running = max(0, record.running - 1)

    def forget(self, session: int) -> None:
        """Drop ``session``; what the tables still hold of it counts for nothing."""
        if (record := self._sessions.pop(session, None)) is not None:
            for absorbed in record.absorbed:
                del self._parent[absorbed]
            self._forgotten(session)

    def _merge(self, one: int, other: int) -> tuple[int, int]:
        survivor, absorbed = min(one, other), max(one, other)
        kept, gone = self._sessions[survivor], self._sessions.pop(absorbed)
        kept.last = max(kept.last, gone.last)
        kept.calls += gone.calls
        kept.running += gone.running
        kept.agents += [agent for agent in gone.agents if agent not in kept.agents]
        names = (*kept.absorbed, *gone.absorbed, absorbed)
        self._parent[absorbed] = survivor
        for name in names[:-_MAX_ABSORBED]:
            del self._parent[name]
        kept.absorbed = names[-_MAX_ABSORBED:]
        return absorbed, survivor

    # -- linking -----------------------------------------------------------------------

    def link(self, H: Hashes, shared: int, agent: int, now: int, key: str | None = None) -> Link:
        """The session of an arriving prompt.

        ``H``: rolling hashes of the prompt, shape (n + 1,). ``shared``: length of the prefix that
        several sessions have in common, which is evidence of nothing. ``agent``: who calls.
        ``key``: the routing key the client sent; some clients send one per session, some do not.
        """
        known, whole, part = self._continuations.find(H)
        known = known._replace(session=self.root(known.session))
        if known.session not in self._sessions:
            known = _Known()
        windows = unexplained(H, max(known.length, shared))
        quotes, hit = self._outputs.quotes(windows, self.root)
        texts = self._texts.find(windows.hashes)
        quotes = [q for q in quotes if q.session in self._sessions]
        session = self._evident(known, quotes)
        chain, prolonged = self._prolonged(len(H) - 1, part, shared, agent)
        hints = (
            (self._prompt_trust, whole.session if whole.length > shared else -1, True),
            (chain, prolonged, True),
            (self._key_trust, self._keys.get(key or "", -1), False),
            (self._text_trust, self._worded(texts, session, agent), False),
        )
        for trust, hint, returning in hints:
            session = self._weigh(session, trust, self.root(hint), agent if not returning else None)
        new = session is None
        if session is None:
            session = self.create(now)
        # A new session that quotes several is a gathering of them, no proof that they are one.
        merged = () if new else self._merges(session, quotes)
        session = self.root(session)
        if key is not None:
            self._remember_key(key, session)
        record = self._sessions[session]
        record.prompt = len(H) - 1
        if part.length > shared + _DEEPER:
            record.reached = max(record.reached, part.length)
        self._remember_prompt(H, session, known, quotes)
        self._texts.add(texts, hit, session, self.root)
        return Link(session, new, merged)

    def _evident(self, known: _Known, quotes: list[Quote]) -> int | None:
        """The session by the prompt's own past or by what it quotes."""
        if known.level == _LEVEL_OWN:
            return known.session
        quoted = _lineage(quotes)
        if quoted is None and known.level == _LEVEL_QUOTED:
            return known.session
        return quoted

    def _weigh(
        self, session: int | None, trust: _Trust, hint: int, agent: int | None
    ) -> int | None:
        """Without evidence, the session that a hint names, if such hints have been right.

        A session with a call under way is not meant, nor, where ``agent`` is given, one in which
        that agent has spoken: it would have continued its own prompt.
        """
        record = self._sessions.get(hint)
        meant = record is not None and not record.running and agent not in record.agents
        if session is None:
            return hint if meant and trust.earned() else None
        if meant or hint == session:
            trust.learn(hint == session)
        return session

    def _prolonged(self, n: int, part: _Known, shared: int, agent: int) -> tuple[_Trust, int]:
        """The session whose last prompt this one of ``n`` tokens prolongs, -1 if none.

        For conversations in which no output is found again and the last words of a prompt are
        replaced by the next one. With it, how far ``agent`` is trusted to talk like that: prompts
        that only have an anchor in common part where the ones before them parted, those of a
        conversation share more with the last prompt than that one did with any before it.
        """
        trust = self._chains.pop(agent, None) or _Trust(0.75, 0.5, 3)
        self._chains[agent] = trust
        if len(self._chains) > _MAX_AGENTS:
            del self._chains[next(iter(self._chains))]
        session = self.root(part.session)
        record = self._sessions.get(session)
        if record is None or part.length <= shared + _DEEPER:
            return trust, -1
        deeper = part.length > record.reached + _DEEPER
        longer = part.length >= record.prompt - _TAIL - _STEP and n > record.prompt
        if record.reached and (deeper or not longer):
            trust.learn(deeper)
        record.reached = max(record.reached, part.length)
        return trust, session if deeper or longer else -1

    def _worded(self, texts: Texts, session: int | None, agent: int) -> int:
        """The session whose wording the prompt shares, where that is of use; else -1."""
        if session is not None and agent in self._sessions[session].agents:
            return -1
        votes = texts.votes(self.root)[:2]
        if not votes or votes[0][0] < _TEXT_WINDOWS:
            return -1
        if len(votes) > 1 and votes[0][0] < _TEXT_RUNNER_UP * votes[1][0]:
            return -1
        return votes[0][1]

    def _remember_key(self, key: str, session: int) -> None:
        self._keys.pop(key, None)
        self._keys[key] = session
        if len(self._keys) > self._max:
            del self._keys[next(iter(self._keys))]

    def _merges(self, session: int, quotes: list[Quote]) -> tuple[tuple[int, int], ...]:
        merged = []
        for quote in quotes:
            session, other = self.root(session), self.root(quote.session)
            if other == session or quote.found < _MERGE_WINDOWS:
                continue
            few = min(self._sessions[session].calls, self._sessions[other].calls)
            if few <= _MERGE_CALLS and quote.found >= _MERGE_COVERAGE * quote.total:
                merged.append(self._merge(session, other))
        return tuple(merged)

    def _remember_prompt(self, H: Hashes, session: int, known: _Known, quotes: list[Quote]) -> None:
        n = len(H) - 1
        length, level = known.length, known.level
        own = [q.position for q in quotes if self.root(q.session) == session]
        if not level and own:
            length, level = min(own) + WIDTH, _LEVEL_QUOTED
        if not level or n - GRID <= length:
            parts = [*range(n - _TAIL, n - 16, _STEP), *(n - (1 << k) for k in range(10, 13))]
            self._continuations.add(H, parts, 0, session, _LEVEL_PART)
            self._continuations.add_whole(H, session, self.root)
            return
        lengths = [n - GRID, n - 16, *(n - (1 << k) for k in range(5, 13))]
        self._continuations.add(H, lengths, length, session, level)

    def finish(self, H: Hashes, prompt: int, session: int) -> None:
        """Remember a call's output. ``H``: hashes of prompt and output, shape (N + 1,)."""
        n = len(H) - 1
        if session not in self._sessions or n <= prompt:
            return
        middle = prompt + (n - prompt) // 2
        lengths = [prompt + 8 + GRID - 1, middle, n - 2, n]
        self._continuations.add(H, [x for x in lengths if x <= n], prompt, session, _LEVEL_OWN)
        windows = window_keys(H, prompt, n, WIDTH)
        echo = self._texts.find(windows).known
        self._outputs.add(np.delete(windows, echo), session, self.root)

    @property
    def nbytes(self) -> int:
        """Bytes in the tables, without the per-session records."""
        return self._continuations.nbytes + self._outputs.nbytes + self._texts.nbytes


def _lineage(quotes: list[Quote]) -> int | None:
    found: dict[int, int] = {}
    for quote in quotes:
        found[quote.session] = found.get(quote.session, 0) + quote.found
    ranked = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    if not ranked or (len(ranked) > 1 and ranked[0][1] < _RUNNER_UP * ranked[1][1]):
        return None
    return ranked[0][0]
