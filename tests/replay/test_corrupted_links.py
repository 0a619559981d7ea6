"""What session links that are put wrong cost, on a small trace; the command measures the whole."""

from __future__ import annotations

import pytest

from evals.corrupted_links import KINDS, Bench, corrupted
from radix_policy import identity
from radix_policy.sessions import SessionLinker

CAPACITY = 12_000


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench("synthetic:mix24?sessions=60")


@pytest.fixture(scope="module")
def clean(bench: Bench) -> float:
    return bench.hit_rate("scout", CAPACITY, seed=0)


@pytest.mark.parametrize("kind", KINDS)
def test_five_percent_of_links_put_wrong_leave_most_of_the_gain(bench, clean, kind) -> None:
    lru = bench.hit_rate("lru", CAPACITY, seed=0)
    rate, links = bench.corrupted_rate(CAPACITY, seed=0, share=0.05, kind=kind)
    assert 0.02 < links < 0.09
    assert clean - rate < (1.0 if kind.startswith("missed") else 2.5)
    assert rate > lru + 0.6 * (clean - lru)


def test_no_link_put_wrong_is_no_cost_and_all_of_them_are_a_large_one(bench, clean) -> None:
    assert bench.corrupted_rate(CAPACITY, seed=0, share=0.0, kind="wrong") == (clean, 0.0)
    assert bench.corrupted_rate(CAPACITY, seed=0, share=1.0, kind="missed")[0] < clean - 2


def test_the_linker_is_its_old_self_afterwards() -> None:
    with pytest.raises(RuntimeError), corrupted(0.5, "wrong", 0):
        raise RuntimeError
    assert identity.SessionLinker is SessionLinker
    with pytest.raises(ValueError, match="missed, spreads"), corrupted(0.5, "else", 0):
        pass
