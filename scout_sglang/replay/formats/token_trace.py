"""The lab's own format: one session a line, prompts as runs of token-id segments.

Line 1 is a header (``{"header": 1, "set": ...}``); every other line holds ``session``,
``segments`` (lists of token ids) and ``calls``, each with ``agent``, ``prompt`` (segment indexes),
``output`` (a segment index), ``gap`` (``start``, ``llm``, ``tool`` or ``human``) and, where it was
recorded, ``time`` in seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scout_sglang.replay.formats.fields import Line
from scout_sglang.replay.formats.lines import read_lines
from scout_sglang.replay.trace import GAPS, Session, TraceCall


def recognises(first: Any) -> bool:
    """Whether a file whose first JSON object is ``first`` has this format."""
    return "header" in first or "segments" in first


def read(path: Path, lenient: bool = False, skipped: list[str] | None = None) -> Iterator[Session]:
    """Sessions of a token trace.

    Raises:
        TraceError: a line is malformed; with ``lenient`` it is noted in ``skipped`` instead.
    """
    from scout_sglang.replay.trace import TraceError

    for number, text in read_lines(path):
        try:
            line = Line(path, number, text)
            if "header" in line.value:
                continue
            yield _session(line)
        except TraceError as error:
            if not lenient or number == 0:
                raise
            if skipped is not None:
                skipped.append(str(error))


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
    time = line.get("time", (int, float), within=raw) if raw.get("time") is not None else None
    agent = raw.get("agent")
    return TraceCall(None if agent is None else str(agent), tuple(prompt), output, gap, time)
