"""Sends a workload to a server over the OpenAI chat API and notes what came back."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from evals.app.workload import Call, Message, Workload


class RequestFailedError(RuntimeError):
    """The server refused or broke off a request; names the call and quotes the answer."""


@dataclass(frozen=True)
class Settings:
    """How calls are sent.

    `ids` puts `session_id` into each body, `end_labels` marks the last call of a session in
    `custom_params`, `in_flight` bounds the calls that run at once, `logprobs` asks for the best
    tokens at each step.
    """

    max_tokens: int = 4
    ids: bool = True
    end_labels: bool = False
    in_flight: int = 2
    logprobs: int = 0
    timeout_seconds: float = 300


@dataclass(frozen=True)
class Reply:
    """What one call brought: the text, the token counts of its usage, and times in ms."""

    index: int
    session: str
    agent: str
    messages_sha256: str
    text: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    ttft_ms: float
    latency_ms: float
    logprobs: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Run:
    """One pass over the workload: messages and replies in the order of its calls."""

    requests: list[list[Message]]
    replies: list[Reply]
    seconds: float

    def save(self, path: Path) -> None:
        """Write one JSON object per reply."""
        path.write_text("".join(json.dumps(asdict(reply)) + "\n" for reply in self.replies))


async def drive(
    url: str,
    workload: Workload,
    settings: Settings,
    *,
    replay: list[list[Message]] | None = None,
    on_reply: Callable[[Reply], None] = lambda reply: None,
) -> Run:
    """Send all calls in the order of the workload and wait for the last reply.

    A call leaves when the call before it has left, its session's previous turn has come back,
    and fewer than `settings.in_flight` calls are under way. So the order of arrival is the same
    on a slow and on a fast server. With `replay` the messages are taken from there, otherwise
    they are built from the model's own answers.

    Raises RequestFailedError at the first request that fails.
    """
    requests: list[list[Message]] = [[] for _ in workload.calls]
    replies: list[Reply | None] = [None for _ in workload.calls]
    outputs: list[list[str]] = [[] for _ in workload.sessions]
    back = {call: asyncio.Event() for call in workload.calls}
    pending = iter(enumerate(workload.calls))
    gate = asyncio.Lock()

    async def next_call() -> tuple[int, Call] | None:
        async with gate:
            index, call = next(pending, (-1, None))
            if call is None:
                return None
            if call.turn:
                await back[Call(call.session, call.turn - 1)].wait()
            return index, call

    async def work(http: aiohttp.ClientSession) -> None:
        while taken := await next_call():
            index, call = taken
            messages = replay[index] if replay else workload.messages(call, outputs[call.session])
            requests[index] = messages
            reply = await _send(http, workload, index, messages, settings)
            replies[index] = reply
            outputs[call.session].append(reply.text)
            back[call].set()
            on_reply(reply)

    timeout = aiohttp.ClientTimeout(total=settings.timeout_seconds)
    async with aiohttp.ClientSession(url, timeout=timeout) as http:
        started = time.perf_counter()
        await _all(work(http) for _ in range(settings.in_flight))
        seconds = time.perf_counter() - started
    return Run(requests, [reply for reply in replies if reply], seconds)


async def _all(workers: Iterator[Any]) -> None:
    """Run all workers; when one fails, stop the others and raise its error."""
    tasks = [asyncio.ensure_future(worker) for worker in workers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def request_body(
    workload: Workload, call: Call, messages: list[Message], settings: Settings
) -> dict[str, Any]:
    """The JSON body of a streaming chat completion at temperature 0."""
    body: dict[str, Any] = {
        "model": "default",
        "messages": messages,
        "max_tokens": settings.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if settings.ids:
        body["session_id"] = workload.sessions[call.session].id
    if settings.end_labels and workload.is_last(call):
        body["custom_params"] = {"scout": {"end_of_session": True}}
    if settings.logprobs:
        body |= {"logprobs": True, "top_logprobs": settings.logprobs}
    return body


async def _send(
    http: aiohttp.ClientSession,
    workload: Workload,
    index: int,
    messages: list[Message],
    settings: Settings,
) -> Reply:
    call = workload.calls[index]
    body = request_body(workload, call, messages, settings)
    text, usage, first = "", None, None
    logprobs: list[Any] = []
    started = time.perf_counter()
    try:
        async with http.post("/v1/chat/completions", json=body) as response:
            if response.status != 200:
                raise RequestFailedError(
                    f"Call {index} was answered with {response.status}: {await response.text()}"
                )
            async for event in _events(response):
                if "error" in event:
                    raise RequestFailedError(f"Call {index} broke off: {event['error']}")
                # The server sends the first event that has a choice with the first token.
                for choice in event["choices"]:
                    first = first or time.perf_counter()
                    text += choice["delta"].get("content") or ""
                    logprobs += (choice.get("logprobs") or {}).get("content") or []
                usage = event.get("usage") or usage
    except (aiohttp.ClientError, asyncio.TimeoutError) as error:
        raise RequestFailedError(f"Call {index} got no answer: {error!r}") from error
    ended = time.perf_counter()
    if usage is None or first is None:
        raise RequestFailedError(f"Call {index} came back without a token or without usage")
    return Reply(
        index=index,
        session=workload.sessions[call.session].id,
        agent=workload.role(call),
        messages_sha256=hashlib.sha256(json.dumps(messages).encode()).hexdigest(),
        text=text,
        prompt_tokens=usage["prompt_tokens"],
        cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0,
        completion_tokens=usage["completion_tokens"],
        ttft_ms=1000 * (first - started),
        latency_ms=1000 * (ended - started),
        logprobs=logprobs,
    )


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    """The JSON objects of a server-sent event stream, up to its [DONE]."""
    async for line in response.content:
        if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
            yield json.loads(line[6:])
