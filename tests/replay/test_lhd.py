import numpy as np
import pytest

from scout_sglang.replay.policies.lhd import BINS, CLASSES, HitDensity, hit_densities
from scout_sglang.replay.synthetic import trace
from scout_sglang.replay.timing import Timing, schedule
from tests.replay.test_engine import run


def table(counts):
    """Counts of the first class by age in calls."""
    out = np.zeros((CLASSES, BINS))
    for age, count in counts.items():
        out[0, int(4 * np.log2(age))] = count
    return out


def test_the_density_is_hits_over_the_time_that_pages_stay():
    density = hit_densities(table({4: 3}), table({16: 1}))[0]
    width4, width16 = 4 * (2**0.25 - 1), 16 * (2**0.25 - 1)
    stay = 4 * width4 / 2 + width4 / 2 + (16 - 4 * 2**0.25) + width16 / 2
    assert density[8] == pytest.approx(3 / stay)
    assert density[9] == 0.0


def test_the_density_rises_towards_the_age_at_which_pages_hit():
    density = hit_densities(table({64: 5}), table({}))[0]
    assert (np.diff(density[:24]) > 0).all()
    assert (density[25:] == 0).all()


def test_a_page_that_left_starts_anew():
    mind = HitDensity(8)
    job = next(schedule(trace("mix24?sessions=1"), Timing(), 0)).job
    pages = np.array([1, 2])
    mind.arrived(job, pages)
    mind.arrived(job._replace(number=9), pages)
    assert mind.hits.sum() == 2
    mind.evicted(pages)
    mind.arrived(job._replace(number=19), pages)
    assert mind.hits.sum() == 2
    assert mind.evictions.sum() == 2


def test_it_keeps_most_of_a_loop_that_is_a_little_too_large_for_lru():
    sessions = trace("loop?sessions=300")
    lru, lhd = (run(sessions, policy, 7680)[0].hit_rate for policy in ("lru", "lhd"))
    assert lhd > lru + 0.2
