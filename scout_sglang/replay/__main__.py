"""``python -m scout_sglang.replay``: would scout help my traffic?"""

from __future__ import annotations

import argparse
import functools
import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from scout_sglang.replay import planner, presets, report, synthetic
from scout_sglang.replay.command_line import (
    DEFAULT_CAPACITIES,
    DEFAULT_POLICIES,
    TIMING_OPTIONS,
    parser,
)
from scout_sglang.replay.convert import convert
from scout_sglang.replay.describe import TraceFacts, describe
from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.formats.detect import reader_for
from scout_sglang.replay.formats.fields import Options
from scout_sglang.replay.policies import BUILDERS, Setting, build
from scout_sglang.replay.stack import StackCurve, stack_curve
from scout_sglang.replay.timing import Event, Timing, schedule
from scout_sglang.replay.trace import FileTrace, Session, Trace, TraceError

if TYPE_CHECKING:
    from rich.console import Console


def main(argv: Sequence[str] | None = None) -> int:
    args = parser().parse_args(argv)
    warnings.filterwarnings("ignore", category=UserWarning)
    logging.getLogger("sglang").setLevel(logging.ERROR)
    reports = []
    try:
        if args.convert:
            _convert(args)
            return 0
        for source in args.traces:
            measured = measure(source, args)
            _show(measured, args.plot)
            reports.append(measured.as_json())
    except (TraceError, ValueError) as error:
        print(f"replay: error: {error}", file=sys.stderr)
        return 2
    if args.json:
        report.write_json(args.json, reports)
    return 0


class Measured(NamedTuple):
    """One trace under every policy. ``curve``: page-wise LRU, with ``--plan`` only."""

    source: str
    facts: TraceFacts
    results: list[Result]
    skipped: list[str]
    curve: StackCurve | None

    def as_json(self) -> dict[str, Any]:
        """The report that README.md describes."""
        body = report.as_json(self.source, self.facts, self.results)
        return {**body, "plan": planner.as_json(self.curve, self.results)} if self.curve else body


def measure(source: str, args: argparse.Namespace) -> Measured:
    """Replay one trace as the arguments of :func:`parser` say.

    Raises:
        ValueError: an option is wrong, or the trace cannot be read.
    """
    options = Options(lenient=args.lenient, tokenizer=args.tokenizer)
    trace = load(source, args.format, options, args.max_sessions)
    timing, capacities = presets.preset_for(source) or (Timing(), None)
    overrides = {name: getattr(args, name) for name in (*TIMING_OPTIONS, "max_prompt")}
    timing = presets.with_overrides(timing, overrides)
    seeds = [int(seed) for seed in args.seed.split(",")]
    default_policies = planner.DEFAULT_POLICIES if args.plan else DEFAULT_POLICIES
    policies = (args.policies or default_policies).split(",")
    if args.plan and "lru" not in policies:
        raise ValueError("--plan: --policies must contain lru, the measure of all others")
    events = functools.partial(schedule, trace, timing)
    facts = describe(lambda: events(seeds[0]), args.page_size)
    if not facts.calls:
        raise TraceError(f"{source}: no calls to replay")
    curve = None
    if args.plan:
        curve = stack_curve(events(seeds[0]), args.page_size, int(args.uncounted * facts.calls))
    if curve and not args.capacity:
        sizes = planner.plan_capacities(facts, curve, args.page_size)
    else:
        default = ",".join(map(str, capacities)) if capacities else DEFAULT_CAPACITIES
        sizes = parse_capacities(args.capacity or default, facts.footprint, args.page_size)
    results = run_all(events, facts, policies, sizes, seeds, args)
    return Measured(source, facts, results, options.skipped, curve)


def _show(measured: Measured, image: Path | None) -> None:
    source, facts, results, skipped, curve = measured
    _print_facts(source, facts, skipped)
    if curve:
        _print_table(planner.table(curve, results), planner.verdict(curve, results))
    else:
        _print_table(report.table(results), report.verdict(facts, results))
    if image and curve:
        planner.plot(image, source, curve, results)
    elif image:
        report.plot(image, source, results)


def _convert(args: argparse.Namespace) -> None:
    if len(args.traces) != 1:
        raise ValueError("--convert takes one trace")
    options = Options(lenient=args.lenient, tokenizer=args.tokenizer)
    trace = load(args.traces[0], args.format, options)
    written = convert(trace.name, trace, args.convert, args.anonymise)
    skipped = f", {len(options.skipped)} malformed lines skipped" if options.skipped else ""
    print(f"{args.convert}: {written} sessions written{skipped}")


