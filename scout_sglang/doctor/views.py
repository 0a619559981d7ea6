"""A part of a prompt rewritten in some form, with the way back to where a character came from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

Edit = tuple[int, int, str]
"""Start and end in the old text, and what stands there in the new one."""


class View(NamedTuple):
    """Role and text to compare; ``steps`` hold, for each rewriting, its edits in order."""

    role: str
    text: str
    steps: tuple[Sequence[Edit], ...] = ()

    def rewritten(self, edits: Iterable[Edit]) -> View:
        """The view after one more rewriting; edits are in order and do not overlap."""
        done = list(edits)
        pieces, at = [], 0
        for start, end, new in done:
            pieces += [self.text[at:start], new]
            at = end
        text = "".join([*pieces, self.text[at:]])
        return View(self.role, text, (*self.steps, done))

    def origin(self, at: int) -> int:
        """Where the character at ``at`` stood before all rewriting."""
        for edits in reversed(self.steps):
            at = _before(edits, at)
        return at


def common_prefix(a: str, b: str) -> int:
    """How many leading characters agree. O(n) in C: halves are compared as slices."""
    low, high = 0, min(len(a), len(b))
    if a[:high] == b[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def common_suffix(a: str, b: str) -> int:
    """How many trailing characters agree."""
    return common_prefix(a[::-1], b[::-1])


def _before(edits: Sequence[Edit], at: int) -> int:
    grown = 0
    for start, end, new in edits:
        if at < start + grown:
            break
        if at < start + grown + len(new):
            return start
        grown += len(new) - (end - start)
    return at - grown
