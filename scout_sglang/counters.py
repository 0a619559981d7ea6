"""What was served, evicted and spent, counted in one place; everyone else announces.

Plain additions, in the scheduler's thread, that no decision reads. Counts only grow. Wall and CPU
time live here, never in the policy.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from radix_policy.tags import SHARED, Tag

Agent = tuple[int, int]
"""A tenant's number and the agent's id there."""

MOST_AGENTS = 4096
"""Agents that are counted by themselves; later ones are counted together."""
SLOT_SECONDS = 5.0
SLOTS = 180
MOST_RECENT = 64
MOST_CHANGES = 32
_DISPATCHES = 1 << 16
_CPU_BINS = 96
KINDS = ("anchor", "prompt", "output", "history", "other")
_PRIVATE = ("prompt", "output", "history", "history")


def kind_of(tag: Tag | None) -> str:
    """What a node is: an agents' *anchor*, or of one session its latest *prompt* or *output* or
    the *history* that was reused before; *other* if no call has claimed it."""
    if tag is None:
        return "other"
    return "anchor" if tag.session == SHARED else _PRIVATE[tag.kind]


@dataclass(slots=True)
class Served:
    """Calls whose prefill ran, and their prompt tokens; ``hit`` of them were cached."""

    calls: int = 0
    prompt: int = 0
    hit: int = 0

    def add(self, prompt: int, hit: int) -> None:
        self.calls += 1
        self.prompt += prompt
        self.hit += hit

    @property
    def recomputed(self) -> int:
        return self.prompt - self.hit


@dataclass(slots=True)
class Slot:
    """Five seconds of history; ``lru`` is what LRU is estimated to have hit, ``shadow`` what the
    policy would have hit of the ``followed`` prompt tokens, where it runs as a shadow."""

    begun: float
    prompt: int = 0
    hit: int = 0
    lru: int = 0
    shadow: int = 0
    followed: int = 0


@dataclass(slots=True)
class Spent:
    """Thread CPU time of one step of ours; ``bins`` count calls by quarter octave of 100 ns.

    As a context manager it adds the time that its block takes; a step does not nest in itself.
    """

    count: int = 0
    seconds: float = 0.0
    bins: list[int] = field(default_factory=lambda: [0] * _CPU_BINS)
    _begun: float = 0.0

    def __enter__(self) -> None:
        self._begun = time.thread_time()

    def __exit__(self, *error: object) -> None:
        self.add(time.thread_time() - self._begun)

    def add(self, seconds: float) -> None:
        self.count += 1
        self.seconds += seconds
        tenths = max(1, int(seconds * 1e7))
        octave = tenths.bit_length() - 1
        quarter = (tenths << 2 >> octave) & 3
        self.bins[min(_CPU_BINS - 1, 4 * octave + quarter)] += 1

    def quantile(self, share: float) -> float:
        """Seconds that ``share`` of the calls stay below, to a quarter octave."""
        wanted, seen = share * self.count, 0
        for place, calls in enumerate(self.bins):
            seen += calls
            if calls and seen >= wanted:
                octave, quarter = divmod(place, 4)
                return float((1 << octave) * (1 + (quarter + 1) / 4) * 1e-7)
        return 0.0


class Eviction(NamedTuple):
    """A node that went. ``value`` in [0, 1] and ``agent`` None where they are not known."""

    at: float
    kind: str
    agent: Agent | None
    tokens: int
    value: float | None


class Counters:
    """All counts of one rank; time.monotonic() seconds."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.total = Served()
        self.calls_with_session_id = 0
        self.calls_with_agent_id = 0
        self.sessions_ended_by_label = 0
        self.by_agent: dict[Agent, Served] = {}
        self.other = Served()
        self.lru_hit = 0
        self.evicted_nodes: dict[tuple[str, str], int] = {}
        self.evicted_tokens: dict[tuple[str, str], int] = {}
        self.recent: deque[Eviction] = deque(maxlen=MOST_RECENT)
        self.history: deque[Slot] = deque([Slot(self.started)], maxlen=SLOTS)
        self.cpu: dict[str, Spent] = {}
        self.hit_ages: deque[float] = deque(maxlen=_DISPATCHES)
        self.eviction_ages: deque[float] = deque(maxlen=_DISPATCHES)
        self.changes: deque[tuple[float, str, object, object]] = deque(maxlen=MOST_CHANGES)
        self._changed: set[Agent | None] = set()
        self._numbers: dict[Agent, int] = {}
        self._used = array("d", bytes(8 * _DISPATCHES))
        self._first: int | None = None
        self._last = -1

    # -- calls -------------------------------------------------------------------------

    def arrived(self, dispatch: int) -> None:
        """A call has entered the queue as the policy's ``dispatch``."""
        self._first = dispatch if self._first is None else self._first
        self._last = dispatch
        self._used[dispatch % _DISPATCHES] = time.monotonic()

    def ended_by_label(self) -> None:
        """A client has said that its session ends."""
        self.sessions_ended_by_label += 1

    def named(self, session: bool, agent: bool) -> None:
        """Whether the client said in which session a served call is, and of which agent."""
        self.calls_with_session_id += session
        self.calls_with_agent_id += agent

    def served(
        self, agent: Agent, prompt: int, hit: int, lru_hit: int, would_hit: int | None = None
    ) -> None:
        """A call's prefill ran.

        ``lru_hit``: what LRU is estimated to have hit. ``would_hit``: what the shadow did.
        """
        self.total.add(prompt, hit)
        known = self.by_agent.get(agent)
        if known is None and len(self.by_agent) < MOST_AGENTS:
            known = self.by_agent[agent] = Served()
        self._changed.add(None if known is None else agent)
        (self.other if known is None else known).add(prompt, hit)
        self.lru_hit += lru_hit
        slot = self._slot()
        slot.prompt += prompt
        slot.hit += hit
        slot.lru += lru_hit
        if would_hit is not None:
            slot.shadow += would_hit
            slot.followed += prompt

    def take_changed(self) -> set[Agent | None]:
        """Agents with calls since this was last asked; None: those counted together."""
        changed, self._changed = self._changed, set()
        return changed

    def number(self, agent: Agent) -> int:
        """A number for the agent that is unique in this process; given out as they are asked."""
        return self._numbers.setdefault(agent, len(self._numbers))

    # -- memory ------------------------------------------------------------------------

    def hit(self, tag: Tag | None, dispatch: int) -> None:
        """The call ``dispatch`` finds a node, at the end of its match, as others had left it."""
        if tag is not None and tag.number < dispatch and (age := self.age(tag.number)) is not None:
            self.hit_ages.append(age)

    def evicted(self, gone: Iterable[tuple[Tag | None, int, float | None]], reason: str) -> None:
        """Nodes went: tag, tokens and value of each. ``reason``: what ordered them."""
        now, nodes, held = time.monotonic(), self.evicted_nodes, self.evicted_tokens
        for tag, tokens, value in gone:
            kind, agent = kind_of(tag), None
            key = (kind, reason)
            nodes[key] = nodes.get(key, 0) + 1
            held[key] = held.get(key, 0) + tokens
            if tag is not None:
                agents = tag.agents
                agent = (tag.tenant, agents[0]) if len(agents) == 1 else None
                if self._known(tag.number):
                    self.eviction_ages.append(now - self._used[tag.number % _DISPATCHES])
            last = self.recent[-1] if self.recent else None
            # A node that goes bit by bit, as decoding needs room, is one entry.
            same = last and (kind, agent, value) == (last.kind, last.agent, last.value)
            if last and same and now - last.at < 1:
                self.recent[-1] = Eviction(now, kind, agent, last.tokens + tokens, value)
            else:
                self.recent.append(Eviction(now, kind, agent, tokens, value))

    def age(self, dispatch: int) -> float | None:
        """Seconds since that dispatch; None if it was before this process or too long ago."""
        known = self._known(dispatch)
        return time.monotonic() - self._used[dispatch % _DISPATCHES] if known else None

    def _known(self, dispatch: int) -> bool:
        first, last = self._first, self._last
        return first is not None and first <= dispatch <= last < dispatch + _DISPATCHES

    # -- the operator ------------------------------------------------------------------

    def changed(self, name: str, old: object, new: object) -> None:
        """A setting was changed at run time."""
        self.changes.append((time.monotonic(), name, old, new))

    # -- time --------------------------------------------------------------------------

    def step(self, name: str) -> Spent:
        """A context in which the CPU time of this thread is counted under ``name``."""
        spent = self.cpu.get(name)
        if spent is None:
            spent = self.cpu[name] = Spent()
        return spent

    def _slot(self) -> Slot:
        now = time.monotonic()
        if now - self.history[-1].begun >= SLOT_SECONDS:
            self.history.append(Slot(now - (now - self.started) % SLOT_SECONDS))
        return self.history[-1]
