"""``python -m evals.demo_replay``: the demo's calls through the replay lab, without a model.

`make demo` shows one routing and one seed, since a model on a CPU takes minutes for each policy.
The same calls replayed on SGLang's cache classes take seconds, so that routings and seeds can be
compared: tokens computed again, as ratio to lru. Answers are stand-ins of the same length.
"""

from __future__ import annotations

import argparse
import logging
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from statistics import fmean

import numpy as np
from rich.console import Console
from rich.table import Table

from evals import demo
from evals.app.footprint import as_paths, working_set
from evals.app.routing import ROUTINGS
from evals.app.team import load_team
from evals.app.workload import Workload, build_workload
from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.policies import Setting, build
from scout_sglang.replay.timing import Event, Job
from scout_sglang.replay.trace import Session, TraceCall


def main(argv: Sequence[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m evals.demo_replay", description=__doc__)
    cli.add_argument("--routings", default=",".join(ROUTINGS))
    cli.add_argument("--seeds", type=int, default=4)
    cli.add_argument("--policies", default=",".join(demo.POLICIES))
    cli.add_argument("--no-ids", dest="ids", action="store_false")
    cli.add_argument("--model-path", default="embedded", help="whose tokenizer to use")
    args = cli.parse_args(argv)
    warnings.filterwarnings("ignore", category=UserWarning)
    logging.getLogger("sglang").setLevel(logging.ERROR)
    tokenizer = demo.Tokenizer(args.model_path)
    names = list(dict.fromkeys(["lru", *args.policies.split(",")]))
    table = Table("routing", "seed", *names, title="Recomputed tokens, as ratio to lru")
    lines = []
    for routing in args.routings.split(","):
        for seed in range(1, args.seeds + 1):
            lines.append(ratios(routing, seed, names, tokenizer, args.ids))
            table.add_row(routing, str(seed), *(f"{ratio:.3f}" for ratio in lines[-1]))
    table.add_row("mean", "", *(f"{fmean(column):.3f}" for column in zip(*lines, strict=True)))
    Console().print(table)
    return 0


def ratios(
    routing: str, seed: int, policies: Sequence[str], tokenizer: demo.Tokenizer, ids: bool
) -> list[float]:
    """Recomputed tokens of each policy over those of the first, at the demo's default size."""
    options = demo.parse(["--routing", routing, "--seed", str(seed)])
    workload = build_workload(
        load_team(),
        seed=seed,
        routing=routing,
        sessions=options.sessions,
        sessions_live=options.sessions_live,
    )
    prompts = demo.dry_prompts(workload, tokenizer, options.max_tokens)
    needed = working_set(as_paths(prompts), [call.session for call in workload.calls])
    answer = tokenizer.encode(" ".join(["answer"] * options.max_tokens))
    events = list(calls(workload, prompts, answer, options.in_flight))
    capacity = demo.cache_size(prompts, needed, options)
    longest = max(map(len, prompts)) + len(answer)
    recomputed = []
    for policy in policies:
        config = demo.CONFIGS.get(policy, {})
        setting = Setting(
            policy, capacity, 1, longest, needed, lambda: iter(events), ids=ids, config=config
        )
        result = replay(build(setting), events, Result(policy, capacity, 1, seed))
        recomputed.append(result.recomputed_tokens)
    return [tokens / recomputed[0] for tokens in recomputed]


def calls(
    workload: Workload, prompts: Sequence[list[int]], answer: list[int], in_flight: int
) -> Iterator[Event]:
    """The demo's calls in their order, the oldest ending when another has to start."""
    running: deque[Job] = deque()
    for number, (call, prompt) in enumerate(zip(workload.calls, prompts, strict=True)):
        if len(running) >= in_flight:
            yield Event(float(number), False, running.popleft())
        tokens = [np.array(ids, dtype=np.int32) for ids in (prompt, answer)]
        # The lab knows a session's last call by its place: one call, or one of two.
        steps = [TraceCall(None, (0,), 1)] * (1 if workload.is_last(call) else 2)
        job = Job(number, call.session, Session(str(call.session), tokens, steps), 0, float(number))
        running.append(job)
        yield Event(float(number), True, job)
    for job in running:
        yield Event(float(len(prompts)), False, job)


if __name__ == "__main__":
    raise SystemExit(main())
