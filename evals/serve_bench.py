"""Servers under load, one per eviction policy, with identical open-loop arrivals.

    python -m evals.serve_bench --policies lru,scout --rates 0.1,0.2,0.4 --repeats 3
    python -m evals.serve_bench --workload clients:autogen,langgraph --rates 0.05
    python -m evals.serve_bench --workload my_requests.jsonl --flags scout-cold='--...'
    python -m evals.serve_bench --workload bench:shared-prefix,multi-turn,mooncake

Each run has a server of its own that starts empty; the policies take turns, one at a time, and
change places from repeat to repeat. Workloads: ``app:ROUTING`` (the demo's six agents), a trace in
any format of the replay lab, ``clients:...`` (agent frameworks, see ``evals/clients``),
``bench:...`` (SGLang's own ``bench_serving``, as it is).

Every run is kept in ``runs.jsonl`` in ``--out`` as it ends; the same command makes the missing
ones, ``--seconds`` stops before a run that would not end in time, and ``--most-others`` keeps no
run that other programs disturbed. Written from all that is kept at these rates: ``report.json``,
with each policy's ratio to the first one, 95 % bootstrap intervals, and the arrival rate that each
sustains within ``--budgets-ms`` of mean TTFT.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evals.demo import model_folder, policy_config
from evals.server import Server, ServerStartError
from evals.serving import workloads
from evals.serving.machine import Meter
from evals.serving.report import report
from evals.serving.runs import Place, Record, RunLog
from evals.serving.samples import summarise
from scout_sglang.replay.timing import Timing

TEMPLATE = Path(__file__).parent / "clients" / "chat_template.jinja"
# Policies that are a name and a configuration.
NAMED = {"scout-cold": ("scout", {"warmup": False})}
FIRST_RUN_SECONDS = 100.0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    cli = argparse.ArgumentParser(
        prog="python -m evals.serve_bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = cli.add_argument
    add("--out", type=Path, default=Path("build/serve_bench"), help="default: %(default)s")
    add(
        "--policies",
        default="lru,scout",
        help="by comma, the first is the base (%(default)s); scout-cold: without warm-up",
    )
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
    add(
        "--call-seconds",
        type=float,
        default=2.0,
        help="a call's length, for the working set: how many sessions are live (%(default)s)",
    )
    add(
        "--budgets-ms",
        type=_numbers,
        default="2000",
        help="mean TTFT that is endured, by comma (%(default)s)",
    )
    add("--seconds", type=float, default=float("inf"), help="begin no run that would end later")
    add(
        "--most-others",
        type=float,
        default=1.0,
        help="keep no run during which other programs took a greater share of the processors",
    )
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
    option = "--radix-eviction-policy"
    named = {
        name: [option, policy, f"{option}-config", json.dumps(config)]
        for name, (policy, config) in NAMED.items()
    }
    for text in options.flags:
        name, found, flags = text.partition("=")
        if not found:
            raise ValueError(f"--flags: {text!r} is not NAME=FLAGS")
        named[name] = shlex.split(flags)
    return {
        name: named.get(name) or [option, name, *policy_config(name)]
        for name in options.policies.split(",")
    }


def make_workloads(options: argparse.Namespace) -> list[workloads.Workload]:
    """The workloads that --workload names."""
    kind, _, rest = options.workload.partition(":")
    timing = Timing(tool_gap=options.tool_gap, recorded_times=False)
    if kind == "bench":
        model = model_folder(options.model_path)
        return [workloads.bench(name, options.sessions, model) for name in rest.split(",")]
    if kind == "clients":
        more = ["--max-tokens", str(options.max_tokens), *shlex.split(options.client_args)]
        return [workloads.frameworks(rest.split(","), options.sessions, options.ids, more)]
    if kind == "app":
        sessions = workloads.app_sessions(
            rest, options.sessions, options.seed, options.model_path, options.max_tokens
        )
    else:
        sessions = workloads.trace_sessions(Path(options.workload), options.sessions)
    return [workloads.from_trace(Path(options.workload).name, sessions, timing, options.ids)]


def capacity(workload: workloads.Workload, options: argparse.Namespace) -> int:
    """Tokens of cache, at least two of the longest prompts.

    Raises ValueError where it cannot be computed and is not given.
    """
    if options.max_total_tokens:
        return int(options.max_total_tokens)
    if not workload.sessions:
        raise ValueError(f"--workload {workload.name} needs --max-total-tokens")
    timing = Timing(
        sessions_per_second=options.rates[0],
        tool_gap=options.tool_gap,
        call_base=options.call_seconds,
        recorded_times=False,
    )
    needed = workloads.needed_tokens(workload.sessions, timing)
    longest = max(len(s.prompt(call)) for s in workload.sessions for call in s.calls)
    return max(round(options.share * needed), 2 * (longest + options.max_tokens + 1))


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


def compare(options: argparse.Namespace) -> tuple[RunLog, dict[str, Any]]:
    """Make the missing runs; all runs, and what they have in common.

    Raises:
        ServerStartError, RuntimeError: a server or a client failed; the runs before are kept.
        ValueError: an option does not fit.
    """
    flags = policy_flags(options)
    chosen = make_workloads(options)
    tokens = capacity(chosen[0], options)
    setup = {
        "model": Path(options.model_path).name,
        "max_total_tokens": tokens,
        **{name: getattr(options, name) for name in ("ids", "seed", "sessions", "max_tokens")},
        **{name: getattr(options, name) for name in ("tool_gap", "server_args", "client_args")},
    }
    log = RunLog(options.out / "runs.jsonl", setup)
    print(f"{options.workload}: cache {tokens:,} tokens, {len(log.records)} runs kept", flush=True)
    began, longest = time.monotonic(), 0.0
    for workload, rate, repeat, name in _order(chosen, options, list(flags)):
        place = Place(workload.name, rate, repeat, name)
        if place in log.records:
            continue
        started = time.monotonic()
        if started - began + (1.1 * longest or FIRST_RUN_SECONDS) > options.seconds:
            print("no time left for another run", flush=True)
            break
        logs = options.out / "logs" / f"{workload.name}-{rate:g}-{repeat}-{name}".replace(":", "-")
        with server_for(flags[name], tokens, logs / "server.log", options) as server:
            server.flush_cache()
            meter = Meter(server.group)
            run = workload.send(server.url, rate, options.seed + repeat, logs)
            others = round(meter.share(), 3)
            if others <= options.most_others:
                log.add(Record(place, run, {"others": others, **books(server.url)}))
        longest = max(longest, time.monotonic() - started)
        print(f"{workload.name} {rate:g}/s {repeat} {name}: {_short(summarise(run))}", flush=True)
        if others > options.most_others:
            print(f"not kept: other programs took {others:.0%} of the processors", flush=True)
    return log, setup


def _order(
    chosen: Sequence[workloads.Workload], options: argparse.Namespace, names: Sequence[str]
) -> Iterator[tuple[workloads.Workload, float, int, str]]:
    """Repeat by repeat, so that a comparison cut short is balanced."""
    for repeat in range(options.repeats):
        for workload in chosen:
            for rate in options.rates:
                for number, name in turns(names, repeat + 1):
                    if number == repeat:
                        yield workload, rate, repeat, name


def books(url: str) -> dict[str, Any]:
    """What the policy has counted: its faults, tokens of its warm-ups; empty for SGLang's own."""
    with urllib.request.urlopen(url + "/server_info", timeout=30) as answer:
        state = json.load(answer)["internal_states"][0].get("scout")
    if not state:
        return {}
    kept = {"faults": sum((state.get("faults") or {}).values())}
    warmup = state.get("warmup") or {}
    names = ("tokens_prefilled", "tokens_used", "foreground_delay_ms")
    return {**kept, **{f"warmup_{name}": warmup[name] for name in names if name in warmup}}


