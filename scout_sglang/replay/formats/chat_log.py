"""Chat Completions requests, one JSON object a line.

``messages`` is required. Optional: ``tools``, ``response`` (text, a message, or the API's answer),
``time`` (seconds or ISO 8601), ``duration``, ``session_id`` or ``conversation_id``,
``routing_key`` or the header ``x-smg-routing-key`` under ``headers``,
``custom_params.scout.{agent, session}``, ``extra_key``, ``cache_salt``. A proxy's record may hold
the body under ``request``. Without a response, ``max_tokens`` or 64 new tokens stand in for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from scout_sglang.replay.formats.fields import Line, Options, checked_lines
from scout_sglang.replay.formats.grouping import LoggedCall, sessions_of
from scout_sglang.replay.formats.rendering import Renderer, renderer
from scout_sglang.replay.trace import Session, Tokens

DEFAULT_OUTPUT = 64


def recognises(first: Mapping[str, Any]) -> bool:
    """Whether a file whose first JSON object is ``first`` has this format."""
    body = first.get("request", first)
    return isinstance(body, dict) and "messages" in body


def read(path: Path, options: Options) -> Iterator[Session]:
    """Sessions of the logged requests."""
    return sessions_of(_calls(path, options))


def _calls(path: Path, options: Options) -> Iterator[LoggedCall]:
    render = renderer(options.tokenizer)
    for line in checked_lines(path, options):
        with options.skipping():
            yield _call(line, render)


def _call(line: Line, render: Renderer) -> LoggedCall:
    body = line.optional("request", dict) or line.value
    messages = line.get("messages", list, within=body)
    if not messages or not all(
        isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages
    ):
        raise line.error("field 'messages' must be a list of objects, each with a 'role'")
    params = line.optional("custom_params", dict, within=body) or {}
    label = params.get("scout") or {}
    headers = line.optional("headers", dict) or {}
    session = label.get("session") or body.get("session_id") or body.get("conversation_id")
    agent = label.get("agent")
    return LoggedCall(
        prompt=render.prompt(messages, body.get("tools")),
        output=_output(line, body, render),
        gap=_gap(messages[-1]),
        time=_seconds(line),
        duration=line.optional("duration", (int, float)),
        session=None if session is None else str(session),
        agent=None if agent is None else str(agent),
        routing_key=body.get("routing_key") or headers.get("x-smg-routing-key"),
        namespace=(body.get("extra_key"), body.get("cache_salt")),
    )


def _gap(last: Mapping[str, Any]) -> str:
    """What the call waited for: a tool's result, a person, or another agent (which has a name)."""
    if last["role"] == "tool":
        return "tool"
    return "human" if last["role"] == "user" and not last.get("name") else "llm"


def _output(line: Line, body: Mapping[str, Any], render: Renderer) -> Tokens:
    response = line.value.get("response")
    if isinstance(response, dict) and response.get("choices"):
        response = response["choices"][0].get("message", {})
    if isinstance(response, dict):
        response = response.get("content") or ""
    if isinstance(response, str):
        return render.answer(response)
    if response is not None:
        raise line.error(f"field 'response' must be text or an object, got {response!r:.80}")
    size = line.optional("max_tokens", int, within=body) or DEFAULT_OUTPUT
    return np.random.default_rng((2, line.number)).integers(0, 1 << 18, size, dtype=np.int32)


def _seconds(line: Line) -> float | None:
    time = line.optional("time", (int, float, str))
    if not isinstance(time, str):
        return time
    try:
        return datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()
    except ValueError:
        raise line.error(f"field 'time' must be seconds or ISO 8601, got {time!r}") from None
