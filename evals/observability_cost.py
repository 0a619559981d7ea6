"""``python -m evals.observability_cost``: what looking costs, in throughput of the demo's calls.

Two servers are up, and the demo's calls go to both in blocks, one server after the other, each
first as often as the other. *Off* is SGLang's own ``lru``. *On* serves the same hits, in shadow
mode, with everything that can be looked at switched on: learning, the shadow's decisions, SGLang's
and our metrics, a state file written every five seconds, and ``GET /scout`` and ``/metrics`` read
every second. So the blocks do the same work, and what differs is the cost. The interval is a
bootstrap over the blocks' pairs. Run it on an idle machine: at the default size four to six
minutes on two cores.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from evals import demo
from evals.app.client import request_body
from evals.app.footprint import as_paths, working_set
from evals.app.team import load_team
from evals.app.workload import build_workload
from evals.server import Server

Pairs = list[tuple[float, float]]


def main(argv: Sequence[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m evals.observability_cost", description=__doc__)
    cli.add_argument("--sessions", type=int, default=14)
    cli.add_argument("--block", type=int, default=8, help="calls of a block (%(default)s)")
    cli.add_argument("--rounds", type=int, default=1, help="times that all calls are sent")
    cli.add_argument("--model-path", default="embedded")
    cli.add_argument("--json", type=Path, help="where to write the figures")
    args = cli.parse_args(argv)
    options = demo.parse(["--sessions", str(args.sessions), "--model-path", args.model_path])
    options.sessions_live = min(options.sessions_live, options.sessions)
    bodies, capacity = requests(options)
    pairs, shown = measure(bodies, capacity, options, args)
    result = summary(pairs, len(bodies) * args.rounds) | own_cost(shown, pairs)
    print(json.dumps(result, indent=1))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def requests(options: argparse.Namespace) -> tuple[list[bytes], int]:
    """The demo's calls as bodies, with stand-ins for the answers in their histories, and the size
    of the cache in tokens."""
    workload = build_workload(
        load_team(),
        seed=options.seed,
        routing=options.routing,
        sessions=options.sessions,
        sessions_live=options.sessions_live,
    )
    prompts = demo.dry_prompts(workload, demo.Tokenizer(options.model_path), options.max_tokens)
    needed = working_set(as_paths(prompts), [call.session for call in workload.calls])
    answer = " ".join(["answer"] * options.max_tokens)
    bodies = []
    for call in workload.calls:
        messages = workload.messages(call, [answer] * call.turn)
        body = request_body(workload, call, messages, demo.settings(options))
        body.pop("stream_options", None)
        bodies.append(json.dumps({**body, "stream": False, "ignore_eos": True}).encode())
    return bodies, demo.cache_size(prompts, needed, options)


def measure(
    bodies: list[bytes], capacity: int, options: argparse.Namespace, args: argparse.Namespace
) -> tuple[Pairs, dict[str, Any]]:
    """Seconds of each block with everything on and off, and what ``GET /scout`` says at the end."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        config = {"mode": "shadow", "state_path": str(folder / "state"), "state_seconds": 5}
        watched = ["--enable-metrics", "--radix-eviction-policy-config", json.dumps(config)]
        servers = [
            stack.enter_context(
                Server(
                    [*demo.server_args(policy, capacity, options), *more],
                    log_path=folder / f"{policy}.log",
                )
            )
            for policy, more in (("scout", watched), ("lru", []))
        ]
        watcher = stack.enter_context(Watcher(servers[0].url))
        pairs: Pairs = []
        for number, start in enumerate(range(0, len(bodies) * args.rounds, args.block)):
            block = [bodies[at % len(bodies)] for at in range(start, start + args.block)]
            if start + args.block > len(bodies) * args.rounds:
                break
            taken = [0.0, 0.0]
            for which in (0, 1) if number % 2 else (1, 0):
                watcher.watch(which == 0)
                taken[which] = send(servers[which].url, block, options.in_flight)
            pairs.append((taken[0], taken[1]))
        with urllib.request.urlopen(servers[0].url + "/scout", timeout=30) as answer:
            return pairs, json.load(answer)["ranks"][0]


def send(url: str, block: list[bytes], in_flight: int) -> float:
    """Seconds until all calls of a block are answered."""

    def post(body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(url + "/v1/chat/completions", body, headers)
        with urllib.request.urlopen(request, timeout=300) as answer:
            answer.read()

    begun = time.perf_counter()
    with ThreadPoolExecutor(in_flight) as pool:
        list(pool.map(post, block))
    return time.perf_counter() - begun


class Watcher:
    """Reads ``GET /scout`` and ``/metrics`` every second while it is told to."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._on, self._end = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def watch(self, on: bool) -> None:
        """Go on, or pause."""
        (self._on.set if on else self._on.clear)()

    def _run(self) -> None:
        while not self._end.wait(1.0):
            if self._on.is_set():
                for path in ("/scout", "/metrics"):
                    urllib.request.urlopen(self._url + path, timeout=30).read()


def summary(pairs: Pairs, calls: int) -> dict[str, Any]:
    """Throughput lost, with a 95 % bootstrap interval over the pairs."""
    times = np.array(pairs)
    rng = np.random.default_rng(0)
    drawn = times[rng.integers(0, len(times), (10_000, len(times)))].sum(axis=1)
    costs = 1 - drawn[:, 1] / drawn[:, 0]
    on, off = times.sum(axis=0)
    return {
        "calls": calls,
        "blocks": len(pairs),
        "seconds_on": round(float(on), 1),
        "seconds_off": round(float(off), 1),
        "throughput_lost": round(float(1 - off / on), 4),
        "interval_95": [round(float(q), 4) for q in np.quantile(costs, (0.025, 0.975))],
    }


def own_cost(shown: dict[str, Any], pairs: Pairs) -> dict[str, Any]:
    """CPU seconds of the scheduler in our steps, as a share of the time that was served."""
    steps = {
        step: round(cost["count"] * cost["mean_us"] / 1e6, 4) for step, cost in shown["cpu"].items()
    }
    served = sum(on for on, _ in pairs)
    return {
        "own_cpu_seconds": steps,
        "own_cpu_share": round(sum(steps.values()) / served, 5),
        "foretold": shown["shadow"],
    }


if __name__ == "__main__":
    raise SystemExit(main())
