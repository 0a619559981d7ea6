"""Chat messages to token ids."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Protocol
from zlib import crc32

import numpy as np

from scout_sglang.replay.trace import Tokens

Message = dict[str, Any]


class Renderer(Protocol):
    """A chat template with a tokenizer behind it."""

    def prompt(self, messages: Sequence[Message], tools: Any) -> Tokens:
        """Token ids of the prompt, up to where the assistant begins to speak."""

    def answer(self, text: str) -> Tokens:
        """Token ids of what the assistant says, its end mark included."""


class WordPieces:
    """Word pieces of at most six characters, each hashed to an id: no model needed.

    Prefix structure survives; counts are within some ten percent of a real tokenizer's for English.
    """

    _PIECE = re.compile(r"\s?\w{1,6}|\s+|[^\w\s]")

    def prompt(self, messages: Sequence[Message], tools: Any) -> Tokens:
        parts = [self._encode(f"<tools>{json.dumps(tools)}</tools>")] if tools else []
        for message in messages:
            parts.append(self._encode(f"<{message['role']}>"))
            parts.append(self._encode(_text(message)))
            parts.append(self._encode("<end>"))
        parts.append(self._encode("<assistant>"))
        return np.concatenate(parts)

    def answer(self, text: str) -> Tokens:
        return np.concatenate([self._encode(text), self._encode("<end>")])

    def _encode(self, text: str) -> Tokens:
        ids = [crc32(piece.encode()) & 0x3FFFF for piece in self._PIECE.findall(text)]
        return np.asarray(ids, dtype=np.int32)


class HuggingFace:
    """A model's own tokenizer and chat template, from a local folder or the cache."""

    def __init__(self, name: str):
        from transformers import AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(name)

    def prompt(self, messages: Sequence[Message], tools: Any) -> Tokens:
        text = self.tokenizer.apply_chat_template(
            list(messages), tools=tools or None, add_generation_prompt=True, tokenize=False
        )
        return self._encode(text)

    def answer(self, text: str) -> Tokens:
        return self._encode(text + (self.tokenizer.eos_token or ""))

    def _encode(self, text: str) -> Tokens:
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return np.asarray(ids, dtype=np.int32)


def renderer(tokenizer: str | None) -> Renderer:
    """The named tokenizer, or word pieces."""
    return HuggingFace(tokenizer) if tokenizer else WordPieces()


def _text(message: Message) -> str:
    """What a message says: text parts joined, tool calls as JSON."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    calls = message.get("tool_calls")
    return f"{content}{json.dumps(calls)}" if calls else str(content)
