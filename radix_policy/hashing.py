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
_HALF = np.uint64(32)
_LOW = 0xFFFFFFFF
_VALUE = np.uint64(_LOW)
_EMPTY = _VALUE


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
    values = _token_values().take(tokens & _MASK)
    values *= _first_powers(_BASE, len(tokens))
    return _sums(values)


def _sums(values: Hashes) -> Hashes:
    """Sums of the first i values, for i from 0 to their number.

    By fours: a running sum waits for memory at every step.
    """
    out = np.empty(len(values) + 1, dtype=np.uint64)
    out[0] = 0
    fours = len(values) // 4 * 4
    one, two, three, four = (values[k:fours:4] for k in range(4))
    two = one + two
    three = two + three
    np.cumsum(three + four, out=out[4 : fours + 1 : 4])
    before = out[:fours:4]
    for place, within in enumerate((one, two, three), 1):
        np.add(before, within, out=out[place:fours:4])
    if fours < len(values):
        np.cumsum(values[fours:], out=out[fours + 1 :])
        out[fours + 1 :] += out[fours]
    return out


def prefix_hashes(H: Hashes, lengths: NDArray[np.int64]) -> Hashes:
    """Hash of the first ``lengths[k]`` tokens each, with all bits mixed, unlike those of ``H``."""
    return mix(H[lengths] + lengths.astype(np.uint64) * _LENGTH)


def window_keys(H: Hashes, start: int, stop: int, width: int) -> Hashes:
    """Hashes of the windows that lie within tokens [start, stop), as :class:`HashMap` takes them.

    Equal token windows have equal hashes at any position. Empty if the range is too short.
    """
    if stop - start < width:
        return np.empty(0, dtype=np.uint64)
    last = stop - width + 1
    sums = H[start + width : stop + 1] - H[start:last]
    sums *= _first_powers(_BASE_INVERSE, last)[start:]
    return sums


def window_hashes(H: Hashes, start: int, stop: int, width: int) -> Hashes:
    """The same, with all bits mixed: any of them can be sampled by."""
    return mix(window_keys(H, start, stop, width))


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


def counted(values: NDArray[Any]) -> list[tuple[int, int]]:
    """Distinct values, ascending, and how often each is there; ``values`` is not empty."""
    ranked = np.sort(values)
    ends = np.flatnonzero(ranked[1:] != ranked[:-1]).tolist()
    ends.append(len(ranked) - 1)
    starts = [-1, *ends[:-1]]
    found = ranked[ends].tolist()
    return [(value, end - start) for value, start, end in zip(found, starts, ends, strict=True)]


class HashMap:
    """Direct-mapped table from 64-bit hashes to int32 values: newer entries overwrite older ones.

    Starts small and doubles while more than an eighth full, up to ``2**max_bits`` slots (8 bytes
    each); from there on, old entries are lost to new ones at random, which bounds memory without
    any sweep. A hash's high bits choose the slot, its low half is kept beside the value to tell it
    from others: two hashes are taken for one with a chance of 2**-(32 + bits). The low bits of
    ``H`` and of window keys are their weaker ones, which is enough for that.
    A missing key reads as ``MISSING``.
    """

    MISSING = -1

    def __init__(self, max_bits: int, min_bits: int = 6) -> None:
        self._max_bits = max_bits
        self._bits = min(min_bits, max_bits)
        self._table = np.full(1 << self._bits, _EMPTY, dtype=np.uint64)
        self._written = 0

    def find(self, keys: Hashes) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Which of ``keys`` have a value, ascending, and these values."""
        entries = self._table.take(self._slots(keys))
        hit = (entries >> _HALF == keys & _VALUE).nonzero()[0]
        values = entries[hit].astype(np.uint32).view(np.int32)
        known = values != self.MISSING
        return (hit, values) if known.all() else (hit[known], values[known])

    def value(self, key: int) -> int:
        """The value of one key, ``MISSING`` where unknown."""
        entry = int(self._table.item(key >> 64 - self._bits))
        if entry >> 32 != key & _LOW:
            return self.MISSING
        value = entry & _LOW
        return value if value < 1 << 31 else value - (1 << 32)

    def get(self, keys: Hashes) -> NDArray[np.int32]:
        """Values of ``keys``, shape (k,), ``MISSING`` where unknown."""
        values = np.full(len(keys), self.MISSING, dtype=np.int32)
        hit, found = self.find(keys)
        values[hit] = found
        return values

    def put(self, keys: Hashes, values: NDArray[np.int32] | int, new: int | None = None) -> None:
        """Store ``values`` under ``keys``; of equal slots in one call the last one stays.

        ``new``: how many of them have no value so far, where the caller knows.
        """
        self._written += len(keys) if new is None else new
        while self._bits < self._max_bits and self._written << _SPARSE > 1 << self._bits:
            self._grow()
        entries = keys << _HALF
        if isinstance(values, np.ndarray):
            entries |= values.view(np.uint32)
        else:
            entries |= np.uint64(values & _LOW)
        self._table[self._slots(keys)] = entries

    def _slots(self, keys: Hashes) -> NDArray[np.int64]:
        return (keys >> np.uint64(64 - self._bits)).view(np.int64)

    def _grow(self) -> None:
        # One more bit of a hash than is known here says in which of two slots it is to be found:
        # it goes to both. The one that nobody asks for is overwritten like any other.
        self._table = np.repeat(self._table, 2)
        self._bits += 1

    def save(self) -> dict[str, Any]:
        """The entries, for ``load``."""
        used = np.flatnonzero(self._table != _EMPTY)
        return {
            "bits": self._bits, "written": self._written,
            "slots": used, "entries": self._table[used],
        }  # fmt: skip

    def load(self, bits: int, written: int, slots: NDArray[np.int64], entries: Hashes) -> None:
        """Become the table that was saved.

        Raises:
            ValueError: it has more slots than this one may have.
        """
        if not 0 < bits <= self._max_bits:
            raise ValueError(f"a table of 2**{bits} slots, at most 2**{self._max_bits} fit")
        self._bits, self._written = bits, written
        self._table = np.full(1 << bits, _EMPTY, dtype=np.uint64)
        self._table[slots] = entries

    @property
    def nbytes(self) -> int:
        return self._table.nbytes
