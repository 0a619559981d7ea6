"""Who called, told from token ids alone: each framework's true agents and sessions against ours.

    python -m evals.clients.identity autogen.jsonl.zst langgraph.jsonl.zst [--pairs]

Takes traces that the clients wrote, in the order and with the overlaps in which they were
recorded, all of them as one stream with ``--together``. Columns as in ``evals.identity_quality``;
*sessions*: how many were found, and how many there were. ``--pairs`` prints how often each true
agent was taken for which inferred one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from evals.identity_quality import Observer
from evals.recorded import RecordedCall
from scout_sglang.replay.formats import token_trace
from scout_sglang.replay.formats.fields import Options
from scout_sglang.replay.timing import Timing, schedule
from scout_sglang.replay.trace import Session


def read(paths: Sequence[Path]) -> list[Session]:
    """The sessions of all traces, in order of their first call.

    Of several traces each has agents of its own, since each framework wraps their prompts.
    """
    sessions = []
    for path in paths:
        prefix = f"{name_of(path)}/" if len(paths) > 1 else ""
        for session in token_trace.read(path, Options()):
            calls = [call._replace(agent=f"{prefix}{call.agent}") for call in session.calls]
            sessions.append(session._replace(calls=calls))
    return sorted(sessions, key=lambda session: session.calls[0].time or 0.0)


def name_of(path: Path) -> str:
    """What a trace is called in tables: its file's name up to the first dot."""
    return path.name.split(".")[0]


def observe(sessions: Sequence[Session], share: float = 0.25) -> Observer:
    """Put the calls through identification as recorded; agents count after the first ``share``."""
    observer = Observer()
    first = share * sum(len(session.calls) for session in sessions)
    now = 0
    for event in schedule(sessions, Timing(), seed=0):
        job = event.job
        if event.starts:
            now += 1
            call = RecordedCall(str(job.call.agent), job.prompt, job.output)
            observer.arrive(job.session_index, call, now, agent_counts=now > first)
        else:
            observer.finish(job.session_index, now)
    return observer


def _row(name: str, observer: Observer) -> str:
    q = observer.quality()
    true, found = ({pair[side] for pair in observer.sessions} for side in (0, 1))
    return (
        f"{name:<16}{observer.sessions.total():>7}{q.right:>8.1%}{q.wrong:>8.1%}{q.missed:>8.1%}"
        f"{q.joined:>8.1%}{len(found):>10}{len(true):>6}{q.v:>7.3f}{q.agents:>8}{q.agents_true:>6}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m evals.clients.identity")
    cli.add_argument("traces", nargs="+", type=Path)
    cli.add_argument("--together", action="store_true", help="also all traces as one stream")
    cli.add_argument("--pairs", action="store_true", help="print true against inferred agents")
    args = cli.parse_args(argv)
    print(f"{'trace':<16}{'calls':>7}{'right':>8}{'wrong':>8}{'missed':>8}{'joined':>8}"
          f"{'sessions':>10}{'true':>6}{'V':>7}{'agents':>8}{'true':>6}")  # fmt: skip
    streams = {name_of(path): [path] for path in args.traces}
    if args.together:
        streams["together"] = args.traces
    for name, paths in streams.items():
        observer = observe(read(paths))
        print(_row(name, observer))
        if args.pairs:
            for (true, found), count in sorted(observer.pairs.items()):
                print(f"    {true:<24} -> {found:<6}{count:>6}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
