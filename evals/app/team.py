"""Loads the six agents, the users' tasks and the tool results from the text files beside this one.

Tools stand inside the system prompt, since the chat template of SmolLM2 renders neither the
`tools` field of a request nor the `name` of a message.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

ROLES = ("planner", "researcher", "coder", "tester", "reviewer", "writer")

_TOOLS = """
# Tools

Call a tool by writing one JSON object, `{"name": ..., "arguments": ...}`, on a line of its own.
The result comes back in the next message. One tool call per line, no other text on that line.

<tools>
%s
</tools>
"""


@dataclass(frozen=True)
class Task:
    """What a user asks, and which kind of work it mostly needs."""

    kind: str
    text: str


@dataclass(frozen=True)
class Team:
    """System prompt and possible tool results of each role, and the tasks that users bring."""

    prompts: dict[str, str]
    results: dict[str, list[str]]
    tasks: list[Task]


def load_team(folder: Path = Path(__file__).parent) -> Team:
    """Read all text files of the application; order is the order in the files."""
    tools = json.loads((folder / "tools.json").read_text())
    return Team(
        prompts={role: _system_prompt(folder, role, tools[role]) for role in ROLES},
        results={role: _sections(folder / "results" / f"{role}.md") for role in ROLES},
        tasks=_tasks(folder / "tasks.md"),
    )


def _system_prompt(folder: Path, role: str, tools: list[dict]) -> str:
    text = (folder / "agents" / f"{role}.md").read_text()
    lines = (json.dumps({"type": "function", "function": tool}) for tool in tools)
    return text + _TOOLS % "\n".join(lines)


def _sections(path: Path) -> list[str]:
    return [section.strip() for section in path.read_text().split("\n---\n")]


def _tasks(path: Path) -> list[Task]:
    tasks, kind = [], ""
    for line in path.read_text().splitlines():
        if line.startswith("## "):
            kind = line[3:].strip()
        elif line.startswith("- "):
            tasks.append(Task(kind, line[2:].strip()))
    return tasks
