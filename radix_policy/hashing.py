"""Hashes of prefixes and windows of token ids, all in numpy, equal on every rank.

A rolling polynomial hash modulo 2**64: each token has a fixed random odd value, ``H[i]`` is the
sum of value x base**position over the first i tokens. ``H`` names every prefix at once, and the
difference of two of its entries, shifted back to position zero, names a window wherever it lies.
Random token values keep the known collisions of such hashes (Thue-Morse strings) out of reach of
ordinary text; nobody gains more by forging one than a worse eviction order in their own tenant.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from radix_policy.call import Tokens

Hashes = NDArray[np.uint64]

_VALUES = 1 << 18
_BASE = 0x9E3779B97F4A7C15
_BASE_INVERSE = pow(_BASE, -1, 1 << 64)
_SPARSE = 3
_MASK = np.int32(_VALUES - 1)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_LENGTH = np.uint64(0xD6E8FEB86659FD93)


def mix(values: Hashes) -> Hashes:
    """The 64-bit finaliser of SplitMix64, element by element: low bits become usable as index."""
    out = values ^ (values >> np.uint64(30))
    out *= _MIX_1
    out ^= out >> np.uint64(27)
    out *= _MIX_2
    out ^= out >> np.uint64(31)
    return out


@lru_cache(maxsize=1)
def _token_values() -> Hashes:
    return mix(np.arange(1, _VALUES + 1, dtype=np.uint64) * np.uint64(_BASE)) | np.uint64(1)


@lru_cache(maxsize=64)
def _powers(base: int, size: int) -> Hashes:
    factors = np.full(size, base, dtype=np.uint64)
    factors[0] = 1
    return np.cumprod(factors, dtype=np.uint64)


def _first_powers(base: int, n: int) -> Hashes:
    # Powers of two only, so that few tables are ever built.
    return _powers(base, 1 << max(12, (n - 1).bit_length()))[:n]


def rolling(tokens: Tokens) -> Hashes:
    """``H`` of shape (n + 1,) for tokens of shape (n,): H[i] stands for the first i tokens.

    Token ids outside the value table (multimodal placeholders) are folded into it.
    """
    n = len(tokens)
    out = np.zeros(n + 1, dtype=np.uint64)
    values = _token_values().take(tokens & _MASK)
    values *= _first_powers(_BASE, n)
    np.cumsum(values, out=out[1:])
    return out


def prefix_hashes(H: Hashes, lengths: NDArray[np.int64]) -> Hashes:
    """Hash of the first ``lengths[k]`` tokens each; the length is part of what is hashed."""
    return mix(H[lengths] + lengths.astype(np.uint64) * _LENGTH)


def window_hashes(H: Hashes, start: int, stop: int, width: int, step: int = 1) -> Hashes:
    """Hashes of the windows that lie within tokens [start, stop), one every ``step`` tokens.

    Equal token windows have equal hashes at any position. Empty if the range is too short.
    """
    if stop - start < width:
        return np.empty(0, dtype=np.uint64)
    last = stop - width + 1
    sums = H[start + width : stop + 1 : step] - H[start:last:step]
    sums *= _first_powers(_BASE_INVERSE, last)[start::step]
    return mix(sums)


def digest(*words: str | None) -> str:
    """What stands for a client's label where the label itself must not be kept."""
    return blake2b(repr(words).encode(), digest_size=16).hexdigest()


def distinct(values: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Sorted distinct values and where each comes first; numpy.unique at a third of its cost."""
    order = values.argsort(kind="stable")
    ranked = values[order]
    new = np.empty(len(values), dtype=np.bool_)
    new[:1] = True
    np.not_equal(ranked[1:], ranked[:-1], out=new[1:])
    return ranked[new], order[new]


class HashMap:
    """Direct-mapped table from 64-bit hashes to int32 values: newer entries overwrite older ones.

    Starts small and doubles while more than an eighth full, up to ``2**max_bits`` slots (12 bytes
    each); from there on, old entries are lost to new ones at random, which bounds memory without
    any sweep.
    A missing key reads as ``MISSING``.
    """

    MISSING = -1

    def __init__(self, max_bits: int, min_bits: int = 10) -> None:
        self._max_bits = max_bits
        self._allocate(min(min_bits, max_bits))

    def _allocate(self, bits: int) -> None:
        self._bits = bits
        self._slot_mask = np.uint64((1 << bits) - 1)
        self._keys = np.zeros(1 << bits, dtype=np.uint64)
        self._values = np.full(1 << bits, self.MISSING, dtype=np.int32)
        self._written = 0

    def get(self, keys: Hashes) -> NDArray[np.int32]:
        """Values of ``keys``, shape (k,), ``MISSING`` where unknown."""
        slots = (keys & self._slot_mask).view(np.int64)
        values = self._values.take(slots)
        values[self._keys.take(slots) != keys] = self.MISSING
        return values

    def put(self, keys: Hashes, values: NDArray[np.int32] | int) -> None:
        """Store ``values`` under ``keys``; of equal slots in one call the last one stays."""
        self._written += len(keys)
        while self._bits < self._max_bits and self._written << _SPARSE > 1 << self._bits:
            self._grow()
        slots = (keys & self._slot_mask).view(np.int64)
        self._keys[slots] = keys
        self._values[slots] = values

    def _grow(self) -> None:
        used = np.flatnonzero(self._values != self.MISSING)
        keys, values = self._keys[used], self._values[used]
        self._allocate(self._bits + 1)
        slots = (keys & self._slot_mask).view(np.int64)
        self._keys[slots] = keys
        self._values[slots] = values
        self._written = len(used)

    def save(self) -> dict[str, Any]:
        """The entries, for ``load``."""
        used = np.flatnonzero(self._values != self.MISSING)
        keys, values = self._keys[used], self._values[used]
        return {"bits": self._bits, "written": self._written, "keys": keys, "values": values}

    def load(self, bits: int, written: int, keys: Hashes, values: NDArray[np.int32]) -> None:
        """Become the table that was saved."""
        self._allocate(min(bits, self._max_bits))
        self.put(keys, values)
        self._written = written

    @property
    def nbytes(self) -> int:
        return self._keys.nbytes + self._values.nbytes
