"""Sends the calls of a trace to a live server: sessions arrive whether or not it keeps up.

Arrivals and the pauses between the calls of a session come from the lab's timing model and a
seed, so every server meets the same ones. Prompts go out as token ids; each call generates as many
tokens as were recorded.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

import aiohttp
import numpy as np

from evals.serving.samples import Run, Sample
from scout_sglang.replay.timing import Timing
from scout_sglang.replay.trace import Session, TraceCall


class CallFailedError(RuntimeError):
    """The server refused a call or broke it off; quotes the answer."""


async def drive(
    url: str,
    sessions: Sequence[Session],
    timing: Timing,
    *,
    seed: int,
    ids: bool,
    timeout_seconds: float = 600,
) -> Run:
    """Send all sessions, open loop, and wait for the last answer.

    A session begins at its arrival; each of its calls leaves one pause after the answer before.
    """
    rng = np.random.default_rng((seed, 0))
    gaps = rng.exponential(1 / timing.sessions_per_second, len(sessions))
    timeout = aiohttp.ClientTimeout(total=timeout_seconds)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(url, timeout=timeout, connector=connector) as http:
        begun = time.perf_counter()

        async def serve(index: int, due: float) -> list[Sample]:
            await asyncio.sleep(max(0.0, begun + due - time.perf_counter()))
            pauses = np.random.default_rng((seed, 1, index))
            session, samples = sessions[index], []
            for call in session.calls:
                await asyncio.sleep(timing.gap(call.gap, pauses))
                samples.append(await _send(http, session, call, ids))
            return samples

        served = await asyncio.gather(
            *(serve(index, due) for index, due in enumerate(np.cumsum(gaps).tolist())),
            return_exceptions=True,
        )
    samples: list[Sample] = []
    broken = 0
    for outcome in served:
        if isinstance(outcome, CallFailedError):
            broken += 1
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            samples += outcome
    return Run(samples, broken)


def request_body(session: Session, call: TraceCall, ids: bool) -> dict[str, Any]:
    """The native request of one call: exactly the recorded prompt, as many tokens as recorded."""
    body: dict[str, Any] = {
        "input_ids": session.prompt(call).tolist(),
        "sampling_params": {
            "max_new_tokens": max(1, len(session.output(call))),
            "temperature": 0,
            "ignore_eos": True,
        },
        "stream": True,
    }
    if ids:
        body["session_id"] = session.name
    return body


async def _send(
    http: aiohttp.ClientSession, session: Session, call: TraceCall, ids: bool
) -> Sample:
    started = time.perf_counter()
    first = 0.0
    meta: dict[str, Any] = {}
    try:
        async with http.post("/generate", json=request_body(session, call, ids)) as response:
            if response.status != 200:
                raise CallFailedError(f"{response.status}: {await response.text()}")
            async for line in response.content:
                if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
                    first = first or time.perf_counter()
                    event = json.loads(line[len(b"data: ") :])
                    if "meta_info" not in event:
                        raise CallFailedError(line.decode()[:300])
                    meta = event["meta_info"]
    except (aiohttp.ClientError, asyncio.TimeoutError) as error:
        raise CallFailedError(repr(error)) from error
    if not meta:
        raise CallFailedError("the answer ended before its first token")
    return Sample(
        session=session.name,
        started=started,
        ttft_ms=1000 * (first - started),
        latency_ms=1000 * (time.perf_counter() - started),
        prompt_tokens=meta["prompt_tokens"],
        cached_tokens=meta["cached_tokens"],
        output_tokens=meta["completion_tokens"],
    )
