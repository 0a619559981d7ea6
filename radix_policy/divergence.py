"""How long an agent's fixed context is: where its prompts of different sessions diverge."""

from __future__ import annotations

from collections import deque

import numpy as np

from radix_policy.call import Tokens

MAX_ANCHOR = 8192
_RECENT = 8


def common_prefix(one: Tokens, other: Tokens) -> int:
    """Tokens that two prompts share from the start."""
    n = min(len(one), len(other))
    differs = one[:n] != other[:n]
    first = int(differs.argmax()) if n else 0
    return first if n and differs[first] else n


class Divergence:
    """Compares the first prompt of each session with that of an earlier session.

    ``anchor``: tokens that all but one of the last eight sessions shared with the one before (the
    odd one out may be a one-off); ``first``: the earliest position at which any of them diverged.
    Both are 0 until a second session came. Exact to the token up to 8,192 tokens.
    """

    __slots__ = ("_recent", "_reference", "_session", "anchor", "first")

    def __init__(self) -> None:
        self._reference: Tokens | None = None
        self._session = -1
        self._recent: deque[int] = deque(maxlen=_RECENT)
        self.anchor = 0
        self.first = 0

    def observe(self, tokens: Tokens, session: int) -> None:
        """A first prompt of ``session``; only its start is kept, shape (at most 8192,).

        ``tokens`` are not to be written to from now on.
        """
        if session == self._session:
            return
        if self._reference is not None:
            self._recent.append(common_prefix(self._reference, tokens[:MAX_ANCHOR]))
            ranked = sorted(self._recent)
            self.first = ranked[0]
            self.anchor = ranked[1] if len(ranked) > 2 else ranked[0]
        whole = len(tokens) <= MAX_ANCHOR and tokens.base is None
        self._reference = tokens if whole else np.array(tokens[:MAX_ANCHOR], dtype=np.int32)
        self._session = session

    def begins(self, tokens: Tokens) -> bool:
        """Whether ``tokens`` begin with the anchor, as the last three sessions (or two) did.

        A prompt may be the odd one out; what it begins with is then nobody's but its own.
        """
        latest = [self._recent[n] for n in range(-1, -1 - min(2, len(self._recent)), -1)]
        if self._reference is None or not latest or min(latest) < self.anchor:
            return False
        start = self._reference[: self.anchor]
        return common_prefix(start, tokens[: self.anchor]) == self.anchor

    def prompt(self) -> Tokens:
        """The start of the session's first prompt that came last; empty before the first."""
        return np.zeros(0, np.int32) if self._reference is None else self._reference

    @property
    def nbytes(self) -> int:
        """Bytes of the prompt that is kept."""
        return 0 if self._reference is None else self._reference.nbytes
