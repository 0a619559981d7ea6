"""Every function of ours fails on a real server: clients notice nothing, operators see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from evals.app.client import Run
from tests.server import support
from tests.server.plugins import scout_testing
from tests.server.plugins.scout_testing import EVERYTHING, ON_RUST

pytestmark = pytest.mark.server

CALLS_A_POINT = 5
POINTS = {**scout_testing.POINTS, **ON_RUST}
KINDS = set().union(*POINTS.values())


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    """Name of the function that fails, in the file that the server reads."""
    path = tmp_path_factory.mktemp("faults") / "failing"
    path.write_text("")
    return path


@pytest.fixture(scope="module")
def server(logs, failing):
    env = {scout_testing.FAULTS: str(failing)}
    with support.server("scout", logs / "faults.log", *support.NO_WARMUP, **env) as server:
        yield server


@pytest.mark.parametrize("point", POINTS)
def test_one_failing_function_changes_no_answer_and_is_counted_by_kind(
    point, server, failing: Path, lru_run: Run
):
    before = faults(server.url)
    first = list(POINTS).index(point) * CALLS_A_POINT % len(lru_run.requests)
    failing.write_text(point)
    try:
        for index in range(first, first + CALLS_A_POINT):
            index %= len(lru_run.requests)
            answer = support.chat(server.url, index, lru_run.requests[index])
            assert answer == lru_run.replies[index].text
        if point.endswith("abandon"):
            assert support.abort_in_queue(server.url) == "abort"
        if point.endswith("flush"):
            support.post(server.url, "/flush_cache")
        after = faults(server.url)
    finally:
        failing.write_text("")
    grown = {kind for kind, count in after.items() if count > before.get(kind, 0)}
    assert grown and grown <= POINTS[point]
    support.assert_books_balance(support.at_rest(server.url))


def test_with_everything_failing_at_once_all_calls_are_answered_as_under_lru(
    server, failing: Path, lru_run: Run
):
    before = faults(server.url)
    failing.write_text(EVERYTHING)
    try:
        run = support.send_workload(server.url, lru_run.requests)
    finally:
        failing.write_text("")
    assert [reply.text for reply in run.replies] == [reply.text for reply in lru_run.replies]
    after = faults(server.url)
    assert after["arrive"] == before["arrive"] + len(run.replies)
    assert after["walk"] > before["walk"]
    state = support.at_rest(server.url)
    support.assert_books_balance(state)
    assert state["testing"]["evicted_tokens"] > state["testing"]["capacity"]


def test_each_kind_is_logged_once(server):
    kinds = faults(server.url)
    assert kinds.keys() == KINDS
    log = server.log_path.read_text(errors="replace")
    assert {kind: log.count(f"scout: {kind} failed") for kind in kinds} == dict.fromkeys(kinds, 1)


def faults(url: str) -> dict[str, int]:
    return support.inside(url)["scout"]["faults"]
