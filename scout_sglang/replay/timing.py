"""When calls arrive and how long they run: the same for every policy, so that results compare.

Sessions arrive as a Poisson process; between two calls of a session lies a random gap whose scale
depends on what the session waits for; a call holds its prompt for its whole duration. Nothing
here depends on what the cache does, so one seed gives one schedule to all policies.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scout_sglang.replay.trace import Session, Tokens, TraceCall, TraceError, cut_sessions


@dataclass(frozen=True)
class Timing:
    """Parameters of the timing model; times in seconds.

    ``llm_gap`` is the mean of an exponential; ``tool_gap`` and ``human_gap`` scale a
    LogNormal(-0.5, 1), whose mean is one. A call lasts ``call_base`` plus ``call_per_token`` for
    each output token. ``max_prompt`` ends a session before its first longer prompt.
    ``human_agents`` stand for people: what lies before their calls is a human gap, whatever was
    recorded. ``recorded_times``: a trace's own times, where it has them, replace all gaps.
    """

    sessions_per_second: float = 0.5
    llm_gap: float = 0.3
    tool_gap: float = 3.0
    human_gap: float = 20.0
    call_base: float = 0.3
    call_per_token: float = 0.01
    max_prompt: int | None = None
    human_agents: tuple[str, ...] = ()
    recorded_times: bool = True

    def gap(self, kind: str, rng: np.random.Generator) -> float:
        """Seconds between a call's end and the session's next call of this kind."""
        if kind == "llm":
            return float(rng.exponential(self.llm_gap))
        if kind == "tool":
            return self.tool_gap * float(rng.lognormal(-0.5, 1.0))
        if kind == "human":
            return self.human_gap * float(rng.lognormal(-0.5, 1.0))
        return 0.0

    def length(self, job: Job) -> float:
        """Seconds that a call holds its prompt."""
        if self.recorded_times and job.call.duration is not None:
            return job.call.duration
        return self.call_base + self.call_per_token * len(job.output)


class Job(NamedTuple):
    """A call on its way through the lab. ``number``: its place in order of arrival."""

    number: int
    session_index: int
    session: Session
    call_index: int
    arrival: float

    @property
    def call(self) -> TraceCall:
        return self.session.calls[self.call_index]

    @property
    def is_last(self) -> bool:
        return self.call_index + 1 == len(self.session.calls)

    @property
    def prompt(self) -> Tokens:
        """Token ids of the prompt, shape (n,)."""
        return self.session.prompt(self.call)

    @property
    def output(self) -> Tokens:
        return self.session.output(self.call)


class Event(NamedTuple):
    """A call arrives (``starts``) or has ended."""

    time: float
    starts: bool
    job: Job


def schedule(sessions: Iterable[Session], timing: Timing, seed: int) -> Iterator[Event]:
    """Arrivals and ends of all calls in order of time, lazily.

    At equal times a call ends before another arrives. The stream holds only live sessions.

    Raises:
        TraceError: recorded times run backwards.
    """
    arrivals = _arrivals(sessions, timing, seed)
    pending: list[tuple[float, int, int, _Live, Job | None]] = []
    upcoming = next(arrivals, None)
    number = ticket = 0
    while pending or upcoming:
        if upcoming and (not pending or upcoming[0] < pending[0][0]):
            heapq.heappush(pending, (upcoming[0], 1, ticket, upcoming[1], None))
            upcoming = next(arrivals, None)
            ticket += 1
            continue
        now, _, _, live, ended = heapq.heappop(pending)
        ticket += 1
        if ended is not None:
            yield Event(now, False, ended)
            continue
        job = Job(number, live.index, live.session, live.place, now)
        number += 1
        yield Event(now, True, job)
        end = now + timing.length(job)
        heapq.heappush(pending, (end, 0, ticket, live, job))
        live.place += 1
        if live.place < len(live.session.calls):
            start = live.next_start(end, timing)
            heapq.heappush(pending, (start, 1, ticket, live, None))


class _Live:
    """A session under way."""

    def __init__(self, index: int, session: Session, arrival: float, seed: int):
        self.index = index
        self.session = session
        self.place = 0
        self.offset = arrival - (session.calls[0].time or 0.0)
        self.rng = np.random.default_rng((seed, 1, index))

    def next_start(self, end: float, timing: Timing) -> float:
        call = self.session.calls[self.place]
        if timing.recorded_times and call.time is not None:
            return max(end, call.time + self.offset)
        kind = "human" if call.agent in timing.human_agents else call.gap
        return end + timing.gap(kind, self.rng)


def _arrivals(
    sessions: Iterable[Session], timing: Timing, seed: int
) -> Iterator[tuple[float, _Live]]:
    rng = np.random.default_rng((seed, 0))
    now = 0.0
    first: float | None = None
    for index, whole in enumerate(sessions):
        session = cut_sessions(whole, timing.max_prompt)
        if not session.calls:
            continue
        recorded = session.calls[0].time if timing.recorded_times else None
        if recorded is None:
            now += float(rng.exponential(1.0 / timing.sessions_per_second))
        else:
            first = recorded if first is None else first
            if recorded - first < now:
                raise TraceError(
                    f"session {session.name!r} starts at {recorded}, before the session ahead of "
                    "it: recorded times must not run backwards"
                )
            now = recorded - first
        yield now, _Live(index, session, now, seed)
