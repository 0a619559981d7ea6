"""How far ahead the cache sees: the dispatches that pass before its content turns over."""

from __future__ import annotations

_TOKENS_KEEP = 0.99
_BIRTHS_KEEP = 0.998


class Horizon:
    """H = capacity / new tokens per call, and the rate at which sessions are born.

    Shared by all tenants: they fill the same memory. ``capacity`` in tokens.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = max(capacity, 1)
        self._tokens = 0.0
        self._calls = 0.0
        self._births = 0.0
        self._dispatches = 0.0

    def filled(self, tokens: int) -> None:
        """A call has put ``tokens`` new tokens into the cache."""
        self._tokens = _TOKENS_KEEP * self._tokens + tokens
        self._calls = _TOKENS_KEEP * self._calls + 1

    def crowded(self, tokens: int) -> None:
        """``tokens`` came into the cache without a call."""
        self._tokens += tokens

    def dispatched(self, new_session: bool) -> None:
        """A call arrived; it was the first of its session or not."""
        self._births = _BIRTHS_KEEP * self._births + new_session
        self._dispatches = _BIRTHS_KEEP * self._dispatches + 1

    @property
    def turnover(self) -> float:
        """H, in dispatches, at least one."""
        per_call = self._tokens / self._calls if self._calls else 1000.0
        return max(1.0, self.capacity / max(per_call, 1.0))

    @property
    def births(self) -> float:
        """rho, new sessions per dispatch."""
        return self._births / self._dispatches if self._dispatches else 0.0

    def discount(self, gap: float) -> float:
        """gamma = H / (H + omega) for a mean gap of ``gap`` dispatches within a session."""
        return self.turnover / (self.turnover + gap)
