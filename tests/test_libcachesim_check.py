"""The lab against libCacheSim, which shares no code and no author with it."""

import pytest

from evals.libcachesim_check import block_hit_rate, blocks_of, rows
from scout_sglang.replay.stack import stack_curve
from scout_sglang.replay.synthetic import trace
from scout_sglang.replay.timing import Timing, schedule
from tests.replay.test_engine import SEQUENTIAL, branching_calls, one_call_sessions, run
from tests.replay.test_stack import one_page_calls

pytest.importorskip("libcachesim", reason="the extra 'check' is not installed")


# While a call runs, the page of its last prompt token is taken too; SGLang keeps a spare one free.
@pytest.mark.parametrize(("policy", "seed", "taken"), [("lru", 3, 2), ("belady", 5, 1)])
def test_policies_agree_where_every_path_is_one_page_and_calls_do_not_overlap(policy, seed, taken):
    sessions = one_call_sessions(one_page_calls(600, 40, seed))
    blocks = blocks_of(lambda: schedule(sessions, SEQUENTIAL, 0), 16)
    for pages in (5, 9, 20):
        result, _ = run(sessions, policy, (pages + taken) * 16, timing=SEQUENTIAL)
        assert result.hit_rate == pytest.approx(block_hit_rate(policy, blocks, pages * 16))


def test_stack_distances_agree_on_any_prefixes_at_every_capacity():
    sessions = one_call_sessions(branching_calls(300, 4))
    blocks = blocks_of(lambda: schedule(sessions, SEQUENTIAL, 0), 1)
    curve = stack_curve(schedule(sessions, SEQUENTIAL, 0), 1)
    for capacity in range(40, 400, 23):
        assert curve.hit_rate(capacity) == pytest.approx(block_hit_rate("lru", blocks, capacity))


def test_overlapping_calls_cost_the_lab_what_blocks_need_not_hold():
    [row] = rows("synthetic:mix24?sessions=60", "12000", 16, 0)
    lru, stack, block_lru, s3_fifo, belady, block_belady = map(float, row[2:])
    assert stack == block_lru
    assert lru < block_lru + 0.5
    assert belady < block_belady
    assert block_lru < s3_fifo < block_belady


def test_the_flattened_stream_counts_no_warm_up_call():
    blocks = blocks_of(lambda: schedule(trace("chat?sessions=5"), Timing(), 0), 16)
    whole, rest = (block_hit_rate("lru", blocks, 50_000, warmup) for warmup in (0, 10))
    assert 0 < whole < rest
