"""What a trace is made of: sessions of calls whose prompts are runs of token segments."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
Namespace = tuple[str | None, str | None]

GAPS = ("start", "llm", "tool", "human")
"""What lies between a session's previous call and this one: nothing yet, a hand-over, a tool run,
a person's answer."""


class TraceError(ValueError):
    """A trace cannot be read; the message names file, line and field."""


class TraceCall(NamedTuple):
    """One call: ``prompt`` and ``output`` index the session's segments.

    ``agent``: the recorded role, None where the trace has none. ``time``, ``duration``: recorded
    arrival and length in seconds, None where the trace has no clock. ``has_session``: the client
    sent a session id. ``routing_key``: evidence of a session that the client sent. ``namespace``:
    (extra key, cache salt); prefixes are never shared between two. ``cached``: prompt tokens that
    the recorded server found cached, None if it did not say.
    """

    agent: str | None
    prompt: tuple[int, ...]
    output: int
    gap: str = "llm"
    time: float | None = None
    duration: float | None = None
    has_session: bool = True
    routing_key: str | None = None
    namespace: Namespace = (None, None)
    cached: int | None = None


class Session(NamedTuple):
    """The calls that serve one user task, in order of execution."""

    name: str
    segments: Sequence[Tokens]
    calls: Sequence[TraceCall]

    def prompt(self, call: TraceCall) -> Tokens:
        """The prompt's token ids, shape (n,)."""
        return np.concatenate([self.segments[i] for i in call.prompt])

    def output(self, call: TraceCall) -> Tokens:
        """The token ids that the call generated, shape (n,)."""
        return self.segments[call.output]


class Trace(Protocol):
    """A named, re-readable sequence of sessions."""

    name: str

    def __iter__(self) -> Iterator[Session]: ...


class MemoryTrace:
    """A trace whose sessions are held in memory."""

    def __init__(self, name: str, sessions: Sequence[Session]):
        self.name = name
        self.sessions = sessions

    def __iter__(self) -> Iterator[Session]:
        return iter(self.sessions)


class FileTrace:
    """A trace that is read once and kept if it is small, read anew each time if it is not."""

    def __init__(self, name: str, read: Callable[[], Iterable[Session]], keep: int = 50_000_000):
        self.name = name
        self._read = read
        self._most_tokens = keep
        self._kept: list[Session] | None = None
        self._tried = False

    def __iter__(self) -> Iterator[Session]:
        if self._kept is not None:
            yield from self._kept
            return
        collected: list[Session] | None = None if self._tried else []
        self._tried = True
        tokens = 0
        for session in self._read():
            if collected is not None:
                tokens += sum(len(segment) for segment in session.segments)
                collected.append(session)
                if tokens > self._most_tokens:
                    collected = None
            yield session
        self._kept = collected


def cut_sessions(session: Session, max_prompt: int | None) -> Session:
    """The session up to, not including, its first prompt longer than ``max_prompt`` tokens."""
    if max_prompt is None:
        return session
    sizes = [len(segment) for segment in session.segments]
    for place, call in enumerate(session.calls):
        if sum(sizes[i] for i in call.prompt) > max_prompt:
            return session._replace(calls=session.calls[:place])
    return session
