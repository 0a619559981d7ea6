"""What a trace is made of: sessions of calls whose prompts are runs of token segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]

GAPS = ("start", "llm", "tool", "human")
"""What lies between a session's previous call and this one: nothing yet, a hand-over, a tool run,
a person's answer."""


class TraceError(ValueError):
    """A trace cannot be read; the message names file, line and field."""


class TraceCall(NamedTuple):
    """One call: ``prompt`` and ``output`` index the session's segments.

    ``agent``: the recorded role, None where the trace has none. ``time``: recorded arrival in
    seconds, None where the trace has no clock. ``has_session``: the client sent a session id.
    """

    agent: str | None
    prompt: tuple[int, ...]
    output: int
    gap: str = "llm"
    time: float | None = None
    has_session: bool = True


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


def cut_sessions(session: Session, max_prompt: int | None) -> Session:
    """The session up to, not including, its first prompt longer than ``max_prompt`` tokens."""
    if max_prompt is None:
        return session
    sizes = [len(segment) for segment in session.segments]
    for place, call in enumerate(session.calls):
        if sum(sizes[i] for i in call.prompt) > max_prompt:
            return session._replace(calls=session.calls[:place])
    return session
