"""``python -m evals.memory``: does the lab's memory grow with the length of the trace?

A workload is replayed at its length and at ten times that, each in a process of its own; shown is
by how much the replay raised the peak of resident memory. ``describe`` and ``plan`` are the passes
before a replay and for ``--plan``: they follow up to 400,000 pages and grow until then. Bounds and
rivals that know the trace (belady, belady-leaf, infinite, lfu-da, lhd, ttl, kvflow) hold all of it
by their nature. All else must be flat.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from typing import NamedTuple

from scout_sglang.replay import synthetic
from scout_sglang.replay.describe import describe
from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.policies import Setting, build
from scout_sglang.replay.stack import stack_curve
from scout_sglang.replay.timing import Event, schedule

TIMES = 10
LONGEST = 16_384
"""Prompt and output of one call, in tokens: more than any workload's."""


class Peak(NamedTuple):
    """``before``, ``after``: peak of resident memory in bytes."""

    calls: int
    before: int
    after: int


def measure(what: str, workload: str, sessions: int, capacity: int) -> Peak:
    """Replay in a fresh interpreter; ``what``: a policy, describe or plan."""
    request = json.dumps([what, workload, sessions, capacity])
    command = [sys.executable, "-m", "evals.memory", "--child", request]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return Peak(*json.loads(done.stdout.splitlines()[-1]))


def replay_here(what: str, workload: str, sessions: int, capacity: int) -> Peak:
    """Replay in this process, after a short one: code and tables are no growth."""
    _run(what, f"{workload}?sessions=20", capacity)
    before = _peak()
    calls = _run(what, f"{workload}?sessions={sessions}", capacity)
    return Peak(calls, before, _peak())


def _run(what: str, name: str, capacity: int) -> int:
    """The number of calls."""
    timing, _ = synthetic.setting(name)

    def events() -> Iterator[Event]:
        return schedule(synthetic.trace(name), timing, 0)

    if what == "describe":
        describe(events, 16)
    elif what == "plan":
        stack_curve(events(), 16)
    else:
        setting = Setting(what, capacity, 16, LONGEST, 0, events)
        return replay(build(setting), events(), Result(what, capacity, 16, 0)).calls
    return sum(event.starts for event in events())


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    cli = argparse.ArgumentParser(prog="python -m evals.memory")
    cli.add_argument("--policies", default="describe,plan,lru,cachescout,scout")
    cli.add_argument("--workload", default="mix24", help="a synthetic preset")
    cli.add_argument("--sessions", type=int, default=400)
    cli.add_argument("--capacity", type=int, default=12_000)
    cli.add_argument("--child", help=argparse.SUPPRESS)
    args = cli.parse_args()
    if args.child:
        print(json.dumps(replay_here(*json.loads(args.child))))
        return 0
    print("| | calls | growth, MiB | calls | growth, MiB |\n|---|---|---|---|---|")
    for what in args.policies.split(","):
        cells = [what]
        for sessions in (args.sessions, TIMES * args.sessions):
            peak = measure(what, args.workload, sessions, args.capacity)
            cells += [f"{peak.calls:,}", f"{(peak.after - peak.before) / 2**20:.1f}"]
        print("| " + " | ".join(cells) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
