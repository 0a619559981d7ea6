"""Single logged calls put together to sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from scout_sglang.replay.trace import Namespace, Session, Tokens, TraceCall


@dataclass
class LoggedCall:
    """A call as a log has it; what the log lacks is None."""

    prompt: Tokens
    output: Tokens
    gap: str = "llm"
    time: float | None = None
    duration: float | None = None
    session: str | None = None
    agent: str | None = None
    routing_key: str | None = None
    namespace: Namespace = (None, None)
    cached: int | None = None


def sessions_of(calls: Iterable[LoggedCall]) -> Iterator[Session]:
    """Sessions by the id that the client sent, ordered by their first calls.

    A call without an id is a session of its own. Calls are ordered by time where all have one;
    a log is written in order of ends, so it is read as a whole first.
    """
    ordered = list(calls)
    if all(call.time is not None for call in ordered):
        ordered.sort(key=lambda call: call.time or 0.0)
    groups: dict[tuple[str, str | int], list[LoggedCall]] = {}
    for number, call in enumerate(ordered):
        key = ("sent", call.session) if call.session is not None else ("call", number)
        groups.setdefault(key, []).append(call)
    for (_, name), group in groups.items():
        segments = [tokens for call in group for tokens in (call.prompt, call.output)]
        yield Session(
            str(name), segments, [_trace_call(call, place) for place, call in enumerate(group)]
        )


def _trace_call(call: LoggedCall, place: int) -> TraceCall:
    return TraceCall(
        agent=call.agent,
        prompt=(2 * place,),
        output=2 * place + 1,
        gap=call.gap if place else "start",
        time=call.time,
        duration=call.duration,
        has_session=call.session is not None,
        routing_key=call.routing_key,
        namespace=call.namespace,
        cached=call.cached,
    )
