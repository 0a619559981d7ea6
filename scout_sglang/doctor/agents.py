"""Which calls of a log are of one agent, told from labels or from the fixed part of the prompt."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from zlib import crc32

from scout_sglang.doctor.causes import DATE, ID, JSON_KEYS
from scout_sglang.doctor.forms import names, rewrite
from scout_sglang.doctor.prompts import SYSTEM_ROLES, TOOLS, Prompt

SAME_AGENT = 0.35
"""Jaccard similarity of word triples above which two changing system prompts are one agent's."""
_HIDDEN = frozenset((JSON_KEYS, DATE, ID))
_SKETCH = 200
_NAME = 48


def by_agent(prompts: Sequence[Prompt]) -> dict[str, list[Prompt]]:
    """Calls grouped under a name for each agent, in order of their first calls.

    A label that the client sent decides. Else a system prompt that two sessions send is an
    agent's; those that only one session sends are put together where they are alike, since
    there a date, a task or the like is part of it.
    """
    heads = [_head(prompt) for prompt in prompts]
    sessions: dict[str, set[str]] = defaultdict(set)
    for prompt, head in zip(prompts, heads, strict=True):
        sessions[head].add(_session(prompt))
    families = _Families(head for head, users in sessions.items() if len(users) > 1)
    groups: dict[str, list[Prompt]] = {}
    labels = _Names()
    for prompt, head in zip(prompts, heads, strict=True):
        name = prompt.agent if prompt.agent is not None else labels.of(families.of(head))
        groups.setdefault(name, []).append(prompt)
    return groups


def _head(prompt: Prompt) -> str:
    """What identifies the agent, with dates and ids hidden: system text, else its tools."""
    said = [part for part in prompt.parts[: prompt.head] if part.role in SYSTEM_ROLES]
    if said:
        return "\n".join(rewrite(part, _HIDDEN).text for part in said)
    tools = [n for part in prompt.parts if part.role == TOOLS for n in names(part)]
    return " ".join(sorted(tools))


def _session(prompt: Prompt) -> str:
    if prompt.session is not None:
        return prompt.session
    first = next((part.text for part in prompt.parts[prompt.head :]), "")
    return f"text {crc32(first.encode()):x}"


class _Families:
    """Heads of several sessions stand alone; others join the first one that is like them."""

    def __init__(self, stable: Iterable[str]) -> None:
        self._stable = set(stable)
        self._founders: list[tuple[str, frozenset[int]]] = []
        self._known: dict[str, str] = {}

    def of(self, head: str) -> str:
        if head in self._stable:
            return head
        if head not in self._known:
            self._known[head] = self._join(head)
        return self._known[head]

    def _join(self, head: str) -> str:
        sketch = _sketch(head)
        for founder, other in self._founders:
            if _similarity(sketch, other) >= SAME_AGENT:
                return founder
        self._founders.append((head, sketch))
        return head


def _sketch(text: str) -> frozenset[int]:
    """The smallest hashes of the text's word triples: two sketches estimate the similarity."""
    words = re.findall(r"\w+", text)
    triples = {crc32(" ".join(words[n : n + 3]).encode()) for n in range(max(1, len(words) - 2))}
    return frozenset(sorted(triples)[:_SKETCH])


def _similarity(a: frozenset[int], b: frozenset[int]) -> float:
    lowest = sorted(a | b)[:_SKETCH]
    return sum(value in a and value in b for value in lowest) / len(lowest) if lowest else 1.0


class _Names:
    """Short names of agents without a label: how their system prompt begins."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._taken: dict[str, int] = {}

    def of(self, head: str) -> str:
        if head not in self._of:
            begin = " ".join(head.split())
            name = begin if len(begin) <= _NAME else f"{begin[: _NAME - 1]}…"
            name = f'"{name}"' if name else "(no system prompt)"
            count = self._taken[name] = self._taken.get(name, 0) + 1
            self._of[head] = name if count == 1 else f"{name} ({count})"
        return self._of[head]
