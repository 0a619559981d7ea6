"""Loader of recorded multi-agent runs: zstd-compressed JSON Lines, one session a line."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from radix_policy.call import Tokens


class RecordedCall(NamedTuple):
    """``agent``: who called; ``prompt``, ``output``: token ids, shapes (n,) and (o,)."""

    agent: str
    prompt: Tokens
    output: Tokens


def load(path: Path) -> list[list[RecordedCall]]:
    """The sessions of one recorded set, each a list of calls in execution order."""
    import zstandard

    with open(path, "rb") as packed:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), "utf-8")
        next(lines)
        return [_session(json.loads(line)) for line in lines]


def _session(raw: dict[str, Any]) -> list[RecordedCall]:
    segments = [np.array(s, dtype=np.int32) for s in raw["segments"]]
    return [
        RecordedCall(
            call["agent"],
            np.concatenate([segments[i] for i in call["prompt"]]),
            segments[call["output"]],
        )
        for call in raw["calls"]
    ]
