"""Lines of a plain, gzip or zstd compressed text file, streamed."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from pathlib import Path

from scout_sglang.replay.trace import TraceError

GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Non-blank lines with their numbers, from 1.

    Raises:
        TraceError: the file is missing, not UTF-8 or its compression is broken.
    """
    try:
        with path.open("rb") as raw, _decompressed(path, raw) as text:
            for number, line in enumerate(text, start=1):
                if line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise TraceError(f"{path}: not UTF-8 text ({error})") from error
    except (OSError, EOFError) as error:
        raise TraceError(f"{path}: cannot be read ({error})") from error


def _decompressed(path: Path, raw: io.BufferedReader) -> io.TextIOWrapper:
    magic = raw.peek(4)[:4]
    if magic[:2] == GZIP_MAGIC:
        return io.TextIOWrapper(gzip.GzipFile(fileobj=raw), encoding="utf-8")
    if magic == ZSTD_MAGIC:
        try:
            import zstandard
        except ImportError as error:
            raise TraceError(f"{path}: zstd files need `pip install zstandard`") from error
        stream = zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True)
        return io.TextIOWrapper(stream, encoding="utf-8")
    return io.TextIOWrapper(raw, encoding="utf-8")
