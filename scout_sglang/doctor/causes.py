"""The eight usual reasons why a prefix breaks, and the way out of each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """``name`` is stable, for programs; ``title`` and ``way_out`` are for people."""

    name: str
    title: str
    way_out: str


DATE = Cause(
    "date_time",
    "a date or time",
    "move it behind the conversation, or round it to what the agent needs",
)
ID = Cause(
    "id",
    "an id or a random number",
    "leave it out of the prompt, or put it behind the conversation",
)
LAST_ASSISTANT = Cause(
    "last_assistant",
    "a history that ended in an assistant message",
    "end the prompt with a user message: SGLang renders a last assistant message as user, and as "
    "assistant when it is no longer the last",
)
TOOL_ORDER = Cause(
    "tool_order",
    "the same tools in another order",
    "sort the tools by name before each request (a Python set is ordered anew in each process)",
)
TOOL_LIST = Cause(
    "tool_list",
    "another list of tools",
    "send all tools always, and restrict the choice with tool_choice or in the last message",
)
JSON_KEYS = Cause(
    "json_keys",
    "JSON with its keys in another order or spacing",
    "serialise with sorted keys and fixed separators, and keep the text once it is written",
)
OWN_OUTPUT = Cause(
    "own_output",
    "the model's own output sent back in another form",
    "send back the text as it was generated: no stripping, no prefix, no re-serialising",
)
EMBEDDED = Cause(
    "embedded_task",
    "a task or other changing text inside the fixed part",
    "move what changes behind what does not, e.g. from the system into the user message",
)
CAUSES = (DATE, ID, LAST_ASSISTANT, TOOL_ORDER, TOOL_LIST, JSON_KEYS, OWN_OUTPUT, EMBEDDED)
