"""Which format a file has, told by its first JSON object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from scout_sglang.replay.formats import token_trace
from scout_sglang.replay.formats.fields import Line
from scout_sglang.replay.formats.lines import read_lines
from scout_sglang.replay.trace import Session, TraceError

Reader = Callable[..., Iterator[Session]]
FORMATS = {"tokens": token_trace}


def reader_for(path: Path, name: str | None = None) -> Reader:
    """The reader of the named format, or of the one that the file's first line shows.

    Raises:
        TraceError: the file is empty, unreadable or in no known format.
    """
    if name is not None:
        return FORMATS[name].read
    for number, text in read_lines(path):
        first = Line(path, number, text)
        for module in FORMATS.values():
            if module.recognises(first.value):
                return module.read
        raise first.error(
            f"unknown format; accepted: {', '.join(FORMATS)} (see scout_sglang/replay/README.md)"
        )
    raise TraceError(f"{path}: the file is empty")
