"""From what each call brought to the numbers of a run, and to ratios with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

RATIOS = ("ttft_ms", "turn_ms", "recomputed_tokens", "session_seconds")
"""What is compared between two policies: lower is better in each."""


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
    """One workload against one server: its answered calls and the sessions that broke off."""

    samples: list[Sample]
    broken: int


def summarise(run: Run) -> dict[str, Any]:
    """The numbers of one run; every call counts, also those on the empty cache.

    Times in ms or s, throughputs a second from the first arrival to the last answer.
    """
    samples = run.samples
    prompt = sum(sample.prompt_tokens for sample in samples)
    cached = sum(sample.cached_tokens for sample in samples)
    output = sum(sample.output_tokens for sample in samples)
    seconds = max(s.ended for s in samples) - min(s.started for s in samples)
    lengths = session_seconds(samples)
    return {
        "calls": len(samples),
        "sessions": len(lengths) + run.broken,
        "broken_sessions": run.broken,
        "seconds": round(seconds, 2),
        "prompt_tokens": prompt,
        "recomputed_tokens": prompt - cached,
        "hit_rate": round(cached / prompt, 4),
        "ttft_ms": _spread([sample.ttft_ms for sample in samples]),
        "turn_ms": _spread([sample.latency_ms for sample in samples]),
        "session_seconds": _spread(list(lengths.values())),
        "turns_per_second": round(len(samples) / seconds, 3),
        "tokens_per_second": round((prompt + output) / seconds, 1),
    }


def session_seconds(samples: Sequence[Sample]) -> dict[str, float]:
    """How long each session took, from its first call to its last answer."""
    begun: dict[str, float] = {}
    ended: dict[str, float] = {}
    for sample in samples:
        begun[sample.session] = min(begun.get(sample.session, sample.started), sample.started)
        ended[sample.session] = max(ended.get(sample.session, sample.ended), sample.ended)
    return {session: ended[session] - begun[session] for session in begun}


def _spread(values: Sequence[float]) -> dict[str, float]:
    p50, p99 = np.percentile(values, [50, 99])
    mean = float(np.mean(values))
    return {"mean": round(mean, 2), "p50": round(float(p50), 2), "p99": round(float(p99), 2)}


def ratios(
    base: Sequence[Run], other: Sequence[Run], *, draws: int = 2000, seed: int = 0
) -> dict[str, dict[str, float]]:
    """Of each quantity in :data:`RATIOS`: the means' ratio, other to base, with a 95 % interval.

    Runs are paired by their place, sessions by name: both served the same. The bootstrap draws
    repeats and, within each, sessions, so that one repeat has an interval too (Efron and
    Tibshirani, 1993); what differs only between repeats shows with two or more of them.

    Raises ValueError if the two have no session in common.
    """
    pairs = [_paired(one.samples, two.samples) for one, two in zip(base, other, strict=True)]
    rng = np.random.default_rng(seed)
    whole = _ratio(np.concatenate(pairs))
    drawn = np.empty((draws, len(RATIOS)))
    for number in range(draws):
        chosen = [pairs[i] for i in rng.integers(len(pairs), size=len(pairs))]
        rows = [table[rng.integers(len(table), size=len(table))] for table in chosen]
        drawn[number] = _ratio(np.concatenate(rows))
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    return {
        name: {"ratio": round(r, 4), "low": round(lo, 4), "high": round(hi, 4)}
        for name, r, lo, hi in zip(RATIOS, whole.tolist(), low.tolist(), high.tolist(), strict=True)
    }


def _paired(base: Sequence[Sample], other: Sequence[Sample]) -> NDArray[np.float64]:
    """A row for each session that both finished, shape (sessions, 2, 5): sums, then calls."""
    tables = [_sums(base), _sums(other)]
    common = sorted(tables[0].keys() & tables[1].keys())
    if not common:
        raise ValueError("the two runs have no session in common")
    return np.array([[table[session] for table in tables] for session in common])


def _sums(samples: Sequence[Sample]) -> dict[str, list[float]]:
    lengths = session_seconds(samples)
    sums: dict[str, list[float]] = {
        session: [0.0, 0.0, 0.0, length, 0.0] for session, length in lengths.items()
    }
    for sample in samples:
        row = sums[sample.session]
        row[0] += sample.ttft_ms
        row[1] += sample.latency_ms
        row[2] += sample.prompt_tokens - sample.cached_tokens
        row[4] += 1
    return sums


def _ratio(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean TTFT, mean turn, tokens, mean session: other to base; times are means over calls."""
    total = rows.sum(axis=0)
    means = total[:, :4] / np.stack([total[:, 4], total[:, 4], [1, 1], [1, 1]], axis=1)
    return means[1] / means[0]


def sustainable_rate(points: Sequence[tuple[float, float]], budget_ms: float) -> float | None:
    """The greatest arrival rate whose mean TTFT stays within a budget.

    Args:
        points: (arrival rate, mean TTFT in ms), at least one.
        budget_ms: the budget. Between two rates TTFT is taken to grow linearly.

    Returns:
        None if the lowest rate is over the budget already; the highest rate if none is.
    """
    ordered = sorted(points)
    if ordered[0][1] > budget_ms:
        return None
    for (rate, ttft), (next_rate, next_ttft) in pairwise(ordered):
        if next_ttft > budget_ms:
            return rate + (next_rate - rate) * (budget_ms - ttft) / (next_ttft - ttft)
    return ordered[-1][0]
