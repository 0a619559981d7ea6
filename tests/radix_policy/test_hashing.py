from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_policy.hashing import HashMap, counted, distinct, prefix_hashes, rolling, window_hashes

EXPECTED = ["0x0", "0x6e789e6aa1b965f5", "0xb8b42898d9e45970", "0xfb2cca9b4d01a2b5"]
TOKENS = st.lists(st.integers(0, 60_000), min_size=1, max_size=60)


def array(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, dtype=np.int32)


def test_hashes_are_the_same_in_every_process_and_on_every_rank() -> None:
    H = rolling(array([1, 2, 3]))
    assert [hex(h) for h in H.tolist()] == EXPECTED
    assert len(H) == 4


@given(TOKENS, TOKENS, TOKENS)
def test_equal_prefixes_have_equal_hashes_and_longer_ones_others(head, one, other) -> None:
    length = np.array([len(head)])
    H, G = rolling(array(head + one)), rolling(array(head + other))
    assert prefix_hashes(H, length) == prefix_hashes(G, length)
    assert prefix_hashes(H, length) != prefix_hashes(H, length + 1)


@given(TOKENS, st.lists(st.integers(0, 60_000), min_size=8, max_size=20), TOKENS)
def test_a_window_has_one_hash_wherever_it_lies(head, window, tail) -> None:
    H, n = rolling(array(head + window + tail)), len(window)
    alone = window_hashes(rolling(array(window)), 0, n, n)
    assert window_hashes(H, len(head), len(head) + n, n) == alone


def test_a_range_shorter_than_the_window_has_none() -> None:
    assert len(window_hashes(rolling(array([1, 2, 3])), 0, 3, 4)) == 0


def test_an_empty_prompt_has_one_hash() -> None:
    assert rolling(array([])).tolist() == [0]


def test_token_ids_beyond_any_vocabulary_are_hashed_as_well() -> None:
    assert len(rolling(array([2**31 - 1, -5, 7]))) == 4


@given(st.lists(st.integers(0, 9)))
def test_distinct_agrees_with_numpy(values) -> None:
    ours, theirs = distinct(array(values)), np.unique(array(values), return_index=True)
    assert all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))


@given(st.lists(st.integers(-3, 9), min_size=1))
def test_counted_agrees_with_numpy(values) -> None:
    found, counts = np.unique(array(values), return_counts=True)
    assert counted(array(values)) == list(zip(found.tolist(), counts.tolist(), strict=True))


def keys(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**64, n, dtype=np.uint64)


def test_a_growing_table_keeps_nearly_all_it_was_given() -> None:
    table, k = HashMap(max_bits=16), keys(4000)
    for part in range(0, 4000, 100):
        table.put(k[part : part + 100], np.arange(part, part + 100, dtype=np.int32))
    assert (table.get(k) == np.arange(4000)).mean() > 0.9


def test_a_key_asked_for_alone_has_the_value_that_it_has_among_others() -> None:
    table, k = HashMap(max_bits=12), keys(300)
    table.put(k[:200], np.arange(-100, 100, dtype=np.int32))
    assert [table.value(key) for key in k.tolist()] == table.get(k).tolist()


def test_a_full_table_forgets_the_old_and_stays_small() -> None:
    table, old = HashMap(max_bits=10), keys(500)
    table.put(old, 1)
    size = table.nbytes
    for seed in range(1, 40):
        table.put(keys(500, seed), 2)
    assert table.nbytes == size
    assert (table.get(old) == 1).sum() == 0
    assert (table.get(keys(500, 39)) == 2).mean() > 0.5


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_an_unknown_key_is_missing(seed) -> None:
    table = HashMap(max_bits=8)
    table.put(keys(50, 1), 7)
    assert set(table.get(keys(20, seed + 2)).tolist()) <= {HashMap.MISSING, 7}
    assert (table.get(keys(20, seed + 2)) == HashMap.MISSING).all()
