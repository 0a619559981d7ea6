"""The lab's own format: one session a line, prompts as runs of token-id segments.

Line 1 is a header (``{"header": 1, "set": ...}``); every other line holds ``session``,
``segments`` (lists of token ids) and ``calls``, each with ``agent``, ``prompt`` (segment indexes),
``output`` (a segment index), ``gap`` (``start``, ``llm``, ``tool`` or ``human``). Optional in a
call: ``time`` and ``duration`` in seconds, ``has_session`` (false: the client sent no session id)
and ``namespace`` ([extra key, cache salt]).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scout_sglang.replay.formats.fields import Line, Options, checked_lines
from scout_sglang.replay.trace import GAPS, Session, TraceCall


def recognises(first: Any) -> bool:
    """Whether a file whose first JSON object is ``first`` has this format."""
    return "header" in first or "segments" in first


def read(path: Path, options: Options) -> Iterator[Session]:
    """Sessions of a token trace; see :func:`checked_lines` for errors."""
    for line in checked_lines(path, options):
        with options.skipping():
            if "header" not in line.value:
                yield _session(line)


def _session(line: Line) -> Session:
    segments = [line.tokens("segments", ids) for ids in line.get("segments", list)]
    calls = []
    for raw in line.get("calls", list):
        if not isinstance(raw, dict):
            raise line.error(f"field 'calls' must hold objects, got {raw!r:.80}")
        call = _call(line, raw, len(segments))
        if not sum(len(segments[i]) for i in call.prompt):
            raise line.error("field 'prompt' is empty")
        calls.append(call)
    return Session(str(line.get("session", (str, int))), segments, calls)


def _call(line: Line, raw: dict[str, Any], n_segments: int) -> TraceCall:
    prompt = line.get("prompt", list, within=raw)
    output = line.get("output", int, within=raw)
    for index in (*prompt, output):
        if type(index) is not int or not 0 <= index < n_segments:
            raise line.error(f"segment index {index!r} is not one of 0..{n_segments - 1}")
    gap = line.get("gap", str, within=raw)
    if gap not in GAPS:
        raise line.error(f"field 'gap' must be one of {', '.join(GAPS)}, got {gap!r}")
    namespace = line.optional("namespace", list, within=raw) or [None, None]
    if len(namespace) != 2 or not all(part is None or type(part) is str for part in namespace):
        raise line.error(f"field 'namespace' must be [extra key, salt], got {namespace!r:.80}")
    agent = raw.get("agent")
    return TraceCall(
        agent=None if agent is None else str(agent),
        prompt=tuple(prompt),
        output=output,
        gap=gap,
        time=line.optional("time", (int, float), within=raw),
        duration=line.optional("duration", (int, float), within=raw),
        has_session=line.optional("has_session", bool, within=raw) is not False,
        namespace=(namespace[0], namespace[1]),
    )
