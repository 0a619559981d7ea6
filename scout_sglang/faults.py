"""Open at run: what happens when our own code fails while the server is serving.

An exception in a hook never reaches SGLang. It is counted under its *kind* (a short name such
as ``"observe"`` or ``"evict"``), logged with a traceback the first time that kind occurs, and
the caller gets the fallback, which for a decision is plain LRU.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

F = TypeVar("F", bound=Callable[..., Any])


class Faults:
    """Counts of swallowed exceptions by kind."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def record(self, kind: str) -> None:
        """Count the exception being handled; call it from an ``except`` block."""
        seen = self.counts.get(kind, 0)
        self.counts[kind] = seen + 1
        if not seen:
            logger.exception("scout: %s failed; falling back, later ones are only counted", kind)


FAULTS = Faults()


def guarded(kind: str, fallback: Any = None) -> Callable[[F], F]:
    """Decorator: return ``fallback`` (called with the same arguments if callable) on an exception.

    Wrap only our own code with it, never a call of SGLang's original function: SGLang's errors
    are SGLang's to raise, and a fallback that calls the original must not run it twice.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except Exception:
                FAULTS.record(kind)
                return fallback(*args, **kwargs) if callable(fallback) else fallback

        return call  # type: ignore[return-value]

    return decorate
