"""Two parts that differ: which forms make them agree, and where they come together again."""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher
from typing import NamedTuple

from scout_sglang.doctor.causes import LAST_ASSISTANT, TOOL_LIST, Cause
from scout_sglang.doctor.forms import applicable, names, rewrite
from scout_sglang.doctor.prompts import Part
from scout_sglang.doctor.views import View, common_prefix, common_suffix

REJOINED = 64
"""Characters, some 16 tokens, that must agree after a difference to count as agreeing again."""
ALIKE = 0.5
"""Share of the shorter text's words that two forms of one output have in common."""
_FEWEST_WORDS = 4
_MOST_LINES = 400
_EQUAL = 1 << 60


class Place(NamedTuple):
    """A cause, and the character in each of the two parts where it shows."""

    cause: Cause
    at: int
    other_at: int


class Reconciled(NamedTuple):
    """Two parts in the form that hides the causes ``found``, in order of their places.

    ``at``: characters that agree as they are, ``then``: in this form (of the rewritten texts).
    """

    found: list[Place]
    mine: View
    theirs: View
    at: int
    then: int

    @property
    def equal(self) -> bool:
        """Nothing but the causes found makes the parts differ."""
        return self.then == _EQUAL


class _Trial(NamedTuple):
    """Both parts with one cause more hidden."""

    cause: Cause
    mine: View
    theirs: View

    def agreed(self) -> int:
        return _agree(self.mine, self.theirs)


def reconcile(x: Part, y: Part) -> Reconciled:
    """Hide one cause after the other, the one that lets the parts agree longest first."""
    common = frozenset(names(x)) & frozenset(names(y))
    hidden: frozenset[Cause] = frozenset()
    found: list[Place] = []
    a, b = rewrite(x, hidden), rewrite(y, hidden)
    first = then = _agree(a, b)
    while then != _EQUAL:
        tried = [
            _Trial(cause, *(rewrite(part, hidden | {cause}, common) for part in (x, y)))
            for cause in applicable(x, y)
            if cause not in hidden
        ]
        best = max(tried, key=_Trial.agreed, default=None)
        if best is None or best.agreed() <= then:
            break
        found.append(Place(best.cause, a.origin(max(then, 0)), b.origin(max(then, 0))))
        hidden |= {best.cause}
        a, b, then = best.mine, best.theirs, best.agreed()
    if then != _EQUAL and {LAST_ASSISTANT, TOOL_LIST} & hidden:
        # These explain whole parts or nothing.
        at = max(first, 0)
        return Reconciled([], rewrite(x, frozenset()), rewrite(y, frozenset()), at, at)
    return Reconciled(found, a, b, max(first, 0), then)


def _agree(a: View, b: View) -> int:
    if a.role != b.role:
        return -1
    return _EQUAL if a.text == b.text else common_prefix(a.text, b.text)


def is_form_of(text: str, output: str) -> bool:
    """Whether ``text`` says most of what ``output`` says, or the other way round."""
    mine, theirs = (Counter(re.findall(r"\w+", said)) for said in (text, output))
    fewest = min(mine.total(), theirs.total())
    return fewest >= _FEWEST_WORDS and (mine & theirs).total() >= ALIKE * fewest


def agrees_again(a: str, b: str) -> tuple[int, bool]:
    """Characters of ``a`` that agree with ``b`` after their difference; up to the end?"""
    tail = common_suffix(a, b)
    if tail < REJOINED:
        tail = 0
    lines_a = a[: len(a) - tail].splitlines(keepends=True)[:_MOST_LINES]
    lines_b = b[: len(b) - tail].splitlines(keepends=True)[:_MOST_LINES]
    matches = SequenceMatcher(None, lines_a, lines_b, autojunk=False).get_matching_blocks()
    runs = (sum(map(len, lines_a[m.a : m.a + m.size])) for m in matches)
    return tail + sum(run for run in runs if run >= REJOINED), tail > 0
