"""The operator's keep-list: which anchors it names, by agent label or by text.

Soft: a kept anchor is scored as always expected and brought back first, up to a share of the cache;
nothing is ever pinned.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from radix_policy.call import Tokens
from radix_policy.prefix_store import Prefix, PrefixStore
from radix_policy.scout import Scout

logger = logging.getLogger(__name__)
MOST_ENTRIES = 64
MOST_TEXT = 1 << 20
_DECODED = 1024


class KeepList:
    """Resolves entries to anchors whenever anchors have changed.

    An entry is the path of a text file, if there is one of that name, else an agent's label. A
    text names the anchors whose decoded ids contain it, white space aside. ``tokenizer`` may be
    None: then texts name nothing, with a warning.

    Raises:
        ValueError: too many entries, or a file that is too large or no text.
    """

    def __init__(self, scout: Scout, tokenizer: Any, entries: Sequence[str] = ()) -> None:
        self._scout = scout
        self._tokenizer = tokenizer
        self._decoded: dict[tuple[int, int], tuple[Tokens, str]] = {}
        self.kept: list[tuple[int, int]] = []
        self.set(entries)

    def set(self, entries: Sequence[str]) -> None:
        """Replace the list."""
        if len(entries) > MOST_ENTRIES:
            raise ValueError(f"keep: at most {MOST_ENTRIES} entries, got {len(entries)}")
        names = [(entry, _text_of(entry)) for entry in entries]
        self._names = names
        self.entries = list(entries)
        if self._tokenizer is None and any(text is not None for _, text in self._names):
            logger.warning("scout: keep: without a tokenizer only agent labels name anchors")
        self._seen: PrefixStore | None = None
        self._version = -1
        self.refresh()

    def refit(self) -> None:
        """The share of the cache that they may count on has changed."""
        self._seen = None
        self.refresh()

    def refresh(self) -> None:
        """Look again which anchors are meant; all ranks do so at the same calls."""
        anchors = self._scout.anchors
        same = self._seen is anchors and self._version == anchors.version
        if same or not (self._names or self.kept):
            return
        self._seen, self._version = anchors, anchors.version
        room = int(self._scout.config.keep_share * self._scout.horizon.capacity)
        self.kept = []
        for entry, text in self._names:
            found = self._scout.labelled(entry) if text is None else self._containing(text)
            for key in found:
                tokens = anchors.anchor(*key)
                if tokens is None or key in self.kept or len(tokens) > room:
                    continue
                room -= len(tokens)
                self.kept.append(key)
        self._scout.keep(self.kept)

    def _containing(self, text: str) -> list[tuple[int, int]]:
        if self._tokenizer is None:
            return []
        anchors = self._scout.anchors
        return [(a.tenant, a.agent) for a in anchors if text in self._decode(a)]

    def _decode(self, anchor: Prefix) -> str:
        key, tokens = (anchor.tenant, anchor.agent), anchor.tokens
        known = self._decoded.get(key)
        if known is not None and known[0] is tokens:
            return known[1]
        if len(self._decoded) >= _DECODED:
            self._decoded.clear()
        decoded = _words(self._tokenizer.decode(tokens.tolist()))
        self._decoded[key] = (tokens, decoded)
        return decoded


def _text_of(entry: str) -> str | None:
    path = Path(entry)
    try:
        if not path.is_file():
            return None
        if path.stat().st_size > MOST_TEXT:
            raise ValueError(f"keep: {entry} is larger than {MOST_TEXT} bytes")
        text = _words(path.read_text(encoding="utf-8"))
    except OSError:
        return None
    except UnicodeDecodeError as error:
        raise ValueError(f"keep: {entry} is no UTF-8 text") from error
    if not text:
        raise ValueError(f"keep: {entry} is empty")
    return text


def _words(text: str) -> str:
    return " ".join(text.split())
