"""What passes between a framework and the server, at the HTTP client that the framework is given.

A tap forwards every request and every streamed byte. It adds two headers, by which SGLang returns
the token ids that it saw, and takes those ids out of the answer again. It lets a reply end with the
function call that the session's plan says: the model's own text stays as it came.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import httpx2

from evals.clients.plan import ToolUse, role_in
from evals.clients.session import ModelCall, SessionRun

Decide = Callable[[str, str], ToolUse | None]
"""From the agent and its text to the function that the reply calls, if any."""

_TOKEN_IDS = {"x-sglext-return-input-ids": "1", "x-sglext-return-output-ids": "1"}
_DONE = b"data: [DONE]"


class AsyncTap(httpx2.AsyncBaseTransport):
    """The transport of the ``httpx2.AsyncClient`` that an OpenAI client is given."""

    def __init__(self, run: SessionRun, decide: Decide) -> None:
        self._run, self._decide = run, decide
        self._server = httpx2.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = Exchange(self._run, self._decide, request)
        response = await self._server.handle_async_request(request)
        if response.status_code != 200:
            await response.aread()
            exchange.refuse(response)
            return response
        stream = _AsyncStream(response, exchange)
        return httpx2.Response(200, headers=response.headers, stream=stream)

    async def aclose(self) -> None:
        await self._server.aclose()


class Tap(httpx2.BaseTransport):
    """The same for clients that block."""

    def __init__(self, run: SessionRun, decide: Decide) -> None:
        self._run, self._decide = run, decide
        self._server = httpx2.HTTPTransport()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        exchange = Exchange(self._run, self._decide, request)
        response = self._server.handle_request(request)
        if response.status_code != 200:
            response.read()
            exchange.refuse(response)
            return response
        return httpx2.Response(200, headers=response.headers, stream=_Stream(response, exchange))

    def close(self) -> None:
        self._server.close()


class _AsyncStream(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response, exchange: Exchange) -> None:
        self._response, self._exchange = response, exchange

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._response.aiter_raw():
            yield self._exchange.feed(data)

    async def aclose(self) -> None:
        await self._response.aclose()


class _Stream(httpx2.SyncByteStream):
    def __init__(self, response: httpx2.Response, exchange: Exchange) -> None:
        self._response, self._exchange = response, exchange

    def __iter__(self) -> Iterator[bytes]:
        for data in self._response.iter_raw():
            yield self._exchange.feed(data)

    def close(self) -> None:
        self._response.close()


class Exchange:
    """One request and its answer; adds a :class:`ModelCall` to the session when it begins.

    Raises ValueError if the framework does not stream.
    """

    def __init__(self, run: SessionRun, decide: Decide, request: httpx2.Request) -> None:
        body = json.loads(request.content)
        if not body.get("stream"):
            raise ValueError("the framework asked for an answer in one piece, not for a stream")
        request.headers.update(_TOKEN_IDS)
        system = _text(body["messages"][0])
        self.call = ModelCall(role_in(system) or "other", time.time(), "session_id" in body)
        self._decide = decide
        self._begun = time.perf_counter()
        self._rest = b""
        self._text = ""
        self._number = len(run.calls)
        run.calls.append(self.call)

    def refuse(self, response: httpx2.Response) -> None:
        """The server answered with an error."""
        self.call.error = f"{response.status_code}: {response.text[:300]}"
        self.call.latency_ms = self._elapsed()

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the server's event stream; what the framework is to see of them."""
        *events, self._rest = (self._rest + data).split(b"\n\n")
        return b"".join(self._shown(event) for event in events)

    def _shown(self, event: bytes) -> bytes:
        if event == _DONE:
            self.call.latency_ms = self._elapsed()
        if event == _DONE or not event.startswith(b"data: "):
            return event + b"\n\n"
        chunk = json.loads(event[len(b"data: ") :])
        if "error" in chunk:
            self.call.error = str(chunk["error"])[:300]
        if ids := chunk.pop("sglext", None):
            self.call.prompt, self.call.output = ids["input_ids"], ids["output_ids"][0]
            return b""
        if usage := chunk.get("usage"):
            self.call.prompt_tokens = usage["prompt_tokens"]
            details = usage.get("prompt_tokens_details") or {}
            self.call.cached_tokens = details.get("cached_tokens") or 0
        shown = [chunk]
        for choice in chunk.get("choices", ()):
            # The server sends the first event that has a choice with the first token.
            self.call.ttft_ms = self.call.ttft_ms or self._elapsed()
            self._text += choice["delta"].get("content") or ""
            if choice.get("finish_reason"):
                shown = self._ending(chunk, choice)
        return b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for one in shown)

    def _ending(self, chunk: dict[str, Any], choice: dict[str, Any]) -> list[dict[str, Any]]:
        """The last chunk of the text, with a function call before it where one is planned."""
        use = self._decide(self.call.agent, self._text)
        if use is None:
            return [chunk]
        self.call.uses.append(use.name)
        function = {"name": use.name, "arguments": json.dumps(use.arguments)}
        made = {"index": 0, "id": f"call_{self._number:04d}", "type": "function"}
        delta = {"role": "assistant", "tool_calls": [{**made, "function": function}]}
        choice["finish_reason"] = "tool_calls"
        return [{**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}, chunk]

    def _elapsed(self) -> float:
        return 1000 * (time.perf_counter() - self._begun)


def _text(message: dict[str, Any]) -> str:
    """The text of a message whose content is a string or a list of parts."""
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text", "") for part in content)
