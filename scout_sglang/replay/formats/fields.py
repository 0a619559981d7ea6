"""Checked access to the fields of one JSON line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scout_sglang.replay.trace import Tokens, TraceError

MAX_TOKEN = 2**31 - 1


class Line:
    """One line of a trace file, with errors that say where it stands."""

    def __init__(self, path: Path, number: int, text: str):
        self.path, self.number = path, number
        try:
            value = json.loads(text)
        except ValueError as error:
            raise self.error(f"not JSON ({error})") from None
        if not isinstance(value, dict):
            raise self.error(f"expected a JSON object, got {type(value).__name__}")
        self.value: Mapping[str, Any] = value

    def error(self, message: str) -> TraceError:
        return TraceError(f"{self.path}:{self.number}: {message}")

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
