"""Prompts out of a log: Chat Completions requests, or SGLang's own request log.

The formats are those of the replay lab (``scout_sglang.replay.formats``), read here for their
text instead of for their tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from scout_sglang.doctor.prompts import Prompt, parts_of_messages, parts_of_text, text_of
from scout_sglang.replay.formats import chat_log, sglang_log
from scout_sglang.replay.formats.fields import Line, Options, checked_lines
from scout_sglang.replay.formats.rendering import Renderer, renderer
from scout_sglang.replay.trace import TraceError

_NOT_A_CALL = "HEALTH_CHECK"


def read_prompts(path: Path, options: Options) -> Iterator[Prompt]:
    """The calls of a log, in its order.

    Raises:
        TraceError: the file cannot be read, holds no text, or is in no known format.
    """
    read: Callable[[Line, Renderer], Prompt | None] | None = None
    render = renderer(options.tokenizer)
    for line in checked_lines(path, options):
        if read is None:
            read = _reader(line)
        with options.skipping():
            prompt = read(line, render)
            if prompt is not None and prompt.parts:
                yield prompt
    if read is None:
        raise TraceError(f"{path}: the file is empty")


def count_tokens(render: Renderer, text: str) -> int:
    """Tokens of a text without the mark that ends an answer."""
    return len(render.answer(text)) - len(render.answer(""))


def _reader(first: Line) -> Callable[[Line, Renderer], Prompt | None]:
    if chat_log.recognises(first.value):
        return _chat
    if sglang_log.recognises(first.value):
        return _server
    raise first.error(
        "no prompt text to look at; accepted: Chat Completions requests with 'messages', or "
        "SGLang's log of --log-requests --log-requests-level 3 --log-requests-format json"
    )


def _chat(line: Line, render: Renderer) -> Prompt:
    body = line.optional("request", dict) or line.value
    messages = line.get("messages", list, within=body)
    if not messages or not all(
        isinstance(m, dict) and isinstance(m.get("role"), str) for m in messages
    ):
        raise line.error("field 'messages' must be a list of objects, each with a 'role'")
    tools = line.optional("tools", list, within=body)
    parts = parts_of_messages(messages, tools, bool(body.get("continue_final_message")))
    label = _label(body.get("custom_params"))
    return Prompt(
        line=line.number,
        parts=parts,
        output=_answer(line),
        size=sum(count_tokens(render, part.text) for part in parts),
        agent=_name(label.get("agent")),
        session=_name(
            label.get("session") or body.get("session_id") or body.get("conversation_id")
        ),
        namespace=(body.get("extra_key"), body.get("cache_salt")),
    )


def _answer(line: Line) -> str:
    response = line.value.get("response")
    if isinstance(response, dict) and response.get("choices"):
        response = response["choices"][0].get("message", {})
    if isinstance(response, dict):
        return text_of(response)
    return response if isinstance(response, str) else ""


def _server(line: Line, render: Renderer) -> Prompt | None:
    if line.value.get("event") != "request.finished":
        return None
    if str(line.value.get("rid", "")).startswith(_NOT_A_CALL):
        return None
    request, answer = line.get("obj", dict), line.get("out", dict)
    text = line.optional("text", str, within=request)
    if text is None:
        raise line.error("the prompt's text is missing: log with --log-requests-level 3")
    label = _label((request.get("sampling_params") or {}).get("custom_params"))
    ids = request.get("input_ids")
    output_ids = answer.get("output_ids")
    return Prompt(
        line=line.number,
        parts=parts_of_text(text),
        output=line.optional("text", str, within=answer) or "",
        size=len(ids) if ids else count_tokens(render, text),
        agent=_name(label.get("agent")),
        session=_name(label.get("session") or request.get("session_id")),
        namespace=(request.get("extra_key"), request.get("cache_salt")),
        ids=line.tokens("input_ids", ids) if ids else None,
        output_ids=line.tokens("output_ids", output_ids) if output_ids else None,
    )


def _label(params: Any) -> dict[str, Any]:
    label = params.get("scout") if isinstance(params, dict) else None
    return label if isinstance(label, dict) else {}


def _name(value: Any) -> str | None:
    return None if value is None else str(value)
