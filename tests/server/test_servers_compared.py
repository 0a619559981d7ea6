"""The load harness, from its command line to its figures, on servers of a tiny model."""

from __future__ import annotations

import json

import pytest

from evals import serve_bench
from tests.tiny_model import tiny_model_path

pytestmark = pytest.mark.server

REQUESTS = {"multi-turn": 60, "mooncake": 16}


def test_servers_are_compared_on_equal_arrivals_and_by_sglangs_own_tool(tmp_path):
    tiny = tiny_model_path()
    common = ["--model-path", tiny, "--server-args", "--dtype float32 --skip-server-warmup"]
    common += ["--policies", "lru,named", "--flags", "named=--radix-eviction-policy scout"]
    app = ["--workload", "app:pipeline", "--sessions", "4", "--rates", "4", "--tool-gap", "0.1"]
    assert serve_bench.main([*common, *app, "--out", str(tmp_path / "app")]) == 0
    found = json.loads((tmp_path / "app" / "serve_bench.json").read_text())
    [point] = found["rates"]
    [lru], [scout] = point["runs"]["lru"], point["runs"]["named"]
    assert lru["prompt_tokens"] == scout["prompt_tokens"]
    assert lru["broken_sessions"] == scout["broken_sessions"] == 0
    interval = point["ratios"]["named"]["recomputed_tokens"]
    assert interval["low"] <= interval["ratio"] <= interval["high"]
    bench = ["--workload", "bench:multi-turn,mooncake", "--rates", "50", "--policies", "named"]
    assert serve_bench.main([*common, *bench, "--out", str(tmp_path / "bench")]) == 0
    found = json.loads((tmp_path / "bench" / "serve_bench.json").read_text())
    for workload in ("multi-turn", "mooncake"):
        [figures] = found["bench_serving"][workload]["named"]
        assert figures["completed"] == REQUESTS[workload]
        assert figures["mean_ttft_ms"] > 0
