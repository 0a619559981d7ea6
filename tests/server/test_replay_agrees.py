"""The replay lab finds, request by request, the cached tokens that a live server reports."""

from __future__ import annotations

import numpy as np
import pytest

from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.formats import sglang_log
from scout_sglang.replay.formats.fields import Options
from scout_sglang.replay.policies import Setting, build
from scout_sglang.replay.timing import Timing, schedule
from tests.server import support

pytestmark = pytest.mark.server

CALLS = 160
CAPACITY = 4096


def converse(url):
    """Sessions of one team take turns, one call after the other; histories hold what was said."""
    rng = np.random.default_rng(0)
    anchors = [rng.integers(10, 49000, int(rng.integers(80, 300))).tolist() for _ in range(6)]
    histories: dict[int, list[int]] = {}
    for number in range(CALLS):
        session = number // 12 * 2 + int(rng.integers(3))
        history = histories.setdefault(session, rng.integers(10, 49000, 40).tolist())
        agent = int(rng.integers(6))
        reply = support.generate(
            url,
            [*anchors[agent], *history],
            tokens=int(rng.integers(1, 24)),
            session_id=f"session {session}",
        )
        history += [*reply["output_ids"], *rng.integers(10, 49000, 9).tolist()]


@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("policy", ["lru", "scout"])
def test_every_request_of_a_live_server_hits_as_in_the_lab(policy, page_size, tmp_path):
    more = ["--max-total-tokens", str(CAPACITY), "--page-size", str(page_size)]
    more += ["--log-requests", "--log-requests-level", "3", "--log-requests-format", "json"]
    more += ["--log-requests-target", str(tmp_path)]
    if policy == "scout":
        more += support.NO_WARMUP
    with support.server(policy, tmp_path / "server.out", *more) as server:
        converse(server.url)
    [log] = tmp_path.glob("*.log")
    sessions = list(sglang_log.read(log, Options()))
    events = list(schedule(sessions, Timing(), 0))
    setting = Setting(policy, CAPACITY, page_size, 4096, CAPACITY, lambda: iter(events))
    result = replay(build(setting), events, Result(policy, CAPACITY, page_size, 0, hits=[]))
    reported = [event.job.call.cached for event in events if event.starts]
    assert len(reported) == CALLS
    assert result.evicted_tokens > CAPACITY
    assert result.hits == reported
