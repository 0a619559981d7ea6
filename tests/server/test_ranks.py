"""Two tensor-parallel ranks evict alike; SGLang's own checker is the judge."""

from __future__ import annotations

import time

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
    support.assert_books_balance(state)
    assert state["testing"]["evicted_tokens"] > 2 * state["testing"]["capacity"]
    assert state["scout"]["faults"] == {}
    assert state["scout"]["warmup"]["tokens_used"] > 0
    assert len(run.replies) == len(lru_run.replies)
    log = server.log_path.read_text(errors="replace")
    assert "Rank consensus checker is enabled" in log
    assert "Found rank divergence" not in log


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
