"""What became of every prefilled token: sent = used + wasted + resident, whatever happens."""

from __future__ import annotations

import numpy as np
from contracts import text
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_policy import warmup_ledger
from radix_policy.warmup_ledger import WarmupLedger

PREAMBLE = text(99, 20)
SIZE = 60


def anchor(agent: int) -> np.ndarray:
    """Anchors share their first twenty tokens."""
    return np.concatenate([PREAMBLE, text(agent, SIZE - 20)])


class Books:
    """A ledger, and a cache of anchors' first tokens that is as the ledger is told."""

    def __init__(self):
        self.settled: list[tuple[object, bool]] = []
        self.ledger = WarmupLedger(lambda whose, used: self.settled.append((whose, used)))
        self.calls = 0

    def warm(self, agent: int, start: int, stop: int, tenant: int = 0) -> None:
        self.ledger.prefilled((tenant, agent, False), anchor(agent)[:stop], start, stop)

    def call(self, agent: int, hit: int, length: int = SIZE + 30, tenant: int = 0) -> None:
        self.calls += 1
        prompt = np.concatenate([anchor(agent), text(500 + self.calls, 30)])[:length]
        self.ledger.arrive(self.calls, tenant, prompt)
        self.ledger.start(self.calls, hit)

    @property
    def balance(self) -> tuple[int, int, int]:
        ledger = self.ledger
        assert ledger.sent == ledger.used + ledger.wasted + ledger.resident
        assert min(ledger.used, ledger.wasted, ledger.resident) >= 0
        return ledger.used, ledger.wasted, ledger.resident


positions = st.integers(0, SIZE)
steps = st.lists(
    st.tuples(
        st.sampled_from(["warm", "call", "look", "queue", "depart", "flush"]),
        st.integers(0, 3),
        positions,
        positions,
        st.integers(0, 1),
    ),
    max_size=50,
)


@settings(deadline=None)
@given(steps)
def test_the_books_balance_after_every_step(program):
    books = Books()
    for what, agent, a, b, tenant in program:
        sent = books.ledger.sent
        if what == "warm":
            books.warm(agent, min(a, b), max(a, b), tenant)
            assert books.ledger.sent == sent + abs(b - a)
        elif what == "call":
            books.call(agent, min(a, b), max(a, b, 1), tenant)
        elif what == "look":
            books.ledger.look(lambda tenant, tokens, a=a: a)
        elif what == "queue":
            books.calls += 1
            books.ledger.arrive(books.calls, tenant, anchor(agent))
        elif what == "depart":
            books.ledger.depart(books.calls)
        else:
            books.ledger.flush()
            assert books.ledger.resident == 0
        assert books.balance


def test_a_call_uses_what_lies_within_its_hit_and_shows_that_the_rest_had_gone():
    books = Books()
    books.warm(1, 10, 50)
    assert books.balance == (0, 0, 40)
    books.call(1, hit=30)
    assert books.balance == (20, 20, 0)
    assert books.settled == [((0, 1, False), True)]


def test_pieces_of_one_anchor_are_one_warm_up():
    books = Books()
    for start in (0, 20, 40):
        books.warm(1, start, start + 20)
    books.call(1, hit=60)
    assert books.balance == (60, 0, 0)
    assert books.settled == [((0, 1, False), True)]


def test_another_agents_call_uses_the_words_that_both_begin_with():
    books = Books()
    books.warm(1, 0, 60)
    books.call(2, hit=20)
    assert books.balance == (20, 0, 40)


def test_equal_words_in_another_tenant_are_not_the_same_tokens():
    books = Books()
    books.warm(1, 0, 60, tenant=0)
    books.call(1, hit=60, tenant=1)
    assert books.balance == (0, 0, 60)


def test_prefilling_again_what_another_warm_up_had_prefilled_shows_that_it_was_evicted():
    books = Books()
    books.warm(1, 0, 60)
    books.warm(2, 0, 60)
    assert books.balance == (0, 20, 100)


def test_what_the_cache_has_lost_is_wasted_and_a_warm_up_in_vain_is_told():
    books = Books()
    books.warm(1, 0, 60)
    books.ledger.look(lambda tenant, tokens: 45)
    assert books.balance == (0, 15, 45)
    assert books.settled == []
    books.ledger.look(lambda tenant, tokens: 0)
    assert books.balance == (0, 60, 0)
    assert books.settled == [((0, 1, False), False)]


def test_a_flush_wastes_what_was_prefilled_and_blames_nobody():
    books = Books()
    books.warm(1, 0, 60)
    books.ledger.flush()
    assert books.balance == (0, 60, 0)
    assert books.settled == []


def test_a_call_that_never_ran_settles_nothing():
    books = Books()
    books.warm(1, 0, 60)
    books.ledger.arrive(1, 0, anchor(1))
    books.ledger.depart(1)
    books.ledger.start(1, 60)
    assert books.balance == (0, 0, 60)


def test_flooded_with_anchors_and_calls_that_never_run_it_stays_small(monkeypatch):
    monkeypatch.setattr(warmup_ledger, "_MOST_CALLS", 100)
    books = Books()
    for agent in range(500):
        books.warm(agent, 20, 60)
        books.ledger.arrive(agent, 0, anchor(agent))
        assert books.balance
    assert len(books.ledger._warmed) <= warmup_ledger.MOST
    assert len(books.ledger._calls) <= 100
    assert books.ledger.resident == 40 * warmup_ledger.MOST
