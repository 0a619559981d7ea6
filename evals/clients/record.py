"""From the calls of a client's sessions to its numbers and to a trace that the lab replays."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from evals.clients.session import ModelCall, SessionRun
from evals.clients.tools import TOOLS_OF
from scout_sglang.replay.convert import convert
from scout_sglang.replay.trace import Session, TraceCall

_TOOLS = {name for names in TOOLS_OF.values() for name in names}


def write_trace(path: Path, name: str, runs: Sequence[SessionRun]) -> int:
    """Write the sessions with true agents and times, without failed calls; the number written."""
    sessions = [_session(run) for run in runs if any(call.prompt for call in run.calls)]
    sessions.sort(key=lambda session: session.calls[0].time or 0.0)
    return convert(name, sessions, path)


def _session(run: SessionRun) -> Session:
    segments, calls = [], []
    gap = "start"
    for call in run.calls:
        if not call.prompt:
            continue
        segments += [np.asarray(ids, dtype=np.int32) for ids in (call.prompt, call.output)]
        calls.append(
            TraceCall(
                agent=call.agent,
                prompt=(len(segments) - 2,),
                output=len(segments) - 1,
                gap=gap,
                time=round(call.started, 4),
                duration=round(call.latency_ms / 1000, 4),
                has_session=call.has_session,
            )
        )
        gap = "tool" if _TOOLS.intersection(call.uses) else "llm"
    return Session(run.plan.name, segments, calls)


def summarise(framework: str, runs: Sequence[SessionRun], seconds: float) -> dict[str, Any]:
    """Counts, tokens and times of one client; every call counts."""
    calls = [call for run in runs for call in run.calls]
    prompt = sum(call.prompt_tokens for call in calls)
    cached = sum(call.cached_tokens for call in calls)
    return {
        "framework": framework,
        "sessions": len(runs),
        "finished": sum(run.finished for run in runs),
        "seconds": round(seconds, 1),
        "calls": len(calls),
        "tools_run": sum(run.tools.used.total() for run in runs),
        "errors": sum(len(run.errors) for run in runs) + sum(bool(call.error) for call in calls),
        "prompt_tokens": prompt,
        "recomputed_tokens": prompt - cached,
        "hit_rate": round(cached / prompt, 4) if prompt else 0.0,
        "ttft_ms": spread([call.ttft_ms for call in calls if call.ttft_ms]),
        "turn_ms": spread([ms for run in runs for ms in turns_of(run.calls)]),
        "each": [
            {
                "session": run.plan.name,
                "started": call.started,
                "ttft_ms": round(call.ttft_ms, 1),
                "latency_ms": round(call.latency_ms, 1),
                "prompt_tokens": call.prompt_tokens,
                "cached_tokens": call.cached_tokens,
                "output_tokens": len(call.output),
            }
            for run in runs
            for call in run.calls
            if not call.error
        ],
    }


def turns_of(calls: Sequence[ModelCall]) -> list[float]:
    """Milliseconds of each turn: from an agent's first request to the end of its last answer."""
    turns: list[float] = []
    agent, begun = "", 0.0
    for call in calls:
        if call.agent != agent:
            agent, begun = call.agent, call.started
            turns.append(0.0)
        turns[-1] = 1000 * (call.started - begun) + call.latency_ms
    return turns


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean, median and 99th percentile; zeros where there is nothing."""
    if not values:
        return {"mean": 0.0, "p50": 0.0, "p99": 0.0}
    p50, p99 = np.percentile(values, [50, 99])
    return {
        "mean": round(float(np.mean(values)), 1),
        "p50": round(float(p50), 1),
        "p99": round(float(p99), 1),
    }
