"""SGLang's own ``bench_serving``, as it is, against a running server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

STAND_IN = Path(__file__).parent / "stand_in"
# 600 requests of 12 prompts or turns would take hours on a CPU: these take a minute or two.
_SHARED_PREFIX = (
    *("--dataset-name", "generated-shared-prefix", "--gsp-num-groups", "4"),
    *("--gsp-prompts-per-group", "5", "--gsp-system-prompt-len", "256"),
    *("--gsp-question-len", "64", "--gsp-output-len", "8", "--num-prompts", "20"),
)
WORKLOADS: dict[str, tuple[str, ...]] = {
    "shared-prefix": ("--backend", "sglang", *_SHARED_PREFIX),
    # The tool sends turns to chat endpoints only.
    "multi-turn": ("--backend", "sglang-oai-chat", *_SHARED_PREFIX, "--gsp-num-turns", "3"),
    "mooncake": ("--backend", "sglang", "--dataset-name", "mooncake", "--num-prompts", "16"),
}
KEPT = (
    *("duration", "completed", "total_input_tokens", "total_output_tokens"),
    *("request_throughput", "total_throughput", "mean_ttft_ms", "p99_ttft_ms"),
    *("mean_e2e_latency_ms", "cache_report"),
)


def bench(
    workload: str, url: str, model: str, out: Path, *, rate: float, seed: int
) -> dict[str, Any]:
    """Run one workload of :data:`WORKLOADS`; the tool's own figures, those in :data:`KEPT`.

    Raises RuntimeError with the end of the tool's output if it fails or a request does.
    """
    out.mkdir(parents=True, exist_ok=True)
    result = out / f"{workload}.json"
    result.unlink(missing_ok=True)
    more = WORKLOADS[workload]
    if workload == "mooncake":
        sample = out / "mooncake.jsonl"
        sample.write_text("".join(json.dumps(row) + "\n" for row in mooncake_sample(16, seed)))
        more = (*more, "--dataset-path", str(sample))
    command = [
        *(sys.executable, "-m", "sglang.bench_serving"),
        *("--base-url", url, "--model", model, "--tokenizer", model, "--seed", str(seed)),
        *("--request-rate", str(rate), "--cache-report", "--disable-tqdm"),
        *("--output-file", str(result), *more),
    ]
    log = out / f"{workload}.log"
    with log.open("wb") as written:
        code = subprocess.run(
            command, stdout=written, stderr=written, env=_environment(), check=False
        ).returncode
    if code or not result.exists():
        raise RuntimeError(f"bench_serving failed:\n{log.read_text(errors='replace')[-2000:]}")
    figures = json.loads(result.read_text().splitlines()[-1])
    return {key: figures.get(key) for key in KEPT}


def _environment() -> dict[str, str]:
    """The tool imports `datasets` for workloads that are not used here."""
    if find_spec("datasets"):
        return dict(os.environ)
    path = os.pathsep.join(filter(None, (str(STAND_IN), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "PYTHONPATH": path}


def mooncake_sample(requests: int, seed: int) -> Sequence[dict[str, Any]]:
    """A small trace in Mooncake's format: arrival in ms, sizes, ids of the prompt's blocks.

    Drawn here, not recorded: chats that come back with a longer history, some under a common
    first block, as in the published trace (arXiv 2407.00079).
    """
    rng = Random(seed)
    chats: list[list[int]] = []
    fresh = iter(range(100, 100 + 8 * requests))
    rows: list[dict[str, Any]] = []
    now = 0.0
    for _ in range(requests):
        now += rng.expovariate(1 / 3000)
        if chats and rng.random() < 0.5:
            chat = rng.choice(chats)
        else:
            chat = [rng.choice((1, 2))]
            chats.append(chat)
        chat += [next(fresh) for _ in range(rng.randint(1, 2))]
        row = {"timestamp": round(now), "input_length": 512 * len(chat), "output_length": 8}
        rows.append({**row, "hash_ids": list(chat)})
    return rows
