"""The load harness, from its command line to its figures, on servers of a tiny model."""

from __future__ import annotations

import json

import pytest

from evals import serve_bench
from tests.tiny_model import tiny_model_path

pytestmark = pytest.mark.server

REQUESTS = {"multi-turn": 24, "mooncake": 10}


def test_servers_are_compared_on_equal_arrivals_and_by_sglangs_own_tool(tmp_path):
    tiny = tiny_model_path()
    common = ["--model-path", tiny, "--server-args", "--dtype float32 --skip-server-warmup"]
    app = ["--workload", "app:pipeline", "--sessions", "4", "--rates", "4", "--tool-gap", "0.1"]
    app += ["--out", str(tmp_path / "app"), "--policies"]
    assert serve_bench.main([*common, *app, "lru", "--seconds", "1"]) == 0
    assert json.loads((tmp_path / "app" / "report.json").read_text())["workloads"] == []
    assert serve_bench.main([*common, *app, "lru"]) == 0
    kept = measured(tmp_path / "app", 0)["lru"]
    # Another command goes on where the first one stopped.
    assert serve_bench.main([*common, *app, "lru,scout-cold"]) == 0
    found = measured(tmp_path / "app", 0)
    assert found["lru"] == kept
    assert found["lru"]["prompt_tokens"] == found["scout-cold"]["prompt_tokens"]
    assert found["lru"]["broken_sessions"] == found["scout-cold"]["broken_sessions"] == 0
    assert found["scout-cold"]["books"]["faults"] == 0
    assert 0 <= found["scout-cold"]["books"]["others"] <= 1
    interval = found["scout-cold"]["ratios"]["recomputed_tokens"]
    assert interval["low"] <= interval["ratio"] <= interval["high"]
    bench = ["--workload", "bench:multi-turn,mooncake", "--rates", "50", "--sessions", "10"]
    bench += ["--max-total-tokens", "4096", "--policies", "scout", "--out", str(tmp_path / "bench")]
    assert serve_bench.main([*common, *bench]) == 0
    for number, requests in enumerate(REQUESTS.values()):
        scout = measured(tmp_path / "bench", number)["scout"]
        assert scout["calls"] == requests
        assert 0 < scout["recomputed_tokens"] < scout["prompt_tokens"]


def measured(folder, number):
    """The policies at the only rate of a workload."""
    report = json.loads((folder / "report.json").read_text())
    [point] = report["workloads"][number]["points"]
    return point["policies"]
