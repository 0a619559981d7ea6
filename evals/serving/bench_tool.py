"""SGLang's own ``bench_serving``, as it is, against a running server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from evals.serving.samples import Run, Sample
from evals.workloads.mooncake import write_sample

STAND_IN = Path(__file__).parent / "stand_in"
# 600 requests of 12 prompts or turns would take hours on a CPU: these take a minute or two.
_SHARED_PREFIX = (
    *("--dataset-name", "generated-shared-prefix", "--gsp-num-groups", "8"),
    *("--gsp-system-prompt-len", "400", "--gsp-question-len", "100", "--gsp-output-len", "8"),
)
WORKLOADS: dict[str, tuple[str, ...]] = {
    "shared-prefix": ("--backend", "sglang", *_SHARED_PREFIX),
    # The tool sends turns to chat endpoints only.
    "multi-turn": ("--backend", "sglang-oai-chat", *_SHARED_PREFIX, "--gsp-num-turns", "3"),
    "mooncake": ("--backend", "sglang", "--dataset-name", "mooncake"),
}
GROUPS = 8
# Of the Mooncake sample, before the tool slows it down or speeds it up to the rate asked for.
PER_SECOND = 0.1


def bench(
    workload: str, url: str, model: str, out: Path, *, requests: int, rate: float, seed: int
) -> Run:
    """Run one workload of :data:`WORKLOADS` with about ``requests`` requests (multi-turn: chats).

    Every request counts as a session of its own; the tool does not say when each one began.

    Raises RuntimeError with the end of the tool's output if it fails or a request does.
    """
    out.mkdir(parents=True, exist_ok=True)
    result = out / f"{workload}.json"
    result.unlink(missing_ok=True)
    command = [
        *(sys.executable, "-m", "sglang.bench_serving"),
        *("--base-url", url, "--model", model, "--tokenizer", model, "--seed", str(seed)),
        *("--request-rate", str(rate), "--cache-report", "--disable-tqdm", "--output-details"),
        *("--output-file", str(result), *WORKLOADS[workload]),
        *(_sample if workload == "mooncake" else _groups)(out, requests, rate, seed),
    ]
    log = out / f"{workload}.log"
    with log.open("wb") as written:
        code = subprocess.run(
            command, stdout=written, stderr=written, env=_environment(), check=False
        ).returncode
    if code or not result.exists():
        raise RuntimeError(f"bench_serving failed:\n{log.read_text(errors='replace')[-2000:]}")
    return run_of(json.loads(result.read_text().splitlines()[-1]))


def run_of(figures: Mapping[str, Any]) -> Run:
    """The tool's own record of a run, ``--output-details`` and ``--cache-report`` included.

    Raises RuntimeError if a request failed.
    """
    if failed := [error for error in figures["errors"] if error]:
        raise RuntimeError(f"bench_serving: {len(failed)} requests failed, first: {failed[0]}")
    columns = (figures[name] for name in ("ttfts", "itls", "input_lens", "output_lens"))
    samples = [
        Sample(
            session=f"{number}",
            started=float(number),
            ttft_ms=1000 * ttft,
            latency_ms=1000 * (ttft + sum(gaps)),
            prompt_tokens=prompt,
            cached_tokens=cached,
            output_tokens=output,
        )
        for number, (ttft, gaps, prompt, output, cached) in enumerate(
            zip(*columns, figures["cached_tokens"], strict=True)
        )
    ]
    return Run(samples, 0, figures["duration"])


def _groups(_out: Path, requests: int, _rate: float, _seed: int) -> list[str]:
    each = max(1, requests // GROUPS)
    return ["--gsp-prompts-per-group", str(each), "--num-prompts", str(GROUPS * each)]


def _sample(out: Path, requests: int, rate: float, seed: int) -> list[str]:
    sample = out / "mooncake.jsonl"
    # A block of the trace is some 130 tokens in the tool: prompts of 2,000 at most.
    write_sample(sample, requests, PER_SECOND, seed, most_blocks=15, most_output=8)
    return [
        *("--dataset-path", str(sample), "--num-prompts", str(requests)),
        *("--mooncake-slowdown-factor", str(PER_SECOND / rate)),
    ]


def _environment() -> dict[str, str]:
    """The tool imports `datasets` for workloads that are not used here."""
    if find_spec("datasets"):
        return dict(os.environ)
    path = os.pathsep.join(filter(None, (str(STAND_IN), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}
