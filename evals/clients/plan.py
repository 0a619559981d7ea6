"""What a session will do, drawn from a seed before any model is asked.

A model of 135M parameters can neither route nor call a tool. Who speaks next comes from the seeded
routings of the demo, and which tools are called with which arguments from the session's task.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from evals.app.routing import ROUTINGS
from evals.clients.tools import OFFICE

_ROLE_OF = {
    "planner": "planner",
    "researcher": "researcher",
    "coder": "analyst",
    "tester": "checker",
    "reviewer": "archivist",
    "writer": "writer",
}
ROLES = tuple(_ROLE_OF.values())


@dataclass(frozen=True)
class ToolUse:
    """A function call that a reply ends with."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Turn:
    """One agent's turn: the tools it calls one after the other, then it speaks."""

    role: str
    uses: tuple[ToolUse, ...]


@dataclass(frozen=True)
class Plan:
    """One user's task and the turns that serve it."""

    name: str
    task: str
    turns: tuple[Turn, ...]


def make_plans(prefix: str, sessions: int, seed: int, routing: str) -> list[Plan]:
    """Equal arguments give equal plans; names begin with ``prefix``.

    Raises ValueError for an unknown routing.
    """
    if routing not in ROUTINGS:
        raise ValueError(f"--routing must be one of {', '.join(ROUTINGS)}, not {routing!r}")
    rng = Random(f"{seed}:{routing}")
    return [_plan(f"{prefix}-{seed}-{number:04d}", rng, routing) for number in range(sessions)]


def _plan(name: str, rng: Random, routing: str) -> Plan:
    task = rng.choice(tasks())
    turns: list[Turn] = []
    for step in ROUTINGS[routing](rng, task["kind"]):
        role = _ROLE_OF[step]
        uses = tuple(_uses(role, task, rng))
        if turns and turns[-1].role == role:
            # No framework hands over to the one who is speaking.
            uses, _ = turns[-1].uses + uses, turns.pop()
        turns.append(Turn(role, uses))
    return Plan(name, task["text"], tuple(turns))


def _uses(role: str, task: Mapping[str, Any], rng: Random) -> list[ToolUse]:
    search = ToolUse("search_files", {"words": rng.choice(task["search"])})
    calculate = ToolUse("calculate", {"expression": rng.choice(task["sums"])})
    read = ToolUse("read_page", {"page": task["page"], "first": rng.randint(1, 6)})
    note = ToolUse("save_note", {"title": task["search"][0], "text": task["text"]})
    look = ToolUse("search_notes", {"words": " ".join(task["search"])})
    some = rng.random() < 0.5
    return {
        "planner": [ToolUse("list_pages", {})] if some else [],
        "researcher": [search, read] if some else [search],
        "analyst": [calculate],
        "checker": [calculate, search] if some else [search],
        "archivist": [look, note] if some else [look],
        "writer": [note] if some else [],
    }[role]


@functools.cache
def tasks() -> list[dict[str, Any]]:
    """The tasks that visitors bring: kind, text, and what a good answer would look up."""
    return json.loads((OFFICE / "tasks.json").read_text())


@functools.cache
def prompts() -> dict[str, str]:
    """The system prompt of each agent."""
    return {role: (OFFICE / "agents" / f"{role}.md").read_text().strip() for role in ROLES}


def role_in(system: str) -> str | None:
    """The agent whose prompt stands in a system message, however the framework wraps it."""
    return next((role for role, text in prompts().items() if text[:40] in system), None)
