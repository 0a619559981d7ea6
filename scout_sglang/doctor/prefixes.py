"""Why prefixes break, per agent, out of a log: the analysis behind ``doctor --prefixes``.

Each call is compared with the latest calls of its agent, as if nothing were ever evicted. What it
shares with the one it would share most with, were it not for the eight causes, is what it could
have reused; what it shares with any of them as they are, it did reuse. Tokens in between are
recomputed because of a cause.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from scout_sglang.doctor.agents import by_agent
from scout_sglang.doctor.causes import Cause
from scout_sglang.doctor.compare import Break, Comparison, compare, width
from scout_sglang.doctor.prompts import Part, Prompt

LOOK_BACK = 64
"""Earlier calls of the agent that a call is compared with."""
LEAST = 16
"""Recomputed tokens below which a call's break is not worth a word."""
_AROUND = 60

Count = Callable[[str], int]


class Example(NamedTuple):
    """One place where a prefix broke: token position, and the text there in both prompts."""

    line: int
    earlier_line: int
    position: int
    role: str
    earlier_role: str
    before: str
    now: str
    earlier: str


@dataclass
class Finding:
    """A cause in one agent's prompts. ``tokens``: recomputed behind it, over ``calls`` calls."""

    cause: Cause
    example: Example
    tokens: int = 0
    calls: int = 0
    worst: int = 0


@dataclass
class AgentReport:
    """What the log says of one agent; findings with the most expensive one first."""

    agent: str
    calls: int = 0
    prompt_tokens: int = 0
    recomputed_tokens: int = 0
    findings: list[Finding] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "agent": self.agent,
            "calls": self.calls,
            "prompt_tokens": self.prompt_tokens,
            "recomputed_tokens": self.recomputed_tokens,
            "causes": [
                {
                    "cause": finding.cause.name,
                    "recomputed_tokens": finding.tokens,
                    "calls": finding.calls,
                    **finding.example._asdict(),
                    "way_out": finding.cause.way_out,
                }
                for finding in self.findings
            ],
        }


def diagnose(prompts: Iterable[Prompt], count: Count) -> list[AgentReport]:
    """Reports of all agents of a log, the one with the most recomputed tokens first.

    Args:
        prompts: calls in the order of the log.
        count: tokens of a text, for logs without token ids.
    """
    reports = [_agent(name, calls, count) for name, calls in by_agent(list(prompts)).items()]
    return sorted(reports, key=lambda report: -report.recomputed_tokens)


def _agent(name: str, prompts: list[Prompt], count: Count) -> AgentReport:
    report = AgentReport(name, len(prompts), sum(prompt.size for prompt in prompts))
    findings: dict[Cause, Finding] = {}
    for prompt, earlier, could, shared in _broken(prompts):
        chars = sum(map(width, prompt.parts))
        lost = round((could.reach - shared) * prompt.size / chars)
        if lost < LEAST:
            continue
        report.recomputed_tokens += lost
        for number, broken in enumerate(could.breaks):
            behind = could.reach - max(shared, broken.offset)
            tokens = round(behind * prompt.size / chars)
            if tokens < LEAST:
                continue
            found = findings.get(broken.cause)
            if found is None or tokens > found.worst:
                example = _example(prompt, earlier, broken, number == 0, count)
                found = findings.setdefault(broken.cause, Finding(broken.cause, example))
                found.example, found.worst = example, tokens
            found.tokens += tokens
            found.calls += 1
    report.findings = sorted(findings.values(), key=lambda finding: -finding.tokens)
    return report


def _broken(prompts: list[Prompt]) -> Iterator[tuple[Prompt, Prompt, Comparison, int]]:
    """Calls that could have reused more: with which earlier call, how far, and what they did."""
    recent: dict[Any, deque[Prompt]] = {}
    for prompt in prompts:
        before = recent.setdefault(prompt.namespace, deque(maxlen=LOOK_BACK))
        pairs = [(earlier, compare(prompt, earlier)) for earlier in before]
        before.appendleft(prompt)
        if not pairs:
            continue
        earlier, could = max(pairs, key=lambda pair: (pair[1].reach, pair[1].shared))
        shared = max(pair[1].shared for pair in pairs)
        if could.breaks and could.reach > shared:
            yield prompt, earlier, could, shared


def _example(prompt: Prompt, earlier: Prompt, broken: Break, first: bool, count: Count) -> Example:
    mine = prompt.parts[broken.part]
    theirs = (*earlier.parts, Part("assistant", earlier.output))
    other = theirs[broken.other]
    at, other_at = _word_start(mine.text, broken.at), _word_start(other.text, broken.other_at)
    return Example(
        line=prompt.line,
        earlier_line=earlier.line,
        position=_position(prompt, earlier, broken, first, count),
        role=mine.role,
        earlier_role=other.role,
        before=mine.text[max(0, at - _AROUND) : at],
        now=mine.text[at : at + _AROUND],
        earlier=other.text[other_at : other_at + _AROUND],
    )


def _word_start(text: str, at: int) -> int:
    """``at``, or where the word around it begins: a date differs in its last digit only."""
    start = at
    while start > 0 and at - start < 24 and not text[start - 1].isspace():
        start -= 1
    return start if start == 0 or text[start - 1].isspace() else at


def _position(prompt: Prompt, earlier: Prompt, broken: Break, first: bool, count: Count) -> int:
    """Tokens before the difference; exact for the first one of a log that has token ids."""
    if prompt.ids is None:
        whole = sum(count(part.text) for part in prompt.parts[: broken.part])
        return whole + count(prompt.parts[broken.part].text[: broken.at])
    if first and earlier.ids is not None:
        theirs = earlier.ids
        if earlier.output_ids is not None:
            theirs = np.concatenate([theirs, earlier.output_ids])
        size = min(len(theirs), len(prompt.ids))
        unequal = np.flatnonzero(theirs[:size] != prompt.ids[:size])
        return int(unequal[0]) if len(unequal) else size
    return round(broken.offset * prompt.size / sum(map(width, prompt.parts)))
