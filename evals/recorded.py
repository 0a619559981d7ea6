"""Recorded multi-agent runs as plain calls: who called, with which tokens."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from radix_policy.call import Tokens
from scout_sglang.replay.formats import token_trace
from scout_sglang.replay.formats.fields import Options


class RecordedCall(NamedTuple):
    """``agent``: who called; ``prompt``, ``output``: token ids, shapes (n,) and (o,)."""

    agent: str
    prompt: Tokens
    output: Tokens


def load(path: Path) -> list[list[RecordedCall]]:
    """The sessions of one recorded set, each a list of calls in execution order."""
    sessions = []
    for session in token_trace.read(path, Options()):
        parts = [np.asarray(segment, dtype=np.int32) for segment in session.segments]
        sessions.append(
            [
                RecordedCall(
                    str(call.agent),
                    np.concatenate([parts[i] for i in call.prompt]),
                    parts[call.output],
                )
                for call in session.calls
            ]
        )
    return sessions
