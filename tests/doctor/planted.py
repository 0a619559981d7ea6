"""Logs of a six-agent application, clean or with causes of broken prefixes planted in them.

The clean one is the demo's workload with answers made up; each cause changes what one client
might do wrong and nothing else.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from evals.app.team import load_team
from evals.app.workload import Call, build_workload
from scout_sglang.replay.formats.rendering import WordPieces

TEAM = load_team()
WORKLOAD = build_workload(TEAM, seed=3, routing="pipeline", sessions=8, sessions_live=3)
WORDS = sorted({word for text in TEAM.prompts.values() for word in text.split() if word.isalpha()})
SESSION = "Session in progress. "


class Request:
    """One call of the clean log, to be changed by the planted causes."""

    def __init__(self, number: int, call: Call, outputs: list[str]) -> None:
        system, _, block = TEAM.prompts[WORKLOAD.role(call)].partition("\n# Tools\n")
        listed = block.split("<tools>\n")[1].split("\n</tools>")[0].splitlines()
        self.number, self.call = number, call
        self.random = Random(number)
        self.session = WORKLOAD.sessions[call.session]
        self.tools: list[dict[str, Any]] = [json.loads(line) for line in listed]
        self.messages = [dict(m) for m in WORKLOAD.messages(call, outputs)]
        self.messages[0]["content"] = system
        self.output = " ".join(self.random.choices(WORDS, k=60))

    @property
    def system(self) -> str:
        return self.messages[0]["content"]

    @system.setter
    def system(self, text: str) -> None:
        self.messages[0]["content"] = text


Plant = Callable[[Request], None]


def date_time(request: Request) -> None:
    """The system prompt begins with the time of the call."""
    now = datetime(2026, 3, 9, 14, 5) + timedelta(seconds=97 * request.number)
    request.system = f"It is {now:%A, %d %B %Y, %H:%M:%S}. {request.system}"


def an_id(request: Request) -> None:
    """A request id stands in the middle of the system prompt."""
    half = request.system.index("\n", 300)
    made = uuid.UUID(int=request.random.getrandbits(128))
    request.system = f"{request.system[:half]}\nTrace {made}.{request.system[half:]}"


def tool_order(request: Request) -> None:
    """Each session's process has its tools in an order of its own."""
    Random(request.call.session).shuffle(request.tools)


def json_keys(request: Request) -> None:
    """The tools' keys come in an order of chance."""
    request.tools = [_shuffled(tool, request.random) for tool in request.tools]


def embedded_task(request: Request) -> None:
    """The task stands between two paragraphs of the system prompt."""
    half = request.system.index("\n\n") + 2
    task = f"Your user's task: {request.session.task.text}\n\n"
    request.system = request.system[:half] + task + request.system[half:]


def tool_list(request: Request) -> None:
    """The first tool is only there in a session's early turns."""
    if request.call.turn >= 3:
        request.tools = request.tools[1:]


def own_output(request: Request) -> None:
    """The client cuts the thinking out of what the model said before it sends it back."""
    for message in request.messages:
        if message["role"] == "assistant":
            words = message["content"].split()
            message["content"] = "Answer: " + " ".join(words[len(words) // 3 :])


def last_assistant(request: Request) -> None:
    """All speakers are assistants and the tools' results are told by them: none is a user."""
    for message in request.messages[2:]:
        message["role"] = "assistant"


CAUSES: dict[str, Plant] = {
    "date_time": date_time,
    "id": an_id,
    "tool_order": tool_order,
    "json_keys": json_keys,
    "embedded_task": embedded_task,
    "tool_list": tool_list,
    "own_output": own_output,
    "last_assistant": last_assistant,
}


def requests(*causes: str) -> list[Request]:
    """All calls of the log with these causes planted."""
    made = []
    outputs: dict[int, list[str]] = {}
    for number, call in enumerate(WORKLOAD.calls):
        said = outputs.setdefault(call.session, [])
        request = Request(number, call, said)
        said.append(request.output)
        for cause in causes:
            CAUSES[cause](request)
        made.append(request)
    return made


def chat_log(path: Path, *causes: str, ids: bool = True) -> Path:
    """Chat Completions requests with their answers; ``ids`` adds session ids."""
    lines = []
    for request in requests(*causes):
        body: dict[str, Any] = {"messages": request.messages, "tools": request.tools}
        if ids:
            body["session_id"] = request.session.id
        lines.append({"request": body, "response": request.output})
    return _write(path, lines)


def server_log(path: Path, *causes: str, ids: bool = True) -> Path:
    """What SGLang logs of the same calls: rendered text and token ids."""
    pieces = WordPieces()
    lines = []
    for request in requests(*causes):
        text = rendered(request)
        line: dict[str, Any] = {
            "event": "request.finished",
            "rid": f"{request.number:032x}",
            "obj": {"text": text, "input_ids": pieces._encode(text).tolist()},
            "out": {
                "text": request.output,
                "output_ids": pieces._encode(request.output).tolist(),
                "meta_info": {},
            },
        }
        if ids:
            line["obj"]["session_id"] = request.session.id
        lines.append(line)
    return _write(path, lines)


def rendered(request: Request) -> str:
    """The prompt as a ChatML template renders it, a last assistant message turned to user."""
    messages = [dict(message) for message in request.messages]
    if messages[-1]["role"] == "assistant":
        messages[-1]["role"] = "user"
    tools = "\n".join(json.dumps(tool) for tool in request.tools)
    messages[0]["content"] += f"\n\n# Tools\n\nCall one.\n<tools>\n{tools}\n</tools>\n"
    said = "".join(f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in messages)
    return f"{said}<|im_start|>assistant\n"


def _shuffled(value: Any, random: Random) -> Any:
    if isinstance(value, list):
        return [_shuffled(entry, random) for entry in value]
    if not isinstance(value, dict):
        return value
    keys = random.sample(list(value), len(value))
    return {key: _shuffled(value[key], random) for key in keys}


def _write(path: Path, lines: Sequence[dict[str, Any]]) -> Path:
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path
