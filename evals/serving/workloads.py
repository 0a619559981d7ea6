"""What can be sent: a recorded trace, the demo's application, or agent frameworks themselves."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evals.app.footprint import as_paths, working_set
from evals.app.routing import ROUTINGS
from evals.app.team import load_team
from evals.app.workload import Call, build_workload
from evals.clients import together
from evals.demo import Tokenizer, dry_prompts
from evals.serving import bench_tool
from evals.serving.load import drive
from evals.serving.samples import Run, Sample
from scout_sglang.replay.formats.detect import reader_for
from scout_sglang.replay.formats.fields import Options
from scout_sglang.replay.timing import Timing, schedule
from scout_sglang.replay.trace import Session, TraceCall

Send = Callable[[str, float, int, Path], Run]
"""From a server's address, sessions a second, a seed and a folder for logs to what came back."""

_ROOT = Path(__file__).parents[2]
CLIENTS_PYTHON = _ROOT / os.environ.get("CLIENTS_PYTHON", "build/clients-venv/bin/python")
"""Interpreter that has the agent frameworks: their requirements differ from SGLang's."""


class Workload(NamedTuple):
    """``sessions`` are known before a server runs, but for the frameworks' own (empty)."""

    name: str
    send: Send
    sessions: Sequence[Session]


def from_trace(name: str, sessions: Sequence[Session], timing: Timing, ids: bool) -> Workload:
    """Recorded sessions, in an order drawn with the seed, at Poisson arrivals."""

    def send(url: str, rate: float, seed: int, logs: Path) -> Run:
        order = np.random.default_rng((seed, 2)).permutation(len(sessions))
        chosen = [sessions[index] for index in order]
        at_rate = replace(timing, sessions_per_second=rate)
        return asyncio.run(drive(url, chosen, at_rate, seed=seed, ids=ids))

    return Workload(name, send, sessions)


def trace_sessions(path: Path, most: int) -> list[Session]:
    """The first sessions of a file in any format of the lab.

    Raises TraceError as the lab does.
    """
    options = Options()
    sessions: list[Session] = []
    for session in reader_for(path, options)(path, options):
        if len(sessions) == most:
            break
        sessions.append(session)
    return sessions


def app_sessions(routing: str, count: int, seed: int, model: str, max_tokens: int) -> list[Session]:
    """The demo's six agents as a trace, with stand-ins of ``max_tokens`` tokens for the answers.

    Raises ValueError for an unknown routing.
    """
    if routing not in ROUTINGS:
        raise ValueError(f"app: must name one of {', '.join(ROUTINGS)}, not {routing!r}")
    built = build_workload(
        load_team(), seed=seed, routing=routing, sessions=count, sessions_live=count
    )
    tokenizer = Tokenizer(model)
    prompts = dict(zip(built.calls, dry_prompts(built, tokenizer, max_tokens), strict=True))
    answer = np.asarray(tokenizer.encode(" ".join(["answer"] * max_tokens)), dtype=np.int32)
    made = []
    for number, session in enumerate(built.sessions):
        segments, calls = [answer], []
        for turn, step in enumerate(session.turns):
            segments.append(np.asarray(prompts[Call(number, turn)], dtype=np.int32))
            gap = "tool" if turn else "start"
            calls.append(TraceCall(step.role, (turn + 1,), 0, gap))
        made.append(Session(session.id, segments, calls))
    return made


def frameworks(
    names: Sequence[str], sessions: int, ids: bool, more: Sequence[str] = ()
) -> Workload:
    """Agent frameworks side by side, each with ``sessions`` sessions at the given rate."""

    def send(url: str, rate: float, seed: int, logs: Path) -> Run:
        options = ["--url", url, "--sessions", str(sessions), "--seed", str(seed)]
        options += ["--rate", str(rate), *(["--session-ids"] if ids else []), *more]
        summaries = together.run_all(logs, names, options, str(CLIENTS_PYTHON))
        samples = [Sample(**call) for s in summaries.values() for call in s["each"]]
        broken = sum(summary["sessions"] - summary["finished"] for summary in summaries.values())
        return Run(samples, broken)

    return Workload(f"clients:{','.join(names)}", send, ())


def bench(name: str, requests: int, model: str) -> Workload:
    """One of the workloads of SGLang's own tool.

    Raises ValueError for an unknown one.
    """
    if name not in bench_tool.WORKLOADS:
        known = ", ".join(bench_tool.WORKLOADS)
        raise ValueError(f"bench: must name some of {known}, not {name!r}")

    def send(url: str, rate: float, seed: int, logs: Path) -> Run:
        return bench_tool.bench(name, url, model, logs, requests=requests, rate=rate, seed=seed)

    return Workload(f"bench:{name}", send, ())


def needed_tokens(sessions: Sequence[Session], timing: Timing) -> int:
    """The working set: see ``evals.app.footprint``, over the calls in the order they arrive."""
    jobs = [event.job for event in schedule(sessions, timing, seed=0) if event.starts]
    paths = as_paths([job.prompt.tolist() for job in jobs])
    return working_set(paths, [job.session_index for job in jobs])
