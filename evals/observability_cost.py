"""``python -m evals.observability_cost``: what looking costs, in throughput of the demo's calls.

Two servers are up. *Off* is SGLang's own ``lru``. *On* serves the same hits, in shadow mode, with
everything that can be looked at switched on: learning, the shadow's decisions, SGLang's and our
metrics, a state file written every five seconds, and ``GET /scout`` and ``/metrics`` read as
often as one open page and ``launch/grafana`` do. Each of the demo's calls goes to one and then to
the other, alone; which is first alternates. So both do the same work on equal caches, and two
times of one call are a pair. The server that is not asked is stopped (SIGSTOP): what it would do
meanwhile is charged to nobody else. The interval is a bootstrap over the pairs. A second run with
the same ``--json`` goes on with another seed and adds its pairs. Run it on an idle machine: a pair
takes about four seconds on two cores.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evals import demo
from evals.app.client import request_body
from evals.app.footprint import as_paths, working_set
from evals.server import Server

READ = {"/scout": 2.0, "/metrics": 5.0}
"""Seconds of serving between two readings: the page's, and those of ``launch/grafana``."""
UNCOUNTED = 4
"""Pairs at the start of a run, while both servers do things for the first time."""
DRAWS = 10_000
_TICK = os.sysconf("SC_CLK_TCK")


class Times(NamedTuple):
    """One call on one server: seconds until its answer, CPU seconds of the server's processes."""

    wall: float
    cpu: float


Pair = tuple[Times, Times]
"""The same call, on and off."""


def main(argv: Sequence[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="python -m evals.observability_cost", description=__doc__)
    cli.add_argument("--sessions", type=int, default=18)
    cli.add_argument("--seconds", type=float, default=480, help="stop after so long (%(default)s)")
    cli.add_argument("--model-path", default="embedded")
    cli.add_argument(
        "--json", type=Path, default=Path("build/observability_cost.json"), help="%(default)s"
    )
    args = cli.parse_args(argv)
    before = json.loads(args.json.read_text()) if args.json.exists() else {"pairs": [], "runs": []}
    seed = str(1 + len(before["runs"]))
    options = demo.parse(
        ["--sessions", str(args.sessions), "--seed", seed, "--model-path", args.model_path]
    )
    options.sessions_live = min(options.sessions_live, options.sessions)
    bodies, capacity = requests(options)
    pairs, shown = measure(bodies, capacity, options, args.seconds)
    run = own_cost(shown, pairs) | {"shadow": shown["shadow"], "faults": shown["faults"]}
    result = {"pairs": before["pairs"] + pairs, "runs": [*before["runs"], run]}
    result["summary"] = summary([(Times(*on), Times(*off)) for on, off in result["pairs"]])
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(json.dumps(result) + "\n")
    print(json.dumps({"summary": result["summary"], "runs": result["runs"]}, indent=1))
    return 0


def requests(options: argparse.Namespace) -> tuple[list[bytes], int]:
    """The demo's calls as bodies, with stand-ins for the answers in their histories, and the size
    of the cache in tokens."""
    workload = demo.workload_of(options)
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
    bodies: list[bytes], capacity: int, options: argparse.Namespace, seconds: float
) -> tuple[list[Pair], dict[str, Any]]:
    """The pairs of the calls that fit into ``seconds``, and what ``GET /scout`` says at the end."""
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
        for server in servers:
            server.flush_cache()
        watcher = stack.enter_context(Watcher(servers[0].url))
        turns = [stack.enter_context(Turns(server)) for server in servers]
        pairs: list[Pair] = []
        began = time.monotonic()
        for number, body in enumerate(bodies):
            if time.monotonic() > began + seconds:
                break
            taken: dict[int, Times] = {}
            for which in (0, 1) if number % 2 else (1, 0):
                watcher.watch(which == 0)
                taken[which] = turns[which].send(body)
            if number >= UNCOUNTED:
                pairs.append((taken[0], taken[1]))
        turns[0].go_on()
        with urllib.request.urlopen(servers[0].url + "/scout", timeout=30) as answer:
            return pairs, json.load(answer)["ranks"][0]


class Turns:
    """One server's turns: its processes run while it is asked, and stand still otherwise."""

    def __init__(self, server: Server) -> None:
        self._url = server.url
        self._group = server.group

    def __enter__(self) -> Turns:
        os.killpg(self._group, signal.SIGSTOP)
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on()

    def go_on(self) -> None:
        """Let it run."""
        os.killpg(self._group, signal.SIGCONT)

    def send(self, body: bytes) -> Times:
        """Let it run until this call is answered."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url + "/v1/chat/completions", body, headers)
        spent = group_cpu(self._group)
        self.go_on()
        begun = time.perf_counter()
        with urllib.request.urlopen(request, timeout=300) as answer:
            answer.read()
        wall = time.perf_counter() - begun
        os.killpg(self._group, signal.SIGSTOP)
        return Times(round(wall, 5), round(group_cpu(self._group) - spent, 2))


def group_cpu(group: int) -> float:
    """CPU seconds that the living processes of a process group have had."""
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[2]) == group:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICK


class Watcher:
    """Reads what a page and a Prometheus read, as often as they do, while it is told to."""

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
        turn = 0.1
        waited = dict.fromkeys(READ, 0.0)
        while not self._end.wait(turn):
            if not self._on.is_set():
                continue
            for path, every in READ.items():
                waited[path] += turn
                if waited[path] >= every:
                    waited[path] = 0.0
                    urllib.request.urlopen(self._url + path, timeout=60).read()


def summary(pairs: list[Pair]) -> dict[str, Any]:
    """Throughput lost, and CPU time added, each with a 95 % bootstrap interval over the pairs.

    ``typical``: the median of a pair's own loss, which single disturbances cannot move.
    """
    times = np.array(pairs)  # (pairs, on and off, wall and CPU)
    rng = np.random.default_rng(0)
    drawn = times[rng.integers(0, len(times), (DRAWS, len(times)))]
    on, off = times.sum(axis=0)
    sums = drawn.sum(axis=1)
    single = 1 - drawn[:, :, 1, 0] / drawn[:, :, 0, 0]
    return {
        "calls": len(pairs),
        "seconds_on": round(float(on[0]), 1),
        "seconds_off": round(float(off[0]), 1),
        "throughput_lost": round(float(1 - off[0] / on[0]), 4),
        "interval_95": _interval(1 - sums[:, 1, 0] / sums[:, 0, 0]),
        "typical": round(float(np.median(1 - times[:, 1, 0] / times[:, 0, 0])), 4),
        "typical_interval_95": _interval(np.median(single, axis=1)),
        "cpu_added": round(float(on[1] / off[1] - 1), 4),
        "cpu_interval_95": _interval(sums[:, 0, 1] / sums[:, 1, 1] - 1),
    }


def _interval(drawn: Any) -> list[float]:
    return [round(float(q), 4) for q in np.quantile(drawn, (0.025, 0.975))]


def own_cost(shown: dict[str, Any], pairs: list[Pair]) -> dict[str, Any]:
    """CPU seconds of the scheduler in our steps, as a share of the time that was served."""
    steps = {
        step: round(cost["count"] * cost["mean_us"] / 1e6, 4) for step, cost in shown["cpu"].items()
    }
    served = sum(on.wall for on, _ in pairs)
    return {
        "own_cpu_seconds": steps,
        "own_cpu_share": round(sum(steps.values()) / served, 5),
    }


if __name__ == "__main__":
    raise SystemExit(main())
