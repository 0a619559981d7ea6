"""Checked access to the fields of one JSON line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scout_sglang.replay.formats.lines import read_lines
from scout_sglang.replay.trace import Tokens, TraceError

MAX_TOKEN = 2**31 - 1


@dataclass
class Options:
    """How to read: ``lenient`` skips malformed lines, whose complaints gather in ``skipped``.

    ``tokenizer``: a Hugging Face tokenizer for formats that hold text, None for word pieces.
    """

    lenient: bool = False
    tokenizer: str | None = None
    skipped: list[str] = field(default_factory=list)

    @contextmanager
    def skipping(self) -> Iterator[None]:
        """Note a malformed line instead of raising, if lenient."""
        try:
            yield
        except TraceError as error:
            if not self.lenient:
                raise
            self.skipped.append(str(error))


class Line:
    """One line of a trace file, with errors that say where it stands."""

    def __init__(self, path: Path, number: int, text: str):
        self.path, self.number = path, number
        try:
            value = json.loads(text[text.find("{") :] if text.startswith("[20") else text)
        except ValueError as error:
            raise self.error(f"not JSON ({error})") from None
        if not isinstance(value, dict):
            raise self.error(f"expected a JSON object, got {type(value).__name__}")
        self.value: Mapping[str, Any] = value

    def error(self, message: str) -> TraceError:
        return TraceError(f"{self.path}:{self.number}: {message}")

    def optional(self, field: str, kind: type | tuple[type, ...], within: Any = None) -> Any:
        """The field, which must be of that type where it is there; None where it is not."""
        source = self.value if within is None else within
        return None if source.get(field) is None else self.get(field, kind, source)

    def get(self, field: str, kind: type | tuple[type, ...], within: Any = None) -> Any:
        """The field, which must be there and of that type."""
        source = self.value if within is None else within
        name = kind.__name__ if isinstance(kind, type) else "/".join(k.__name__ for k in kind)
        if field not in source:
            raise self.error(f"field {field!r} is missing, expected {name}")
        value = source[field]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self.error(f"field {field!r} must be {name}, got {value!r:.80}")
        return value

    def tokens(self, field: str, value: Any) -> Tokens:
        """A list of token ids as an array of shape (n,)."""
        if not isinstance(value, list) or not all(
            type(token) is int and 0 <= token <= MAX_TOKEN for token in value
        ):
            raise self.error(f"field {field!r} must be a list of token ids, got {value!r:.80}")
        return np.asarray(value, dtype=np.int32)


def checked_lines(path: Path, options: Options) -> Iterator[Line]:
    """The file's JSON lines. A line may begin with a logger's time stamp in brackets.

    Raises:
        TraceError: the file cannot be read, or a line is no JSON object and ``options`` is strict.
    """
    for number, text in read_lines(path):
        with options.skipping():
            yield Line(path, number, text)
