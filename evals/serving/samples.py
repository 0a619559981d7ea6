"""From what each call brought to the numbers of a run, and to ratios with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RATIOS = (
    *("recomputed_tokens", "ttft_ms", "ttft_p95_ms", "turn_ms", "session_seconds"),
    "tokens_per_second",
)
"""What is compared between two policies: lower is better in each but the last."""
DRAWS = 2000


class Sample(NamedTuple):
    """One answered call. ``started``: seconds on any clock that the run's calls share."""

    session: str
    started: float
    ttft_ms: float
    latency_ms: float
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int

    @property
    def ended(self) -> float:
        return self.started + self.latency_ms / 1000


class Run(NamedTuple):
    """One workload against one server: its answered calls and the sessions that broke off.

    ``duration``: in seconds, where the samples' own clock does not tell.
    """

    samples: list[Sample]
    broken: int
    duration: float | None = None

    @property
    def seconds(self) -> float:
        """From the first call to the last answer."""
        if self.duration is not None:
            return self.duration
        return max(s.ended for s in self.samples) - min(s.started for s in self.samples)

    @property
    def tokens(self) -> int:
        """Prompt and output tokens of all answered calls."""
        return sum(s.prompt_tokens + s.output_tokens for s in self.samples)


def summarise(run: Run) -> dict[str, Any]:
    """The numbers of one run; every call counts, also those on the empty cache.

    Times in ms or s, throughputs a second from the first arrival to the last answer.
    """
    samples = run.samples
    prompt = sum(sample.prompt_tokens for sample in samples)
    cached = sum(sample.cached_tokens for sample in samples)
    lengths = session_seconds(samples)
    return {
        "calls": len(samples),
        "sessions": len(lengths) + run.broken,
        "broken_sessions": run.broken,
        "seconds": round(run.seconds, 2),
        "prompt_tokens": prompt,
        "recomputed_tokens": prompt - cached,
        "hit_rate": round(cached / prompt, 4),
        "ttft_ms": spread([sample.ttft_ms for sample in samples]),
        "turn_ms": spread([sample.latency_ms for sample in samples]),
        "session_seconds": spread(list(lengths.values())),
        "turns_per_second": round(len(samples) / run.seconds, 3),
        "tokens_per_second": round(run.tokens / run.seconds, 1),
    }


def session_seconds(samples: Sequence[Sample]) -> dict[str, float]:
    """How long each session took, from its first call to its last answer."""
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    for sample in samples:
        begun[sample.session] = min(begun.get(sample.session, sample.started), sample.started)
        ended[sample.session] = max(ended.get(sample.session, sample.ended), sample.ended)
    return {session: ended[session] - begun[session] for session in begun}


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and percentiles."""
    p50, p95, p99 = np.percentile(values, [50, 95, 99])
    found = {"mean": float(np.mean(values)), "p50": p50, "p95": p95, "p99": p99}
    return {name: round(float(value), 2) for name, value in found.items()}


def ratios(
    base: Sequence[Run], other: Sequence[Run], *, draws: int = DRAWS, seed: int = 0
) -> dict[str, dict[str, float]]:
    """Of each quantity in :data:`RATIOS`: other to base, with a 95 % interval.

    Runs are paired by their place, sessions by name, calls by their place in the session: both
    served the same. The bootstrap draws repeats and, within each, sessions with all their calls,
    so that one repeat has an interval too (Efron and Tibshirani, 1993); what differs only between
    repeats shows with two or more of them. A run's throughput is drawn with its repeat alone, and
    left out where there is one.

    Raises ValueError if the two have no session in common.
    """
    pairs = [Pair(one, two) for one, two in zip(base, other, strict=True)]
    rng = np.random.default_rng(seed)
    whole = _ratio(pairs, [pair.everything() for pair in pairs])
    drawn = np.empty((draws, len(RATIOS)))
    for number in range(draws):
        chosen = [pairs[i] for i in rng.integers(len(pairs), size=len(pairs))]
        drawn[number] = _ratio(chosen, [pair.draw(rng) for pair in chosen])
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    found = {
        name: {"ratio": round(r, 4), "low": round(lo, 4), "high": round(hi, 4)}
        for name, r, lo, hi in zip(RATIOS, whole.tolist(), low.tolist(), high.tolist(), strict=True)
    }
    if len(pairs) == 1:
        del found["tokens_per_second"]
    return found


class Pair:
    """The sessions that two runs both finished.

    ``calls``: shape (calls, 2, 3), of each call under either policy TTFT and latency in ms and
    recomputed tokens, session after session. ``lengths``: shape (sessions, 2), seconds.
    """

    def __init__(self, base: Run, other: Run) -> None:
        tables = [_by_session(run.samples) for run in (base, other)]
        lengths = [session_seconds(run.samples) for run in (base, other)]
        common = sorted(tables[0].keys() & tables[1].keys())
        if not common:
            raise ValueError("the two runs have no session in common")
        calls = [np.stack([table[session] for table in tables], axis=1) for session in common]
        ends = np.cumsum([len(rows) for rows in calls])
        self.calls = np.concatenate(calls)
        self.rows = [np.arange(end - len(rows), end) for end, rows in zip(ends, calls, strict=True)]
        self.lengths = np.array([[length[session] for length in lengths] for session in common])
        self.speeds = np.array([run.tokens / run.seconds for run in (base, other)])

    def everything(self) -> NDArray[np.intp]:
        """The numbers of all sessions."""
        return np.arange(len(self.rows))

    def draw(self, rng: np.random.Generator) -> NDArray[np.intp]:
        """As many sessions as there are, with replacement."""
        return rng.integers(len(self.rows), size=len(self.rows))

    def calls_of(self, sessions: NDArray[np.intp]) -> NDArray[np.float64]:
        """Their rows of ``calls``."""
        return self.calls[np.concatenate([self.rows[session] for session in sessions])]


def _by_session(samples: Sequence[Sample]) -> dict[str, NDArray[np.float64]]:
    rows: dict[str, list[list[float]]] = {}
    for sample in sorted(samples, key=lambda s: s.started):
        computed = sample.prompt_tokens - sample.cached_tokens
        rows.setdefault(sample.session, []).append([sample.ttft_ms, sample.latency_ms, computed])
    return {session: np.array(calls) for session, calls in rows.items()}


def _ratio(pairs: Sequence[Pair], sessions: Sequence[NDArray[np.intp]]) -> NDArray[np.float64]:
    """One value for each of :data:`RATIOS`."""
    drawn = list(zip(pairs, sessions, strict=True))
    calls = np.concatenate([pair.calls_of(chosen) for pair, chosen in drawn])
    lengths = np.concatenate([pair.lengths[chosen] for pair, chosen in drawn])
    ttft, turn, computed = calls.mean(axis=0).T
    p95 = np.percentile(calls[:, :, 0], 95, axis=0)
    speed = np.mean([pair.speeds for pair in pairs], axis=0)
    found = np.stack([computed, ttft, p95, turn, lengths.mean(axis=0), speed])
    return found[:, 1] / found[:, 0]
