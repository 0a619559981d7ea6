"""What a comparison says: tables from the runs that there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

import numpy as np

from evals.serving.runs import Record
from evals.serving.samples import DRAWS, Pair, Run, ratios, summarise

Runs = Mapping[str, Mapping[int, Record]]
"""By policy and repeat."""


def report(records: Sequence[Record], policies: Sequence[str], budgets: Sequence[float]) -> Any:
    """A list of workloads, each with a point for every rate: JSON values.

    Ratios are to the first policy, over the repeats that both have. ``budgets``: mean TTFT in ms
    at which the sustainable rates of all policies are read off.
    """
    found = []
    for workload in dict.fromkeys(record.place.workload for record in records):
        chosen = [record for record in records if record.place.workload == workload]
        rates = sorted({record.place.rate for record in chosen})
        curves = {rate: _by_policy(chosen, rate, policies) for rate in rates}
        found.append(
            {
                "workload": workload,
                "points": [_point(rate, runs) for rate, runs in curves.items()],
                "sustainable": [_sustainable(curves, policies, budget) for budget in budgets]
                if len(rates) > 1
                else [],
            }
        )
    return found


def _by_policy(records: Sequence[Record], rate: float, policies: Sequence[str]) -> Runs:
    found: dict[str, dict[int, Record]] = {name: {} for name in policies}
    for record in records:
        if record.place.rate == rate and record.place.policy in found:
            found[record.place.policy][record.place.repeat] = record
    return {name: runs for name, runs in found.items() if runs}


def _point(rate: float, runs: Runs) -> dict[str, Any]:
    base = next(iter(runs))
    measured = {}
    for name, each in runs.items():
        summaries = [summarise(record.run) for _, record in sorted(each.items())]
        measured[name] = {
            "repeats": sorted(each),
            **mean_of(summaries),
            "books": mean_of([record.books for record in each.values()]),
        }
        if name != base and (pairs := _pairs(runs, base, name)):
            measured[name]["ratios"] = ratios(*zip(*pairs, strict=True))
    return {"rate": rate, "ratio_to": base, "policies": measured}


def _pairs(runs: Runs, base: str, other: str) -> list[tuple[Run, Run]]:
    both = sorted(runs.get(base, {}).keys() & runs.get(other, {}).keys())
    return [(runs[base][repeat].run, runs[other][repeat].run) for repeat in both]


def mean_of(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of every number, down through nested mappings."""
    found: dict[str, Any] = {}
    for key, first in values[0].items():
        column = [value[key] for value in values]
        found[key] = mean_of(column) if isinstance(first, Mapping) else round(fmean(column), 4)
    return found


def _sustainable(
    curves: Mapping[float, Runs], policies: Sequence[str], budget: float
) -> dict[str, Any]:
    base = policies[0]
    found: dict[str, Any] = {"budget_ms": budget, "rates": {}, "factors": {}}
    for name in policies:
        curve = {
            rate: fmean(sample.ttft_ms for r in runs[name].values() for sample in r.run.samples)
            for rate, runs in curves.items()
            if name in runs
        }
        # A policy that was not run at every rate has no curve to read off.
        if len(curve) == len(curves):
            found["rates"][name] = _rounded(sustainable_rate(list(curve.items()), budget))
        pairs = {
            rate: pairs for rate, runs in curves.items() if (pairs := _pairs(runs, base, name))
        }
        if name != base and pairs:
            found["factors"][name] = factor(pairs, budget)
    return found


def factor(
    pairs: Mapping[float, Sequence[tuple[Run, Run]]],
    budget_ms: float,
    *,
    draws: int = DRAWS,
    seed: int = 0,
) -> dict[str, Any] | None:
    """How many times the base's sustainable rate the other sustains, with a 95 % interval.

    Bootstrap as in :func:`ratios`, at each rate for itself. None where one of the two is over the
    budget at the lowest rate or within it at the highest: there the factor is not known.
    """
    tables = {rate: [Pair(one, two) for one, two in runs] for rate, runs in pairs.items()}
    rng = np.random.default_rng(seed)
    whole = _factor({rate: _means(each, None) for rate, each in tables.items()}, budget_ms)
    if whole is None:
        return None
    drawn = []
    for _ in range(draws):
        means = {rate: _means(each, rng) for rate, each in tables.items()}
        drawn.append(_factor(means, budget_ms))
    known = [value for value in drawn if value is not None]
    low, high = np.percentile(known, [2.5, 97.5]).tolist()
    return {
        "factor": round(whole, 3),
        "low": round(low, 3),
        "high": round(high, 3),
        "draws_without_a_crossing": draws - len(known),
    }


def _means(pairs: Sequence[Pair], rng: np.random.Generator | None) -> tuple[float, float]:
    """Mean TTFT of both, of all sessions or of a draw."""
    if rng is None:
        calls = [pair.calls for pair in pairs]
    else:
        chosen = [pairs[i] for i in rng.integers(len(pairs), size=len(pairs))]
        calls = [pair.calls_of(pair.draw(rng)) for pair in chosen]
    base, other = np.concatenate(calls)[:, :, 0].mean(axis=0).tolist()
    return base, other


def _factor(means: Mapping[float, tuple[float, float]], budget_ms: float) -> float | None:
    rates = []
    for which in (0, 1):
        curve = [(rate, ttft[which]) for rate, ttft in means.items()]
        rate = sustainable_rate(curve, budget_ms)
        if rate is None or rate == max(means):
            return None
        rates.append(rate)
    return rates[1] / rates[0]


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


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 4)
