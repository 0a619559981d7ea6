"""Where a prompt leaves an earlier one, why, and how far it would have followed it otherwise.

Two prompts are walked part by part. Where they differ, each cause is tried: does the difference
vanish when both are written in a form that hides it? What no form explains is either the model's
own output in other words, changing text inside a fixed part, or a true difference, which ends the
walk: what follows it could never have been reused.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from scout_sglang.doctor.causes import (
    EMBEDDED,
    JSON_KEYS,
    LAST_ASSISTANT,
    OWN_OUTPUT,
    TOOL_LIST,
    Cause,
)
from scout_sglang.doctor.prompts import TOOLS, Part, Prompt
from scout_sglang.doctor.reconcile import (
    REJOINED,
    Place,
    Reconciled,
    agrees_again,
    is_form_of,
    reconcile,
)
from scout_sglang.doctor.views import common_prefix

MARKS = 8
"""Characters that stand for the role and end marks of a part."""


class Break(NamedTuple):
    """One difference that a cause explains.

    ``offset``: characters of the later prompt before it; ``part`` and ``at`` say the same as a
    place within a part, ``other`` and ``other_at`` the place in the earlier prompt.
    """

    cause: Cause
    offset: int
    part: int
    at: int
    other: int
    other_at: int


@dataclass
class Comparison:
    """``shared``: leading characters of the prompt that the earlier one has too. ``reach``: how
    many it would share were it not for ``breaks``, which are in order of their offset."""

    shared: int = 0
    reach: int = 0
    breaks: list[Break] = field(default_factory=list)


def width(part: Part) -> int:
    """Characters of a part, its marks included."""
    return len(part.text) + MARKS


def compare(prompt: Prompt, earlier: Prompt) -> Comparison:
    """Walk ``prompt`` along ``earlier`` and its output."""
    return _Walk(prompt, earlier).run()


class _Walk:
    """``i`` and ``j`` stand in the later and the earlier prompt, ``offset`` in its characters."""

    def __init__(self, prompt: Prompt, earlier: Prompt) -> None:
        self.mine, self.theirs = prompt.parts, earlier.parts
        self.said = len(earlier.parts)
        if earlier.output:
            self.theirs = (*earlier.parts, Part("assistant", earlier.output))
        self.fixed = prompt.head or 1
        known = prompt.session is not None and earlier.session is not None
        self.strangers = known and prompt.session != earlier.session
        self.i = self.j = self.offset = 0
        self.differed = False
        self.outcome = Comparison()

    def run(self) -> Comparison:
        while self.i < len(self.mine) and self.j < len(self.theirs):
            x, y = self.mine[self.i], self.theirs[self.j]
            if (x.role == TOOLS) != (y.role == TOOLS):
                self._tools_on_one_side(x)
            elif not self._follow(x, y):
                break
        return self.outcome

    def _follow(self, x: Part, y: Part) -> bool:
        """Past two parts; whether the prompts agree after them."""
        if (x.role, x.text) == (y.role, y.text):
            agreed, goes_on = width(x), True
            self.outcome.shared += 0 if self.differed else agreed
        else:
            if not self.differed and x.role == y.role:
                self.outcome.shared += common_prefix(x.text, y.text)
            self.differed = True
            agreed, goes_on = self._explain(x, y)
        self.outcome.reach += agreed
        self._advance(width(x), True, True)
        return goes_on

    def _advance(self, chars: int, mine: bool, theirs: bool) -> None:
        self.offset += chars
        self.i += mine
        self.j += theirs

    def _tools_on_one_side(self, x: Part) -> None:
        """One of the prompts has tools where the other has none."""
        self.differed = True
        self._found(Place(TOOL_LIST, 0, 0))
        mine = x.role == TOOLS
        self._advance(width(x) if mine else 0, mine, not mine)

    def _found(self, *places: Place) -> None:
        for cause, at, other_at in places:
            self.outcome.breaks.append(Break(cause, self.offset + at, self.i, at, self.j, other_at))

    def _explain(self, x: Part, y: Part) -> tuple[int, bool]:
        """Characters of ``x`` that agree or could, and whether what follows could, too."""
        outcome = reconcile(x, y)
        if outcome.equal:
            self._found(*self._named(outcome.found, y))
            # Tools that only one of the two has are not in the rewritten text.
            kept = outcome.mine.text if TOOL_LIST in _causes(outcome) else x.text
            return len(kept) + MARKS, True
        if self._is_own_output(x, y):
            self._found(Place(OWN_OUTPUT, outcome.at, outcome.at))
            return min(width(x), width(y)), True
        return self._rejoin(x, y, outcome)

    def _named(self, found: list[Place], y: Part) -> list[Place]:
        """The same places, where what was re-serialised or re-labelled is the model's own."""
        own = [JSON_KEYS]
        if self.j == self.said and self.i < len(self.mine) - 1:
            own.append(LAST_ASSISTANT)
        if y.role != "assistant":
            return found
        return [p._replace(cause=OWN_OUTPUT) if p.cause in own else p for p in found]

    def _is_own_output(self, x: Part, y: Part) -> bool:
        if y.role != "assistant" or x.role not in ("assistant", "user") or self.strangers:
            return False
        return is_form_of(x.text, y.text)

    def _rejoin(self, x: Part, y: Part, outcome: Reconciled) -> tuple[int, bool]:
        """No form makes the parts equal: do they come together again?"""
        later, to_the_end = 0, False
        if self.i < self.fixed and x.role == y.role and x.role != TOOLS:
            a, b = outcome.mine.text[outcome.then :], outcome.theirs.text[outcome.then :]
            later, to_the_end = agrees_again(a, b)
        at, other_at = outcome.mine.origin(outcome.then), outcome.theirs.origin(outcome.then)
        if outcome.then - outcome.at >= REJOINED:
            self._found(*outcome.found)
        else:  # a date within two tasks that differ anyway is no cause
            at = outcome.at
        if later:
            self._found(Place(EMBEDDED, at, min(at, other_at)))
        return at + later, to_the_end


def _causes(outcome: Reconciled) -> set[Cause]:
    return {place.cause for place in outcome.found}
