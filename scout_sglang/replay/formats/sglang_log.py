"""SGLang's own request log: ``--log-requests --log-requests-level 3 --log-requests-format json``.

The event ``request.finished`` is enough to replay a call: token ids of prompt and output, session
id, routing key, labels, namespace, length, and how much of the prompt the server found cached.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from scout_sglang.replay.formats.fields import Line, Options, checked_lines
from scout_sglang.replay.formats.grouping import LoggedCall, sessions_of
from scout_sglang.replay.trace import Session

_NOT_A_CALL = "HEALTH_CHECK"


def recognises(first: Mapping[str, Any]) -> bool:
    """Whether a file whose first JSON object is ``first`` has this format."""
    return str(first.get("event", "")).startswith("request.")


def read(path: Path, options: Options) -> Iterator[Session]:
    """Sessions of the finished requests; other events are passed over."""
    return sessions_of(_calls(path, options))


def _calls(path: Path, options: Options) -> Iterator[LoggedCall]:
    for line in checked_lines(path, options):
        with options.skipping():
            if line.value.get("event") != "request.finished":
                continue
            if not str(line.value.get("rid", "")).startswith(_NOT_A_CALL):
                yield _call(line)


def _call(line: Line) -> LoggedCall:
    request, answer = line.get("obj", dict), line.get("out", dict)
    if "input_ids" not in request or "output_ids" not in answer:
        raise line.error("token ids are missing: log with --log-requests-level 3")
    meta = line.get("meta_info", dict, within=answer)
    prompt = line.tokens("input_ids", request["input_ids"])
    if not len(prompt):
        raise line.error("field 'input_ids' is empty")
    label = _label(request)
    duration = line.optional("e2e_latency", (int, float), within=meta)
    return LoggedCall(
        prompt=prompt,
        output=line.tokens("output_ids", answer["output_ids"]),
        time=_seconds(line) - (duration or 0.0),
        duration=duration,
        session=label.get("session") or line.optional("session_id", str, within=request),
        agent=label.get("agent"),
        routing_key=line.optional("routing_key", str, within=request),
        namespace=(request.get("extra_key"), request.get("cache_salt")),
        cached=line.optional("cached_tokens", int, within=meta),
    )


def _label(request: Mapping[str, Any]) -> Mapping[str, Any]:
    params = (request.get("sampling_params") or {}).get("custom_params") or {}
    label = params.get("scout") if isinstance(params, dict) else None
    return label if isinstance(label, dict) else {}


def _seconds(line: Line) -> float:
    try:
        return datetime.fromisoformat(line.get("timestamp", str)).timestamp()
    except ValueError:
        raise line.error("field 'timestamp' must be an ISO 8601 time") from None