def load(
    source: str, format_name: str | None, options: Options, most_sessions: int | None = None
) -> Trace:
    """The trace behind a command-line argument, or the first ``most_sessions`` of it."""
    if source.startswith("synthetic:"):
        generated = synthetic.trace(source.removeprefix("synthetic:"))
        return FileTrace(source, lambda: islice(generated, most_sessions), keep=0)
    path = Path(source)
    read = reader_for(path, options, format_name)

    def sessions() -> Iterator[Session]:
        options.skipped.clear()
        return islice(read(path, options), most_sessions)

    return FileTrace(path.name, sessions)


def parse_capacities(text: str, footprint: int, page_size: int) -> list[int]:
    """Token counts, rounded down to pages, from "20000,25%".

    Raises:
        ValueError: a part is neither a positive count nor a percentage.
    """
    sizes = []
    for part in text.split(","):
        try:
            tokens = float(part[:-1]) / 100 * footprint if part.endswith("%") else int(part)
        except ValueError:
            tokens = 0
        if tokens < page_size:
            raise ValueError(
                f"--capacity: {part!r} must be a number of tokens or a percentage such as 25%, "
                f"and at least one page of {page_size}"
            )
        sizes.append(int(tokens) // page_size * page_size)
    return sizes


def run_all(
    events: Callable[[int], Iterator[Event]],
    facts: TraceFacts,
    policies: Sequence[str],
    capacities: Sequence[int],
    seeds: Sequence[int],
    args: argparse.Namespace,
) -> list[Result]:
    """Every policy at every capacity with every seed; ``events`` makes a seed's schedule."""
    configs = parse_configs(args.config)
    if unknown := [name for name in policies if name not in BUILDERS]:
        raise ValueError(f"--policies: unknown {unknown[0]!r}; accepted: {', '.join(BUILDERS)}")
    results = []
    grid = [(c, p, s) for c in capacities for p in policies for s in seeds]
    with _Progress(len(grid) * facts.calls) as progress:
        for capacity, policy, seed in grid:
            progress.name(f"{policy} {capacity:,}")
            setting = Setting(
                policy=policy,
                capacity=capacity,
                page_size=args.page_size,
                # One page more than the longest call: SGLang rounds rows up.
                max_tokens=facts.longest + args.page_size,
                footprint=facts.footprint,
                events=functools.partial(events, seed),
                max_running=args.max_running,
                ids=not args.no_ids,
                end_labels=args.end_labels,
                config=configs.get(policy, {}),
                idle_share=args.idle_share,
                warmup=args.warmup == "on",
                seed=seed,
            )
            result = Result(policy, capacity, args.page_size, seed)
            uncounted = int(args.uncounted * facts.calls)
            run = replay(build(setting), setting.events(), result, uncounted, progress.step)
            results.append(run)
    return results


def parse_configs(texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Policy configurations from "scout={...}" options.

    Raises:
        ValueError: an option is not POLICY=JSON object.
    """
    configs = {}
    for text in texts:
        policy, _, body = text.partition("=")
        try:
            config = json.loads(body)
        except ValueError:
            config = None
        if policy not in BUILDERS or not isinstance(config, dict):
            raise ValueError(f"--config: {text!r} is not POLICY=JSON object, policy a known one")
        configs[policy] = config
    return configs


class _Progress:
    """A bar on a terminal, silence elsewhere."""

    def __init__(self, total: int):
        self.total = total

    def __enter__(self) -> _Progress:
        from rich.console import Console
        from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

        self.bar = Progress(
            *Progress.get_default_columns()[:2],
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
        )
        self.bar.start()
        self.task = self.bar.add_task("", total=self.total)
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def name(self, text: str) -> None:
        self.bar.update(self.task, description=text)

    def step(self) -> None:
        self.bar.advance(self.task)


def _console() -> Console:
    from rich.console import Console

    console = Console()
    return console if console.is_terminal else Console(width=120)


def _print_facts(source: str, facts: TraceFacts, skipped: Sequence[str]) -> None:
    console = _console()
    console.print(
        f"[bold]{source}[/bold]: {facts.sessions:,} sessions, {facts.calls:,} calls, "
        f"{facts.agents} agents, {facts.live_sessions:.1f} sessions live; prompts "
        f"{facts.prompt_median:,} tokens (median), {facts.prompt_p90:,} (p90); footprint "
        f"{facts.footprint:,} tokens; R {_number(facts.r_session)} per session, "
        f"{_number(facts.r_global)} global",
        highlight=False,
    )
    if skipped:
        console.print(f"skipped {len(skipped)} malformed lines, the first: {skipped[0]}")


def _print_table(rows: Sequence[Sequence[str]], verdict: str) -> None:
    from rich.table import Table

    header, *body = rows
    grid = Table(*header)
    for row in body:
        grid.add_row(*row)
    console = _console()
    console.print(grid)
    console.print(verdict, highlight=False)


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    raise SystemExit(main())
