"""How much memory does this traffic need, and how much does a better policy replace?

Page-wise LRU is known at every capacity from one pass (:mod:`scout_sglang.replay.stack`); the real
policies are replayed at a handful of capacities. What LRU needs to reach another policy's hit rate
is read off its own replays, so that both pay for whole leaves and running calls alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from scout_sglang.replay.describe import TraceFacts
from scout_sglang.replay.engine import Result
from scout_sglang.replay.report import BOUNDS, MOST_FAILED, by_cell
from scout_sglang.replay.stack import StackCurve

DEFAULT_POLICIES = "lru,scout,belady"
STEPS = 8
ENOUGH = (0.90, 0.95, 0.99)
"""Shares of what an infinite cache hits."""

Points = list[tuple[int, float]]
"""(capacity in tokens, hit rate), by rising capacity."""


@dataclass(frozen=True)
class Need:
    """What lru needs to hit like ``policy`` in ``capacity`` token slots.

    ``lru_needs``: token slots; None if it does not get there at any replayed capacity.
    """

    policy: str
    capacity: int
    hit_rate: float
    lru_needs: int | None


def plan_capacities(facts: TraceFacts, curve: StackCurve, page_size: int) -> list[int]:
    """Capacities worth replaying, a geometric series in whole pages.

    From four times the longest call, below which too many calls fail to be admitted, to a quarter
    more than where page-wise LRU has nearly all there is to reuse.
    """
    low = 4 * facts.longest
    high = max(curve.capacity_for(ENOUGH[-1] * curve.limit) or 0, low) * 5 / 4
    pages = np.unique(np.geomspace(low, high, STEPS).astype(int) // page_size)
    return (pages * page_size).tolist()


def points_of(results: Sequence[Result], policy: str) -> Points:
    """A policy's hit rates over capacity, means over seeds; invalid runs are left out."""
    return sorted(
        (capacity, fmean(run.hit_rate for run in runs))
        for (name, capacity), runs in by_cell(results).items()
        if name == policy and all(run.failed_share <= MOST_FAILED for run in runs)
    )


def capacity_for(points: Points, hit_rate: float) -> int | None:
    """Fewest token slots that reach ``hit_rate``, None above all of ``points``.

    Between two points the hit rate is taken to rise with the logarithm of the capacity. A rate
    below the first point gives that point's capacity.
    """
    before: tuple[int, float] | None = None
    for capacity, rate in points:
        if rate >= hit_rate:
            if before is None or before[1] >= rate:
                return capacity
            share = (hit_rate - before[1]) / (rate - before[1])
            return round(before[0] * (capacity / before[0]) ** share)
        if before is None or rate > before[1]:
            before = (capacity, rate)
    return None


def needs(results: Sequence[Result]) -> list[Need]:
    """For every policy but lru and the bounds, at every capacity: what lru needs instead."""
    base = points_of(results, "lru")
    rivals = [p for p in dict.fromkeys(r.policy for r in results) if p not in (*BOUNDS, "lru")]
    return [
        Need(policy, capacity, rate, capacity_for(base, rate))
        for policy in rivals
        for capacity, rate in points_of(results, policy)
    ]


def as_json(curve: StackCurve, results: Sequence[Result]) -> dict[str, Any]:
    """The report's ``plan``; see README.md."""
    capacities = np.geomspace(curve.page_size, _reach(curve), 64).astype(int).tolist()
    return {
        "working_set": curve.working_set,
        "lru_reaches": {
            f"{share:.0%}": curve.capacity_for(share * curve.limit) for share in ENOUGH
        },
        "exact_to": None if curve.exact_pages is None else curve.exact_pages * curve.page_size,
        "curve": [{"capacity": c, "hit_rate": curve.hit_rate(c)} for c in capacities],
        "needs": [need.__dict__ for need in needs(results)],
    }


