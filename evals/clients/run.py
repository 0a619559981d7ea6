"""What all clients share: the command line, when sessions arrive, the report and the trace.

    python -m evals.clients.autogen --url http://127.0.0.1:30000 --sessions 8 --seed 1 \\
        --record autogen.jsonl.zst

The exit code is 1 if a session broke off or a request failed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from evals.app.routing import ROUTINGS
from evals.clients.plan import make_plans
from evals.clients.record import summarise, write_trace
from evals.clients.session import SessionRun


class Options(NamedTuple):
    """``url``: of the API, with ``/v1``; ``timeout``: seconds for one request."""

    url: str
    max_tokens: int
    timeout: float


RunSession = Callable[[SessionRun, Options], Awaitable[None]]


def parser(framework: str) -> argparse.ArgumentParser:
    cli = argparse.ArgumentParser(prog=f"python -m evals.clients.{framework}")
    add = cli.add_argument
    add("--url", required=True, help="of the server, such as http://127.0.0.1:30000")
    add("--sessions", type=int, default=4, help="user tasks in all (%(default)s)")
    add("--seed", type=int, default=0, help="of tasks, routes, tools, arrivals (%(default)s)")
    add("--routing", choices=list(ROUTINGS), default="selector", help="default: %(default)s")
    add("--rate", type=float, default=0.0, help="sessions a second, Poisson; 0: all at once")
    add("--session-ids", action="store_true", help="send a session_id with each request")
    add("--max-tokens", type=int, default=24, help="output tokens a call (%(default)s)")
    add("--timeout", type=float, default=600.0, help="seconds for one request (%(default)s)")
    add("--record", type=Path, metavar="OUT", help="write a token trace here")
    add("--json", type=Path, metavar="OUT", help="write the summary here")
    return cli


def main(framework: str, run_session: RunSession, argv: Sequence[str] | None = None) -> int:
    """Run a framework's sessions; the exit code."""
    args = parser(framework).parse_args(argv)
    options = Options(f"{args.url.rstrip('/')}/v1", args.max_tokens, args.timeout)
    plans = make_plans(framework, args.sessions, args.seed, args.routing)
    runs = [SessionRun(plan, ids=args.session_ids) for plan in plans]
    begun = time.perf_counter()
    asyncio.run(_arrive(runs, run_session, options, args.rate, Random(f"{framework}:{args.seed}")))
    summary = summarise(framework, runs, time.perf_counter() - begun)
    if args.record:
        write_trace(args.record, framework, runs)
    if args.json:
        args.json.write_text(json.dumps(summary, indent=2) + "\n")
    print(_line(summary), flush=True)
    for run in runs:
        for error in (*run.errors, *(call.error for call in run.calls if call.error)):
            print(f"{run.plan.name}: {error}", file=sys.stderr)
    return 0 if summary["finished"] == args.sessions and not summary["errors"] else 1


async def _arrive(
    runs: Sequence[SessionRun], run_session: RunSession, options: Options, rate: float, rng: Random
) -> None:
    """Start each session at its time, whether or not earlier ones have ended."""
    # Frameworks run tools, and smolagents whole sessions, in threads of the loop's executor.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2 * len(runs) + 4))
    due, tasks = 0.0, []
    begun = time.perf_counter()
    for run in runs:
        due += rng.expovariate(rate) if rate else 0.0
        await asyncio.sleep(max(0.0, begun + due - time.perf_counter()))
        tasks.append(asyncio.create_task(_finish(run, run_session, options)))
    await asyncio.gather(*tasks)


async def _finish(run: SessionRun, run_session: RunSession, options: Options) -> None:
    try:
        await run_session(run, options)
    except Exception as error:  # one session's failure is reported and leaves the others alone
        run.errors.append(f"{type(error).__name__}: {error}"[:500])
    else:
        run.finished = run.next_role() is None


def _line(summary: dict[str, Any]) -> str:
    ttft, turn = summary["ttft_ms"], summary["turn_ms"]
    return (
        f"{summary['framework']}: {summary['finished']} of {summary['sessions']} sessions finished "
        f"in {summary['seconds']:.0f} s, {summary['calls']} calls, {summary['tools_run']} tools "
        f"run, {summary['errors']} errors; {summary['prompt_tokens']:,} prompt tokens, "
        f"{summary['recomputed_tokens']:,} computed; TTFT mean {ttft['mean']:,.0f} ms, p99 "
        f"{ttft['p99']:,.0f}; turn mean {turn['mean']:,.0f} ms"
    )
