"""Mooncake's public traces: arrival, sizes and the identity of every block of a prompt.

One request a line: ``timestamp`` (milliseconds), ``input_length``, ``output_length``,
``hash_ids`` (one number per block of 512 tokens, equal where the prefix up to the block's end is
equal). Source: github.com/kvcache-ai/Mooncake, FAST25 release. Tokens are made up from the block
numbers; outputs are new tokens, since the trace does not say what was generated. There are no
sessions and agents in it: every request stands alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scout_sglang.replay.formats.fields import Line, Options, checked_lines
from scout_sglang.replay.trace import Session, Tokens, TraceCall

BLOCK = 512
VOCAB = 200_000


def recognises(first: Mapping[str, Any]) -> bool:
    """Whether a file whose first JSON object is ``first`` has this format."""
    return "hash_ids" in first


def read(path: Path, options: Options) -> Iterator[Session]:
    """One session for each request, in order of time."""
    latest = float("-inf")
    for line in checked_lines(path, options):
        with options.skipping():
            session = _session(line)
            time = session.calls[0].time
            assert time is not None
            if time < latest:
                raise line.error(f"field 'timestamp' runs backwards ({time} s after {latest} s)")
            latest = time
            yield session


def _session(line: Line) -> Session:
    blocks = line.get("hash_ids", list)
    if not blocks or not all(type(block) is int and block >= 0 for block in blocks):
        raise line.error(f"field 'hash_ids' must be a list of block numbers, got {blocks!r:.80}")
    size = line.get("input_length", int)
    if not (len(blocks) - 1) * BLOCK < size <= len(blocks) * BLOCK:
        raise line.error(
            f"field 'input_length' is {size}, but {len(blocks)} hash_ids hold "
            f"{(len(blocks) - 1) * BLOCK + 1} to {len(blocks) * BLOCK} tokens"
        )
    written = line.get("output_length", int)
    if written < 0:
        raise line.error(f"field 'output_length' must not be negative, got {written}")
    segments = [_block(number) for number in blocks]
    segments[-1] = segments[-1][: size - (len(blocks) - 1) * BLOCK]
    output = np.random.default_rng((1, line.number)).integers(0, VOCAB, written, dtype=np.int32)
    call = TraceCall(
        agent=None,
        prompt=tuple(range(len(blocks))),
        output=len(blocks),
        gap="start",
        time=line.get("timestamp", (int, float)) / 1000.0,
        has_session=False,
    )
    return Session(f"request {line.number}", [*segments, output], [call])


def _block(number: int) -> Tokens:
    return np.random.default_rng((0, number)).integers(0, VOCAB, BLOCK, dtype=np.int32)
