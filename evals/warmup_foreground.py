"""``python -m evals.warmup_foreground``: what do warm-ups cost calls that gain nothing from them?

Two servers, warm-ups on and off, get the same requests in turn, block by block; which goes first
alternates. Memory holds one anchor, so an agent's call sets off a warm-up of the next agent's, and
the measured call, a prompt that nobody has sent before, comes in the midst of that, after a random
delay. Then the server comes to rest, so that the next agent's call uses what was warmed: or else
the agents would back off and nothing would be in progress. The server that is not measured is at
rest. A second run adds to the calls of the first.
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evals.server import Server

ANCHOR = 700
TASK = 40
LATEST = 0.15
"""Seconds after an agent's call: by then most of a warm-up is still to come."""
DRAWS = 10_000
COUNTED = (
    *("pieces_sent", "pieces_yielded", "tokens_prefilled", "tokens_used", "tokens_wasted"),
    *("seconds", "foreground_delayed", "foreground_delay_ms"),
)


class Pair(NamedTuple):
    """Seconds to first token of the same call on both servers."""

    on: float
    off: float


class Interval(NamedTuple):
    """A ratio on/off and its 95 % bootstrap interval."""

    ratio: float
    low: float
    high: float


def main() -> int:
    cli = argparse.ArgumentParser(prog="evals.warmup_foreground", description=__doc__)
    cli.add_argument("--model-path", default="embedded")
    cli.add_argument("--requests", type=int, default=200)
    cli.add_argument("--prompt", type=int, default=900, help="tokens of a measured prompt")
    cli.add_argument("--block", type=int, default=10)
    cli.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    cli.add_argument("--out", type=Path, default=Path("build/warmup_foreground"))
    args = cli.parse_args()
    path = args.out / "warmup_foreground.json"
    before = json.loads(path.read_text()) if path.exists() else {}
    pairs = [Pair(*pair) for pair in before.get("ttft_s", ())]
    capacity = max(args.prompt, ANCHOR + TASK) + 200
    with _server(args, True, capacity) as on, _server(args, False, capacity) as off:
        more, pieces = measure(on.url, off.url, args, len(pairs))
    pairs += more
    earlier = before.get("warmup", {})
    pieces = {name: round(n + earlier.get(name, 0), 3) for name, n in pieces.items()}
    mean, p95 = intervals(pairs)
    result = {
        "requests": len(pairs),
        "ttft_s": [[round(pair.on, 4), round(pair.off, 4)] for pair in pairs],
        "mean": mean._asdict(),
        "p95": p95._asdict(),
        "warmup": pieces,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n")
    means = 1000 * np.array(pairs).mean(axis=0)
    each = 1000 * pieces["seconds"] / max(1, pieces["pieces_sent"])
    print(
        f"{len(pairs)} calls on each server, {pieces['pieces_sent']:.0f} pieces sent of {each:.1f}"
    )
    print(f"ms; {pieces['foreground_delayed']:.0f} calls came while a piece ran; mean TTFT")
    print(f"{means[0]:.1f} ms with warm-ups, {means[1]:.1f} without")
    for name, found in (("mean", mean), ("p95", p95)):
        print(
            f"TTFT {name}, on / off: {found.ratio:.3f}, 95 % interval {found.low:.3f} to "
            f"{found.high:.3f}"
        )
    return 0


def measure(on: str, off: str, args: Any, first: int) -> tuple[list[Pair], dict[str, float]]:
    """The measured calls of both servers from number ``first`` on, and what warm-ups did amid."""
    calls = [Caller(on, args.prompt), Caller(off, args.prompt)]
    for caller in calls:
        caller.learn()
    before = calls[0].state()
    found: list[list[float]] = [[], []]
    began, block = time.monotonic(), 0
    while first + len(found[0]) < args.requests and time.monotonic() < began + args.seconds:
        for which in ((0, 1), (1, 0))[block % 2]:
            for number in range(args.block):
                found[which].append(calls[which].measured(first + block * args.block + number))
        block += 1
    after = calls[0].state()
    counted = {name: round(after[name] - before[name], 3) for name in COUNTED}
    return [Pair(*pair) for pair in zip(*found, strict=True)], counted


def intervals(pairs: list[Pair], seed: int = 0) -> tuple[Interval, Interval]:
    """Of the mean and of the 95th percentile."""
    times = np.array(pairs)
    rng = np.random.default_rng(seed)
    drawn = times[rng.integers(0, len(times), (DRAWS, len(times)))]
    mean, p95 = drawn.mean(axis=1), np.percentile(drawn, 95, axis=1)
    return (
        _interval(times.mean(axis=0), mean),
        _interval(np.percentile(times, 95, axis=0), p95),
    )


def _interval(point: Any, drawn: Any) -> Interval:
    ratios = drawn[:, 0] / drawn[:, 1]
    low, high = np.percentile(ratios, (2.5, 97.5))
    return Interval(*(round(float(x), 4) for x in (point[0] / point[1], low, high)))


class Caller:
    """One server's requests: two agents that take turns, and strangers in between."""

    def __init__(self, url: str, prompt: int) -> None:
        self.url = url
        self.prompt = prompt
        self.turn = 0

    def learn(self) -> None:
        """Enough sessions to know who follows whom."""
        for _ in range(16):
            self._agent()
        self.settle()

    def measured(self, number: int) -> float:
        """Seconds to the first token of a stranger's call that comes amid a warm-up."""
        self._agent()
        rng = np.random.default_rng((1, number))
        time.sleep(float(rng.uniform(0.0, LATEST)))
        ids = rng.integers(10, 5000, self.prompt).tolist()
        first = self._send(ids, {"agent": f"stranger {number}", "session": f"once {number}"})
        self.settle()
        return first

    def settle(self) -> None:
        """Wait until the server is at rest."""
        time.sleep(0.2)
        while not self.state()["resting"]:
            time.sleep(0.2)

    def state(self) -> dict[str, float]:
        """The warm-up's numbers."""
        with urllib.request.urlopen(self.url + "/server_info", timeout=60) as answer:
            return json.load(answer)["internal_states"][0]["scout"]["warmup"]

    def _agent(self) -> None:
        agent, session = self.turn % 2, self.turn // 4
        anchor = np.random.default_rng((2, agent)).integers(10, 5000, ANCHOR).tolist()
        task = np.random.default_rng((3, self.turn)).integers(10, 5000, TASK).tolist()
        self._send(anchor + task, {"agent": "AB"[agent], "session": f"pair {session}"})
        self.turn += 1

    def _send(self, ids: list[int], label: dict[str, str]) -> float:
        sampling = {"max_new_tokens": 2, "temperature": 0, "ignore_eos": True}
        sampling["custom_params"] = {"scout": label}  # type: ignore[assignment]
        body = {"input_ids": ids, "sampling_params": sampling, "stream": True}
        request = urllib.request.Request(
            self.url + "/generate",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        began = time.perf_counter()
        with urllib.request.urlopen(request, timeout=120) as answer:
            answer.readline()
            first = time.perf_counter() - began
            answer.read()
        return first


def _server(args: Any, warm: bool, capacity: int) -> Server:
    config = {"warmup": warm, "warmup_idle_share": 1.0, "warmup_per_minute": 1 << 20}
    flags = [
        *("--model-path", args.model_path, "--radix-eviction-policy", "scout"),
        *("--radix-eviction-policy-config", json.dumps(config)),
        *("--max-total-tokens", str(capacity), "--sleep-on-idle", "--skip-server-warmup"),
    ]
    return Server(flags, log_path=args.out / f"server-{'on' if warm else 'off'}.log")


if __name__ == "__main__":
    raise SystemExit(main())