def table(curve: StackCurve, results: Sequence[Result]) -> list[list[str]]:
    """Rows of text, the header first: hit rates by capacity, and what lru needs for each."""
    policies = list(dict.fromkeys(result.policy for result in results))
    points = {policy: dict(points_of(results, policy)) for policy in policies}
    wanted = {(need.policy, need.capacity): need for need in needs(results)}
    rows = [["capacity", "lru, page-wise", *policies]]
    for capacity in sorted({result.capacity for result in results}):
        row = [f"{capacity:,}", f"{100 * curve.hit_rate(capacity):.1f}"]
        for policy in policies:
            rate = points[policy].get(capacity)
            shown = "invalid" if rate is None else f"{100 * rate:.1f}"
            if need := wanted.get((policy, capacity)):
                shown += f" = lru at {_tokens(need, points['lru'])}"
            row.append(shown)
        rows.append(row)
    return rows


def verdict(curve: StackCurve, results: Sequence[Result], policy: str = "scout") -> str:
    """What an operator can turn into money, in a few sentences."""
    base = dict(points_of(results, "lru"))
    found = [need for need in needs(results) if need.policy == policy and need.capacity in base]
    within = [need for need in found if need.lru_needs is not None]
    parts = [
        f"{_tokens(need, base)} tokens ({_factor(need, base)}) for what {policy} reaches in "
        f"{need.capacity:,} ({100 * need.hit_rate:.1f} %, lru there "
        f"{100 * base[need.capacity]:.1f} %)"
        for need in _spread(within or found)
    ]
    reach = curve.capacity_for(ENOUGH[1] * curve.limit) or 0
    sentences = [f"lru needs {'; '.join(parts)}"] if parts else []
    sentences.append(
        f"{curve.working_set:,} tokens would hold, on average, all that is used again and nothing "
        f"else; page-wise lru needs {reach:,} for {ENOUGH[1]:.0%} of what can be reused"
    )
    return ". ".join(sentences) + "."


def _spread(found: Sequence[Need]) -> list[Need]:
    """The first, middle and last of these, without repeats."""
    return [found[i] for i in sorted({0, len(found) // 2, len(found) - 1})] if found else []


def _tokens(need: Need, base: Sequence[tuple[int, float]] | dict[int, float]) -> str:
    if need.lru_needs is None:
        return f"more than {max(dict(base)):,}"
    return f"{need.lru_needs:,}"


def _factor(need: Need, base: dict[int, float]) -> str:
    least = need.lru_needs or max(base)
    return (
        f"{'over ' if need.lru_needs is None else ''}{least / need.capacity:.2f} times the memory"
    )


def _reach(curve: StackCurve) -> int:
    return int(curve.bounds[-1]) * curve.page_size if len(curve.bounds) else curve.page_size


def plot(path: Path, source: str, curve: StackCurve, results: Sequence[Result]) -> None:
    """Miss ratio over capacity: page-wise LRU as a curve, replays as marks."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    draw(axes, curve, results)
    axes.set_title(source)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def draw(axes: Any, curve: StackCurve, results: Sequence[Result]) -> None:
    """Miss ratios onto matplotlib's ``axes``."""
    capacities = sorted({result.capacity for result in results})
    fine = np.geomspace(capacities[0], capacities[-1], 200).astype(int).tolist()
    axes.plot(
        fine, [100 * (1 - curve.hit_rate(c)) for c in fine], color="0.6", label="lru, page-wise"
    )
    for policy in dict.fromkeys(result.policy for result in results):
        points = points_of(results, policy)
        if points:
            axes.plot(
                [capacity for capacity, _ in points],
                [100 * (1 - rate) for _, rate in points],
                "--" if policy in BOUNDS else "-",
                marker="o",
                label=policy,
            )
    axes.axvline(curve.working_set, color="0.6", linestyle=":", label="working set")
    axes.set_xscale("log")
    axes.set_xticks(capacities, [f"{capacity / 1000:.3g}k" for capacity in capacities])
    axes.minorticks_off()
    axes.set_xlabel("cache capacity (tokens)")
    axes.set_ylabel("prompt tokens recomputed (%)")
    axes.grid(alpha=0.3)
    axes.legend()
