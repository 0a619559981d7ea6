"""One replay: the schedule's calls, in order, through a policy; everything is counted here."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from scout_sglang.replay.timing import Event, Job


class Policy(Protocol):
    """A cache under test. It announces hits and evictions; the counting is the engine's.

    ``evicted_tokens``, ``guard_switches`` and ``warmed_tokens`` only grow.
    """

    evicted_tokens: int
    guard_switches: int

    @property
    def warmed_tokens(self) -> int:
        """Tokens prefilled by warm-ups."""

    def start(self, job: Job) -> int | None:
        """Admit the call: the number of prompt tokens found cached, None if it does not fit."""

    def finish(self, job: Job) -> None:
        """The admitted call has generated its output."""

    def close(self) -> None:
        """The trace is over: check the books."""


@dataclass
class Result:
    """What one policy did with one schedule. Token counts leave out the first calls."""

    policy: str
    capacity: int
    page_size: int
    seed: int
    calls: int = 0
    failed_calls: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    evicted_tokens: int = 0
    guard_switches: int = 0
    warmed_tokens: int = 0
    seconds: float = 0.0
    hits: list[int] | None = field(default=None, repr=False)

    @property
    def recomputed_tokens(self) -> int:
        return self.prompt_tokens - self.hit_tokens

    @property
    def warmed_share(self) -> float:
        """Of all prefilled tokens, those that warm-ups prefilled."""
        prefilled = self.recomputed_tokens + self.warmed_tokens
        return self.warmed_tokens / prefilled if prefilled else 0.0

    @property
    def hit_rate(self) -> float:
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else 0.0

    @property
    def failed_share(self) -> float:
        return self.failed_calls / self.calls if self.calls else 0.0

    @property
    def calls_per_second(self) -> float:
        return self.calls / self.seconds if self.seconds else 0.0


def replay(
    policy: Policy,
    events: Iterable[Event],
    result: Result,
    uncounted_calls: int = 0,
    on_call: Callable[[], None] | None = None,
) -> Result:
    """Run ``events`` through ``policy`` and count into ``result``.

    The first ``uncounted_calls`` calls fill the cache and are not counted. A call that cannot be
    admitted is counted as failed and dropped; the rest of its session goes on as recorded.
    ``result.hits``, if it is a list, receives the cached tokens of each call (-1: failed).
    """
    running: set[int] = set()
    started = time.perf_counter()
    evicted_before = warmed_before = 0
    for event in events:
        job = event.job
        if not event.starts:
            if job.number in running:
                running.remove(job.number)
                policy.finish(job)
            continue
        if job.number == uncounted_calls:
            evicted_before = policy.evicted_tokens
            warmed_before = policy.warmed_tokens
        hit = policy.start(job)
        if hit is not None:
            running.add(job.number)
        if result.hits is not None:
            result.hits.append(-1 if hit is None else hit)
        result.calls += 1
        if hit is None:
            result.failed_calls += 1
        elif job.number >= uncounted_calls:
            result.prompt_tokens += len(job.prompt)
            result.hit_tokens += hit
        if on_call is not None:
            on_call()
    policy.close()
    result.seconds = time.perf_counter() - started
    result.evicted_tokens = policy.evicted_tokens - evicted_before
    result.warmed_tokens = policy.warmed_tokens - warmed_before
    result.guard_switches = policy.guard_switches
    return result
