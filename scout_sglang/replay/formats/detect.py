"""Which format a file has, told by its first JSON object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from scout_sglang.replay.formats import chat_log, mooncake, sglang_log, token_trace
from scout_sglang.replay.formats.fields import Options, checked_lines
from scout_sglang.replay.trace import Session, TraceError

Reader = Callable[[Path, Options], Iterator[Session]]
FORMATS = {
    "tokens": token_trace,
    "mooncake": mooncake,
    "chat": chat_log,
    "sglang": sglang_log,
}


def reader_for(path: Path, options: Options, name: str | None = None) -> Reader:
    """The reader of the named format, or of the one that the file's first line shows.

    Raises:
        TraceError: the file is empty, unreadable or in no known format.
    """
    if name is not None:
        return FORMATS[name].read
    for first in checked_lines(path, Options(lenient=options.lenient)):
        for module in FORMATS.values():
            if module.recognises(first.value):
                return module.read
        raise first.error(f"unknown format; accepted: {', '.join(FORMATS)}")
    raise TraceError(f"{path}: the file is empty")
