"""What became of every token that a warm-up prefilled: used, wasted, or still waiting.

Eviction takes tails first, so a prompt's hit length tells what of an anchor was still there: a
real call that has the anchor's ids in its prompt uses the part within its hit and shows that the
rest had been evicted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from radix_policy.call import Tokens
from radix_policy.divergence import common_prefix
from radix_policy.warmup import Whose

MOST = 64
"""Anchors followed at a time; beyond that the oldest counts as wasted."""
_MOST_CALLS = 1 << 16

Span = tuple[int, int]


@dataclass(slots=True)
class _Warmed:
    """Tokens of one anchor that were prefilled and not yet settled: disjoint spans, ascending."""

    whose: Whose
    tokens: Tokens
    spans: list[Span] = field(default_factory=list)
    used: int = 0
    wasted: int = 0

    @property
    def pending(self) -> int:
        return sum(stop - start for start, stop in self.spans)

    def cut(self, start: int, stop: int) -> int:
        """Take ``start`` to ``stop`` out of the spans; the number of tokens taken."""
        if stop <= start:
            return 0
        before = self.pending
        left = [(a, min(b, start)) for a, b in self.spans]
        right = [(max(a, stop), b) for a, b in self.spans]
        self.spans = sorted({(a, b) for a, b in left + right if a < b})
        return before - self.pending


class WarmupLedger:
    """``sent`` = ``used`` + ``wasted`` + ``resident``, in tokens, at any time.

    ``on_settled`` is told (whose, used) when the last token of a warmed anchor is settled;
    used means that at least half of it was. Per call O(MOST) comparisons of one token, and of
    whole prefixes where that one agrees.
    """

    def __init__(self, on_settled: Callable[[Whose, bool], None]) -> None:
        self.sent = 0
        self.used = 0
        self.wasted = 0
        self._on_settled = on_settled
        self._warmed: OrderedDict[int, _Warmed] = OrderedDict()
        self._next = 0
        self._calls: OrderedDict[int, list[tuple[int, int]]] = OrderedDict()

    @property
    def resident(self) -> int:
        """Tokens that wait to be used, as far as is known."""
        return sum(warmed.pending for warmed in self._warmed.values())

    def prefilled(self, whose: Whose, tokens: Tokens, start: int, stop: int) -> None:
        """A warm-up has computed ``tokens[start:stop]``, which therefore was not cached."""
        if stop <= start:
            return
        for key, warmed in list(self._warmed.items()):
            if warmed.whose[0] == whose[0]:
                common = common_prefix(warmed.tokens, tokens[:stop])
                self._settle(key, wasted=(start, common))
        self.sent += stop - start
        key = self._entry(whose, tokens)
        self._warmed[key].spans = _joined([*self._warmed[key].spans, (start, stop)])
        if len(self._warmed) > MOST:
            oldest = next(iter(self._warmed))
            self._settle(oldest, wasted=(0, len(self._warmed[oldest].tokens)))

    def arrive(self, number: int, tenant: int, prompt: Tokens) -> None:
        """Call ``number`` is in the queue: how far does its prompt go along with each anchor?"""
        along = []
        for key, warmed in self._warmed.items():
            first = warmed.spans[0][0]
            if warmed.whose[0] != tenant or first >= len(prompt):
                continue
            if prompt[first] != warmed.tokens[first]:
                continue
            common = common_prefix(warmed.tokens, prompt)
            if common > first:
                along.append((key, common))
        if along:
            self._calls[number] = along
            if len(self._calls) > _MOST_CALLS:
                self._calls.popitem(last=False)

    def start(self, number: int, hit: int) -> None:
        """Call ``number`` runs, ``hit`` tokens of its prompt cached."""
        for key, common in self._calls.pop(number, ()):
            if key in self._warmed:
                self._settle(key, used=(0, min(hit, common)), wasted=(hit, common))

    def depart(self, number: int) -> None:
        """Call ``number`` is over, whether or not it ran."""
        self._calls.pop(number, None)

    def look(self, resident: Callable[[int, Tokens], int]) -> None:
        """Count as wasted what the cache, asked for (tenant, tokens), does not have any more."""
        for key, warmed in list(self._warmed.items()):
            held = resident(warmed.whose[0], warmed.tokens)
            self._settle(key, wasted=(held, len(warmed.tokens)))

    def flush(self) -> None:
        """The cache was emptied, which says nothing about whose warm-ups are in vain."""
        self.wasted += self.resident
        self._warmed.clear()

    def _entry(self, whose: Whose, tokens: Tokens) -> int:
        for key, warmed in self._warmed.items():
            shorter = min(len(tokens), len(warmed.tokens))
            if warmed.whose == whose and common_prefix(warmed.tokens, tokens) == shorter:
                warmed.tokens = max(tokens, warmed.tokens, key=len)
                return key
        self._next += 1
        self._warmed[self._next] = _Warmed(whose, tokens)
        return self._next

    def _settle(self, key: int, used: Span = (0, 0), wasted: Span = (0, 0)) -> None:
        warmed = self._warmed[key]
        hits, losses = warmed.cut(*used), warmed.cut(*wasted)
        warmed.used += hits
        warmed.wasted += losses
        self.used += hits
        self.wasted += losses
        if not warmed.spans:
            del self._warmed[key]
            self._on_settled(warmed.whose, warmed.used >= warmed.wasted)


def _joined(spans: list[Span]) -> list[Span]:
    """Spans that touch or overlap as one."""
    whole: list[Span] = []
    for start, stop in sorted(spans):
        if whole and start <= whole[-1][1]:
            whole[-1] = (whole[-1][0], max(stop, whole[-1][1]))
        else:
            whole.append((start, stop))
    return whole
