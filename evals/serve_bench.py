"""Servers under load, one per eviction policy, with identical open-loop arrivals.

    python -m evals.serve_bench --policies lru,scout --rates 0.1,0.2,0.4 --repeats 3
    python -m evals.serve_bench --workload clients:autogen,langgraph --rates 0.05
    python -m evals.serve_bench --workload my_requests.jsonl --flags scout-cold='--...'
    python -m evals.serve_bench --workload bench:shared-prefix,multi-turn,mooncake

Each run has a server of its own that starts empty; the policies take turns, and change places from
repeat to repeat. Workloads: ``app:ROUTING`` (the demo's six agents), a trace in any format of the
replay lab, ``clients:...`` (agent frameworks, see ``evals/clients``), ``bench:...`` (SGLang's own
``bench_serving``, as it is). Written to ``--out``: every run, each policy's ratio to the first one
with a 95 % bootstrap interval, and the arrival rate that each sustains within ``--budget-ms`` of
mean TTFT.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from evals.demo import model_folder, policy_config
from evals.server import Server, ServerStartError
from evals.serving import bench_tool, workloads
from evals.serving.samples import Run, ratios, summarise, sustainable_rate
from scout_sglang.replay.timing import Timing

TEMPLATE = Path(__file__).parent / "clients" / "chat_template.jinja"


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    cli = argparse.ArgumentParser(
        prog="python -m evals.serve_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = cli.add_argument
    add("--out", type=Path, default=Path("build/serve_bench"), help="default: %(default)s")
    add("--policies", default="lru,scout", help="by comma, the first is the base (%(default)s)")
    add(
        "--flags",
        action="append",
        default=[],
        metavar="NAME=FLAGS",
        help="a policy by the flags of its server, to be named in --policies",
    )
    add("--workload", default="app:selector", help="default: %(default)s")
    add("--rates", type=_numbers, default="0.1", help="sessions a second, by comma (%(default)s)")
    add("--repeats", type=int, default=1, help="with seeds SEED, SEED + 1, ... (%(default)s)")
    add("--seed", type=int, default=1, help="default: %(default)s")
    add("--sessions", type=int, default=18, help="of each run, or framework (%(default)s)")
    add("--max-tokens", type=int, default=8, help="output tokens of app: and clients: calls")
    add("--no-ids", dest="ids", action="store_false", help="send no session id")
    add("--share", type=float, default=0.5, help="cache as share of the working set (%(default)s)")
    add("--max-total-tokens", type=int, help="cache in tokens, in place of --share")
    add("--tool-gap", type=float, default=3.0, help="mean seconds of a tool run (%(default)s)")
    add("--budget-ms", type=float, default=2000.0, help="mean TTFT that is endured (%(default)s)")
    add("--model-path", default="embedded", help="default: %(default)s")
    add("--server-args", default="", help="for every server")
    add("--client-args", default="", help="for clients: workloads")
    return cli.parse_args(argv)


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def policy_flags(options: argparse.Namespace) -> dict[str, list[str]]:
    """Each policy's server flags, in the order of --policies.

    Raises ValueError for a malformed --flags.
    """
    named = {}
    for text in options.flags:
        name, found, flags = text.partition("=")
        if not found:
            raise ValueError(f"--flags: {text!r} is not NAME=FLAGS")
        named[name] = shlex.split(flags)
    return {
        name: named.get(name) or ["--radix-eviction-policy", name, *policy_config(name)]
        for name in options.policies.split(",")
    }


def make_workload(options: argparse.Namespace) -> workloads.Workload:
    """The workload that --workload names."""
    kind, _, rest = options.workload.partition(":")
    timing = Timing(tool_gap=options.tool_gap, recorded_times=False)
    if kind == "clients":
        more = ["--max-tokens", str(options.max_tokens), *shlex.split(options.client_args)]
        return workloads.frameworks(rest.split(","), options.sessions, options.ids, more)
    if kind == "app":
        sessions = workloads.app_sessions(
            rest, options.sessions, options.seed, options.model_path, options.max_tokens
        )
    else:
        sessions = workloads.trace_sessions(Path(options.workload), options.sessions)
    return workloads.from_trace(options.workload, sessions, timing, options.ids)


def capacity(workload: workloads.Workload, options: argparse.Namespace) -> int:
    """Tokens of cache.

    Raises ValueError where it cannot be computed and is not given.
    """
    if options.max_total_tokens:
        return options.max_total_tokens
    if not workload.sessions:
        raise ValueError(f"--workload {workload.name} needs --max-total-tokens")
    # A call lasts seconds on a CPU; how many sessions are live at a time depends on it.
    timing = Timing(
        sessions_per_second=options.rates[0],
        tool_gap=options.tool_gap,
        call_base=2.0,
        recorded_times=False,
    )
    needed = workloads.needed_tokens(workload.sessions, timing)
    return round(options.share * needed)


def server_for(flags: Sequence[str], tokens: int, log: Path, options: argparse.Namespace) -> Server:
    """A server of one policy, to be entered."""
    args = [
        *("--model-path", options.model_path, *flags, "--max-total-tokens", str(tokens)),
        *("--enable-cache-report", "--sleep-on-idle"),
        *shlex.split(options.server_args),
    ]
    if options.workload.startswith("clients:"):
        args += ["--chat-template", str(TEMPLATE)]
    return Server(args, log_path=log)


def turns(names: Sequence[str], repeats: int) -> Iterator[tuple[int, str]]:
    """Every policy in every repeat; who begins changes from repeat to repeat."""
    for repeat in range(repeats):
        shift = repeat % len(names)
        yield from ((repeat, name) for name in (*names[shift:], *names[:shift]))


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """All rates, repeats and policies; what goes into serve_bench.json."""
    flags = policy_flags(options)
    workload = make_workload(options)
    tokens = capacity(workload, options)
    print(f"{workload.name}: cache {tokens:,} tokens", flush=True)
    points = []
    for rate in options.rates:
        runs: dict[str, list[Run]] = {name: [] for name in flags}
        for repeat, name in turns(list(flags), options.repeats):
            logs = options.out / f"{rate:g}-{repeat}-{name}"
            with server_for(flags[name], tokens, logs / "server.log", options) as server:
                server.flush_cache()
                run = workload.send(server.url, rate, options.seed + repeat, logs)
            runs[name].append(run)
            print(f"{rate:g}/s, repeat {repeat}, {name}: {_short(summarise(run))}", flush=True)
        points.append(_point(rate, runs))
    return {
        "workload": workload.name,
        "max_total_tokens": tokens,
        "ids": options.ids,
        "seed": options.seed,
        "repeats": options.repeats,
        "rates": points,
        "sustainable": _sustainable(points, list(flags), options.budget_ms),
    }


def _point(rate: float, runs: dict[str, list[Run]]) -> dict[str, Any]:
    base, *others = runs
    return {
        "rate": rate,
        "runs": {name: [summarise(run) for run in each] for name, each in runs.items()},
        "ratio_to": base,
        "ratios": {name: ratios(runs[base], runs[name]) for name in others},
    }


def _sustainable(
    points: Sequence[dict[str, Any]], names: Sequence[str], budget_ms: float
) -> dict[str, Any]:
    rates = {}
    for name in names:
        ttft = [
            (point["rate"], fmean(run["ttft_ms"]["mean"] for run in point["runs"][name]))
            for point in points
        ]
        rates[name] = sustainable_rate(ttft, budget_ms)
    return {"budget_ms": budget_ms, "sessions_per_second": rates}


def _short(summary: dict[str, Any]) -> str:
    return (
        f"TTFT {summary['ttft_ms']['mean']:,.0f} ms, turn {summary['turn_ms']['mean']:,.0f} ms, "
        f"session {summary['session_seconds']['mean']:.1f} s, hit rate {summary['hit_rate']:.3f}, "
        f"{summary['recomputed_tokens']:,} recomputed, {summary['tokens_per_second']:,.0f} tokens/s"
    )


def bench_tool_runs(options: argparse.Namespace) -> dict[str, Any]:
    """SGLang's own tool against the same servers; its figures as it gives them."""
    flags = policy_flags(options)
    names = options.workload.removeprefix("bench:").split(",")
    if unknown := set(names) - bench_tool.WORKLOADS.keys():
        known = ", ".join(bench_tool.WORKLOADS)
        raise ValueError(f"bench: must name some of {known}, not {unknown.pop()!r}")
    model = model_folder(options.model_path)
    tokens = options.max_total_tokens or 4096
    found: dict[str, Any] = {workload: {name: [] for name in flags} for workload in names}
    for repeat, name in turns(list(flags), options.repeats):
        logs = options.out / f"bench-{repeat}-{name}"
        with server_for(flags[name], tokens, logs / "server.log", options) as server:
            for workload in names:
                server.flush_cache()
                figures = bench_tool.bench(
                    workload,
                    server.url,
                    model,
                    logs,
                    rate=options.rates[0],
                    seed=options.seed + repeat,
                )
                found[workload][name].append(figures)
                ttft, speed = figures["mean_ttft_ms"], figures["total_throughput"]
                print(
                    f"{workload}, repeat {repeat}, {name}: {figures['completed']} completed, "
                    f"TTFT {ttft:,.0f} ms, {speed:,.1f} tokens/s",
                    flush=True,
                )
    return {"max_total_tokens": tokens, "seed": options.seed, "bench_serving": found}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison; returns the exit code."""
    options = parse(argv)
    # An end from outside takes the same way out as Ctrl-C, so that no server stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    options.out.mkdir(parents=True, exist_ok=True)
    try:
        bench = options.workload.startswith("bench:")
        result = bench_tool_runs(options) if bench else compare(options)
    except (ServerStartError, RuntimeError, ValueError) as error:
        print(f"evals.serve_bench: {error}", file=sys.stderr)
        return 1
    (options.out / "serve_bench.json").write_text(json.dumps(result, indent=2) + "\n")
    for point in result.get("rates", ()):
        for name, measured in point["ratios"].items():
            cells = (f"{k} {v['ratio']:.3f} [{v['low']:.3f}, {v['high']:.3f}]"
                     for k, v in measured.items())  # fmt: skip
            print(f"{point['rate']:g}/s, {name} / {point['ratio_to']}: {', '.join(cells)}")
    if result.get("sustainable"):
        print(f"within {options.budget_ms:g} ms: {result['sustainable']['sessions_per_second']}")
    print(f"Written: {options.out}/serve_bench.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
