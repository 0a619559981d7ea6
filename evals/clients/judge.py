"""What the clients' traffic gains, through the replay lab: recorded traces, no model, a minute.

    python -m evals.clients.judge build/clients/*.jsonl.zst --share 0.5

Replays each trace, and all of them as one stream, with the recorded arrivals and durations, in a
cache of ``--share`` of the working set (``evals.app.footprint``), page size 1, every call counted.
*scout* sees no id, *scout ids* the session id of each call; no agent is ever named.
"""

from __future__ import annotations

import argparse
import json
import logging
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from evals.app.footprint import as_paths, working_set
from evals.clients.identity import name_of, read
from evals.demo import CONFIGS
from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.policies import Setting, build
from scout_sglang.replay.timing import Timing, schedule
from scout_sglang.replay.trace import Session

COLUMNS = {
    "lru": ("lru", False),
    "slru": ("slru", False),
    "tlru": ("tlru", False),
    "cachescout": ("cachescout", True),
    "scout": ("scout", False),
    "scout ids": ("scout", True),
    "belady": ("belady", False),
}
"""What is compared: the lab's policy, and whether it sees session ids."""


def judge(
    sessions: Sequence[Session],
    share: float,
    columns: Sequence[str],
    step: Callable[[str], None] = lambda column: None,
) -> dict[str, Any]:
    """Recomputed tokens of each column on one stream of sessions.

    Raises ValueError if the cache is too small for more than 1 % of the calls.
    """
    nameless = [
        session._replace(
            calls=[call._replace(agent=None, has_session=True) for call in session.calls]
        )
        for session in sessions
    ]
    events = list(schedule(nameless, Timing(), seed=0))
    jobs = [event.job for event in events if event.starts]
    needed = working_set(
        as_paths([job.prompt.tolist() for job in jobs]), [job.session_index for job in jobs]
    )
    longest = max(len(job.prompt) + len(job.output) for job in jobs) + 1
    capacity = max(round(share * needed), longest)
    recomputed: dict[str, int] = {}
    for column in columns:
        policy, ids = COLUMNS[column]
        config = CONFIGS.get(policy, {})
        setting = Setting(
            policy, capacity, 1, longest, needed, lambda: iter(events), ids=ids, config=config
        )
        result = replay(build(setting), events, Result(policy, capacity, 1, 0))
        if result.failed_share > 0.01:
            raise ValueError(f"{result.failed_share:.1%} of the calls found no room: raise --share")
        recomputed[column] = result.recomputed_tokens
        step(column)
    return {
        "calls": len(jobs),
        "prompt_tokens": sum(len(job.prompt) for job in jobs),
        "working_set": needed,
        "capacity": capacity,
        "recomputed_tokens": recomputed,
    }


def line(name: str, found: dict[str, Any]) -> str:
    """One row: the ratio of each column to the first."""
    tokens = found["recomputed_tokens"]
    base = next(iter(tokens.values()))
    cells = "".join(f"{count / base:>12.3f}" for count in tokens.values())
    return f"{name:<15}{found['calls']:>7}{found['capacity']:>10,}{base:>12,}{cells}"


def main(argv: Sequence[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m evals.clients.judge")
    cli.add_argument("traces", nargs="+", type=Path)
    cli.add_argument("--share", type=float, default=0.5, help="of the working set (%(default)s)")
    cli.add_argument("--columns", default=",".join(COLUMNS), help="default: %(default)s")
    cli.add_argument("--json", type=Path, metavar="OUT")
    args = cli.parse_args(argv)
    warnings.filterwarnings("ignore", category=UserWarning)
    logging.getLogger("sglang").setLevel(logging.ERROR)
    columns = args.columns.split(",")
    head = "".join(f"{column:>12}" for column in columns)
    print(f"{'recomputed, as ratio':<15}{'calls':>2}{'cache':>10}{columns[0]:>12}{head}")
    streams = {name_of(path): partial(read, [path]) for path in args.traces}
    if len(args.traces) > 1:
        streams["together"] = partial(read, args.traces)
    found = {}
    for name, sessions in streams.items():
        found[name] = judge(sessions(), args.share, columns)
        print(line(name, found[name]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
