"""Two tensor-parallel ranks evict alike; SGLang's own checker is the judge."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from evals.app.client import RequestFailedError
from tests.server import support
from tests.server.pair import TURNS, Pair
from tests.server.plugins import scout_testing

pytestmark = pytest.mark.server

TWO_RANKS = {
    "SGLANG_CPU_OMP_THREADS_BIND": "0|1",
    "SGLANG_ENABLE_RANK_CONSENSUS_CHECKER": "1",
}


def test_two_ranks_serve_under_heavy_eviction_without_a_divergence(logs, lru_run):
    with support.server("scout", logs / "ranks.log", "--tp", "2", **TWO_RANKS) as server:
        run = support.send_workload(server.url, lru_run.requests)
        capacity = support.inside(server.url)["testing"]["capacity"]
        Pair(server.url, anchor=capacity * 3 // 5).calls(4 * TURNS)
        state = support.at_rest(server.url)
        assert server.exit_code is None
        changed = change_everything(server, lru_run)
    support.assert_books_balance(state)
    assert changed["scout"]["faults"] == {}
    assert state["testing"]["evicted_tokens"] > 2 * state["testing"]["capacity"]
    assert state["scout"]["faults"] == {}
    assert state["scout"]["warmup"]["tokens_used"] > 0
    assert len(run.replies) == len(lru_run.replies)
    log = server.log_path.read_text(errors="replace")
    assert "Rank consensus checker is enabled" in log
    assert "Found rank divergence" not in log
    for name in CHANGES:
        assert all(f"TP{rank}] scout: {name} changed from" in log for rank in (0, 1)), name


CHANGES = {"warmup_per_minute": 5000, "keep": ["A"], "keep_share": 0.5, "mode": "shadow"}


def change_everything(server, lru_run):
    """Change settings amid calls, and back; the state when it is at rest again."""
    with ThreadPoolExecutor(1) as pool:
        calls = pool.submit(support.send_workload, server.url, lru_run.requests)
        for body in (CHANGES, {"mode": "on", "warmup": False, "keep": []}, {"warmup": True}):
            time.sleep(1)
            assert not calls.done()
            [rank] = support.post(server.url, "/scout/config", body)["ranks"]
            assert {name: step["to"] for name, step in rank["changed"].items()} == body
        calls.result()
    Pair(server.url, 1000).calls(TURNS)
    return support.at_rest(server.url)


def test_the_checker_catches_a_score_that_depends_on_the_rank(logs, lru_run):
    # Ranks that evict apart soon differ in the sizes of what they exchange, and now and then the
    # model's own exchange fails first: the server ends then as well, but not by the checker.
    assert any(
        "Found rank divergence" in serve_apart(logs / f"divergence{attempt}.log", lru_run)
        for attempt in range(4)
    )


def serve_apart(path, lru_run):
    """The log of two ranks that order evictions differently; the server must have ended."""
    env = {**TWO_RANKS, scout_testing.RANK_SCORE: "1"}
    with support.server("scout", path, "--tp", "2", **env) as server:
        with pytest.raises(RequestFailedError):
            support.send_workload(server.url, lru_run.requests)
        deadline = time.monotonic() + 60
        while server.exit_code is None and time.monotonic() < deadline:
            time.sleep(0.2)
        assert server.exit_code not in (None, 0)
    return path.read_text(errors="replace")
