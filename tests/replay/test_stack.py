"""Stack distances against caches that are simulated at one capacity each."""

from collections import OrderedDict

import numpy as np
import pytest

from scout_sglang.replay.pages import cached_pages
from scout_sglang.replay.stack import stack_curve
from scout_sglang.replay.synthetic import trace
from scout_sglang.replay.timing import Timing, schedule
from tests.replay.test_engine import SEQUENTIAL, branching_calls, one_call_sessions, run


class PageLRU:
    """Page-wise LRU that keeps prefixes whole, at one capacity."""

    def __init__(self, capacity_pages):
        self.capacity = capacity_pages
        self.pages = OrderedDict()

    def call(self, pages, usable):
        hit = 0
        while hit < usable and pages[hit] in self.pages:
            hit += 1
        for page in [*pages, *reversed(pages)]:
            self.pages[page] = None
            self.pages.move_to_end(page)
            if len(self.pages) > self.capacity:
                self.pages.popitem(last=False)
        return hit


def replayed(events, page_size, capacity_pages):
    """Hit rate of the simulated cache, and its prompt tokens."""
    cache, hits, tokens = PageLRU(capacity_pages), 0, 0
    for event in events:
        if event.starts:
            pages = cached_pages(event.job, page_size).tolist()
            hits += cache.call(pages, (len(event.job.prompt) - 1) // page_size)
            tokens += len(event.job.prompt)
    return hits * page_size / tokens


@pytest.mark.parametrize("seed", range(3))
def test_the_curve_is_exact_at_every_capacity_that_holds_the_longest_call(seed):
    sessions = one_call_sessions(branching_calls(300, seed))
    curve = stack_curve(schedule(sessions, SEQUENTIAL, 0), 1)
    for capacity in range(40, 400, 7):
        expected = replayed(schedule(sessions, SEQUENTIAL, 0), 1, capacity)
        assert curve.hit_rate(capacity) == pytest.approx(expected, abs=1e-12)


def one_page_calls(n, keys, seed):
    """Prompts of one page and one token more, so that every leaf of the tree is one page."""
    rng = np.random.default_rng(seed)
    return [([int(key)] * 16 + [0], [1]) for key in rng.zipf(1.3, n) % keys]


@pytest.mark.parametrize("pages", [5, 9, 20])
def test_where_every_leaf_is_a_page_the_replayed_lru_lies_on_the_curve(pages):
    sessions = one_call_sessions(one_page_calls(600, 40, 1))
    curve = stack_curve(schedule(sessions, SEQUENTIAL, 0), 16)
    # SGLang keeps the page of the last prompt token and a spare one free while a call runs.
    result, _ = run(sessions, "lru", (pages + 2) * 16, timing=SEQUENTIAL)
    assert result.hit_rate == pytest.approx(curve.hit_rate(pages * 16), abs=1e-12)


def test_with_short_calls_the_replayed_lru_lies_on_or_below_the_curve():
    sessions = trace("selector?sessions=60")
    curve = stack_curve(schedule(sessions, Timing(), 0), 16)
    for capacity in (8_000, 16_000, 32_000):
        replayed_rate = run(sessions, "lru", capacity)[0].hit_rate
        assert curve.hit_rate(capacity) - 0.12 < replayed_rate < curve.hit_rate(capacity) + 0.01


@pytest.mark.parametrize("workload", ["mix24?sessions=300", "chat?sessions=300"])
def test_a_sampled_curve_is_exact_near_the_top_and_within_a_point_below(workload):
    def events():
        return schedule(trace(workload), Timing(), 0)

    exact, sampled = stack_curve(events(), 16), stack_curve(events(), 16, most_pages=4_000)
    assert exact.exact_pages is None
    assert 1_000 < sampled.exact_pages < 4_000
    capacities = np.geomspace(2_000, 400_000, 60).astype(int).tolist()
    errors = {c: abs(exact.hit_rate(c) - sampled.hit_rate(c)) for c in capacities}
    assert max(error for c, error in errors.items() if c <= sampled.exact_pages * 16) == 0
    assert max(errors.values()) < 0.01
    assert sampled.working_set == pytest.approx(exact.working_set, rel=0.1)


def test_calls_that_own_nothing_any_more_are_forgotten_without_changing_the_curve():
    calls = one_page_calls(4_000, 40, 2)
    curve = stack_curve(schedule(one_call_sessions(calls), SEQUENTIAL, 0), 16)
    expected = replayed(schedule(one_call_sessions(calls), SEQUENTIAL, 0), 16, 9)
    assert curve.hit_rate(9 * 16) == pytest.approx(expected, abs=1e-12)


def test_the_working_set_is_what_lies_between_uses():
    first, other = ([1] * 16 + [0], [1]), ([2] * 16 + [0], [1])
    sessions = one_call_sessions([first, other, other, first])
    curve = stack_curve(schedule(sessions, SEQUENTIAL, 0), 16)
    # The first page waits for three calls of four, the other for one.
    assert curve.working_set == 16
    assert curve.limit == pytest.approx(2 * 16 / (4 * 17))
    assert curve.capacity_for(curve.limit) == 32
    assert curve.capacity_for(0.9) is None
