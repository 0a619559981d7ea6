"""A logged prompt as the parts that a chat template strings together.

Chat logs have the parts; a server's log has the rendered text, which is cut at the template's
marks. Tool definitions are a part of their own, wherever the template puts them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from scout_sglang.replay.trace import Namespace, Tokens

SYSTEM_ROLES = ("system", "developer")
TOOLS = "tools"


class Tool(NamedTuple):
    """A tool definition: its name, and itself as JSON with its keys in the order they came."""

    name: str
    definition: str


class Part(NamedTuple):
    """A message, or (role ``tools``) the list of tool definitions, apart in ``tools``."""

    role: str
    text: str
    tools: tuple[Tool, ...] = ()


@dataclass(frozen=True, eq=False)
class Prompt:
    """One logged call. What the log lacks is None.

    ``ids``, ``output_ids``: token ids of prompt and output, each of shape (n,).
    ``size``: prompt length in tokens, counted with a stand-in tokenizer where there are no ids.
    """

    line: int
    parts: tuple[Part, ...]
    output: str
    size: int
    agent: str | None = None
    session: str | None = None
    namespace: Namespace = (None, None)
    ids: Tokens | None = None
    output_ids: Tokens | None = None

    @property
    def head(self) -> int:
        """How many leading parts are meant to be fixed: tools and system messages."""
        fixed = 0
        while fixed < len(self.parts) and self.parts[fixed].role in (TOOLS, *SYSTEM_ROLES):
            fixed += 1
        return fixed


# Role, text and end mark of one message in the chat templates of the common model families.
_TEMPLATES = tuple(
    re.compile(pattern, re.DOTALL)
    for pattern in (
        r"<\|im_start\|>(\w+)\n?(.*?)(<\|im_end\|>\n?|\Z)",
        r"<\|start_header_id\|>(\w+)<\|end_header_id\|>\n*(.*?)(<\|eo[tm]_id\|>|\Z)",
        r"<start_of_turn>(\w+)\n(.*?)(<end_of_turn>\n?|\Z)",
        r"<\|(system|user|assistant|tool|observation)\|>\n?(.*?)"
        r"(<\|end\|>\n?|</s>\n?|(?=<\|(?:system|user|assistant|tool|observation)\|>)|\Z)",
    )
)


def parts_of_text(text: str) -> tuple[Part, ...]:
    """The parts of a rendered prompt; one part of role ``text`` if no template is recognised.

    The opening of the answer at the end is no part.
    """
    for template in _TEMPLATES:
        found = list(template.finditer(text))
        if not found:
            continue
        if not found[-1].group(3) and found[-1].end() == len(text):
            found.pop()
        messages = [Part(_role(match.group(1)), match.group(2)) for match in found]
        return tuple(piece for part in messages for piece in _cut_out_tools(part))
    return (Part("text", text),)


def _role(name: str) -> str:
    return "assistant" if name == "model" else name


def parts_of_messages(
    messages: Sequence[dict[str, Any]], tools: Sequence[Any] | None, goes_on: bool = False
) -> tuple[Part, ...]:
    """The parts of a Chat Completions body as SGLang renders them.

    SGLang turns a last message of the assistant into one of the user, unless the request asks to
    continue it (``goes_on``); see ``_handle_last_assistant_message`` of its chat endpoint.
    """
    parts = []
    if tools:
        parts.append(Part(TOOLS, "\n".join(map(json.dumps, tools)), as_tools(tools)))
    for message in messages:
        parts += _cut_out_tools(Part(message["role"], text_of(message)))
    last = messages[-1]
    if last["role"] == "assistant" and isinstance(last.get("content"), str) and not goes_on:
        parts[-1] = Part("user", parts[-1].text)
    return tuple(parts)


def text_of(message: dict[str, Any]) -> str:
    """What a message says: its text parts, then its tool calls as JSON."""
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    calls = message.get("tool_calls")
    return f"{content}{json.dumps(calls)}" if calls else str(content)


def json_values(text: str) -> Iterator[tuple[int, int, Any]]:
    """Objects and arrays of JSON inside a text: start, end, value. O(n) for ordinary text."""
    decoder = json.JSONDecoder()
    at = 0
    for match in re.finditer(r"[{\[]\s*[\"{\[]", text):
        if match.start() < at:
            continue
        try:
            value, at = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        yield match.start(), at, value


def as_tools(definitions: Sequence[Any]) -> tuple[Tool, ...]:
    """Tool definitions as they came; a name that cannot be found is empty."""
    return tuple(Tool(tool_name(tool) or "", json.dumps(tool)) for tool in definitions)


def tool_name(tool: Any) -> str | None:
    """The name of a tool definition in one of the usual shapes; None for anything else."""
    if not isinstance(tool, dict):
        return None
    inner = tool.get("function")
    if isinstance(inner, dict) and isinstance(inner.get("name"), str):
        return inner["name"]
    described = tool.keys() & {"parameters", "input_schema", "inputSchema"}
    return tool["name"] if described and isinstance(tool.get("name"), str) else None


def _cut_out_tools(part: Part) -> list[Part]:
    """Tool definitions inside a system message become a part between what surrounds them."""
    if part.role not in SYSTEM_ROLES:
        return [part]
    tools: list[Tool] = []
    first = last = 0
    for start, end, value in json_values(part.text):
        listed = value if isinstance(value, list) else [value]
        if not all(tool_name(tool) for tool in listed) or not listed:
            continue
        if tools and part.text[last:start].strip(" \n,"):
            break
        first = first if tools else start
        last = end
        tools += as_tools(listed)
    if not tools:
        return [part]
    around = Part(part.role, part.text[:first]), Part(part.role, part.text[last:])
    cut = [around[0], Part(TOOLS, part.text[first:last], tuple(tools)), around[1]]
    return [piece for piece in cut if piece.text]
