"""Any trace as a token trace, anonymised on request."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from scout_sglang.replay.trace import Session, Tokens

CHUNK = 64
"""Prompts are cut at multiples of this many tokens, so that equal pieces are written once."""

Rename = Callable[[str], str]


def convert(name: str, sessions: Iterable[Session], path: Path, anonymise: bool = False) -> int:
    """Write ``sessions`` to ``path`` (packed if it ends in .gz or .zst); the number written.

    Anonymised, token ids go through a random permutation that is not kept, and agents, sessions
    and namespaces get numbers for names; which prefixes are equal is all that remains.
    """
    permuted = _Permutation() if anonymise else None
    named: dict[str, Rename] = {
        kind: _numbers(kind[0]) if anonymise else str for kind in ("agent", "session", "namespace")
    }
    written = 0
    with _text_writer(path) as out:
        header = {"header": 1, "set": "anonymous" if anonymise else name}
        out.write(json.dumps(header) + "\n")
        for session in sessions:
            line = _session_line(session, permuted, named)
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
            written += 1
    return written


def _session_line(
    session: Session, permuted: _Permutation | None, named: dict[str, Rename]
) -> dict[str, Any]:
    pieces = _Pieces(permuted)
    calls = []
    for call in session.calls:
        record: dict[str, Any] = {
            "agent": None if call.agent is None else named["agent"](call.agent),
            "prompt": pieces.add(session.prompt(call)),
            "output": pieces.one(session.output(call)),
            "gap": call.gap,
        }
        for field in ("time", "duration"):
            if (value := getattr(call, field)) is not None:
                record[field] = value
        if not call.has_session:
            record["has_session"] = False
        if call.namespace != (None, None):
            record["namespace"] = [
                None if part is None else named["namespace"](part) for part in call.namespace
            ]
        calls.append(record)
    return {"session": named["session"](session.name), "segments": pieces.lists, "calls": calls}


class _Pieces:
    """The distinct pieces of one session."""

    def __init__(self, permuted: _Permutation | None):
        self.permuted = permuted
        self.lists: list[list[int]] = []
        self._known: dict[bytes, int] = {}

    def add(self, tokens: Tokens) -> list[int]:
        return [self.one(tokens[at : at + CHUNK]) for at in range(0, len(tokens), CHUNK)]

    def one(self, tokens: Tokens) -> int:
        key = tokens.tobytes()
        if key not in self._known:
            self._known[key] = len(self.lists)
            shown = self.permuted(tokens) if self.permuted else tokens
            self.lists.append(shown.tolist())
        return self._known[key]


class _Permutation:
    """A random one-to-one renaming of token ids, made up as ids are seen."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng()
        self._names: dict[int, int] = {}
        self._free = self._rng.permutation(1 << 18).tolist()

    def __call__(self, tokens: Tokens) -> Tokens:
        names = [self._name(token) for token in tokens.tolist()]
        return np.asarray(names, dtype=np.int32)

    def _name(self, token: int) -> int:
        if token not in self._names:
            # Beyond 2**18 distinct ids the new names are merely consecutive.
            self._names[token] = self._free.pop() if self._free else len(self._names)
        return self._names[token]


def _numbers(prefix: str) -> Rename:
    seen: dict[str, str] = {}
    return lambda name: seen.setdefault(name, f"{prefix}{len(seen)}")


@contextmanager
def _text_writer(path: Path) -> Iterator[io.TextIOBase]:
    if path.suffix == ".gz":
        with gzip.open(path, "wt", encoding="utf-8") as out:
            yield out
    elif path.suffix == ".zst":
        import zstandard

        with zstandard.open(path, "wt", encoding="utf-8") as out:
            yield out
    else:
        with path.open("w", encoding="utf-8") as out:
            yield out
