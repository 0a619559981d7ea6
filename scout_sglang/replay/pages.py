"""Pages of a token sequence as numbers that stand for the whole prefix up to their end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scout_sglang.replay.trace import Tokens

Hashes = NDArray[np.uint64]

_BASE = np.uint64(0x9E3779B97F4A7C15 | 1)
_powers = np.ones(1, dtype=np.uint64)


def _mix(x: Hashes) -> Hashes:
    """The finalising permutation of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _base_powers(n: int) -> Hashes:
    global _powers
    if len(_powers) < n:
        steps = np.full(max(n, 2 * len(_powers)), _BASE, dtype=np.uint64)
        steps[0] = 1
        _powers = np.multiply.accumulate(steps)
    return _powers[:n]


def page_hashes(tokens: Tokens, page_size: int) -> Hashes:
    """One number for each full page, shape (n // page_size,): equal only for equal prefixes.

    A polynomial hash modulo 2**64, mixed; collisions are as likely as for random 64-bit numbers.
    """
    count = len(tokens) // page_size
    values = _mix(tokens[: count * page_size].astype(np.uint64) + np.uint64(1))
    sums = np.cumsum(values * _base_powers(len(values)), dtype=np.uint64)
    return _mix(sums[page_size - 1 :: page_size] + np.arange(1, count + 1, dtype=np.uint64))