def _short(summary: dict[str, Any]) -> str:
    return (
        f"TTFT {summary['ttft_ms']['mean']:,.0f} ms, turn {summary['turn_ms']['mean']:,.0f} ms, "
        f"session {summary['session_seconds']['mean']:.1f} s, hit rate {summary['hit_rate']:.3f}, "
        f"{summary['recomputed_tokens']:,} of {summary['prompt_tokens']:,} recomputed, "
        f"{summary['calls']} calls in {summary['seconds']:.0f} s"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison; returns the exit code."""
    options = parse(argv)
    # An end from outside takes the same way out as Ctrl-C, so that no server stays behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        log, setup = compare(options)
    except (ServerStartError, RuntimeError, ValueError) as error:
        print(f"evals.serve_bench: {error}", file=sys.stderr)
        return 1
    policies = options.policies.split(",")
    asked = [record for place, record in log.records.items() if place.rate in options.rates]
    found = report(asked, policies, options.budgets_ms)
    path = options.out / "report.json"
    written = {"command": command(argv), "setup": setup, "workloads": found}
    path.write_text(json.dumps(written, indent=1) + "\n")
    for workload in found:
        _print(workload)
    print(f"Written: {path}")
    return 0


def command(argv: Sequence[str] | None) -> str:
    """What was called, to be called again: without folders and the time that there was."""
    parts = []
    given = iter(sys.argv[1:] if argv is None else argv)
    for part in given:
        if part in ("--out", "--seconds"):
            next(given, None)
        elif part == "--model-path":
            model = next(given, "")
            parts.append("--model-path " + ("$MODEL" if Path(model).exists() else model))
        else:
            parts.append(shlex.quote(part))
    return " ".join(["python -m evals.serve_bench", *parts])


def _print(workload: dict[str, Any]) -> None:
    for point in workload["points"]:
        for name, measured in point["policies"].items():
            if "ratios" not in measured:
                continue
            cells = (f"{k} {v['ratio']:.3f} [{v['low']:.3f}, {v['high']:.3f}]"
                     for k, v in measured["ratios"].items())  # fmt: skip
            base = f"{name} / {point['ratio_to']}, {len(measured['repeats'])} repeats"
            print(f"{workload['workload']} {point['rate']:g}/s, {base}: {', '.join(cells)}")
    for found in workload["sustainable"]:
        print(f"within {found['budget_ms']:g} ms: {found['rates']}, factors {found['factors']}")


if __name__ == "__main__":
    sys.exit(main())
