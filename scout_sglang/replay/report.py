"""What a person and a program read after a replay: table, JSON, plot, verdict."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from scout_sglang.replay.describe import TraceFacts
from scout_sglang.replay.engine import Result

MOST_FAILED = 0.01
"""Above this share of calls that were not admitted, a run is no measurement."""

BOUNDS = ("infinite", "belady", "belady-leaf")


def as_json(source: str, facts: TraceFacts, results: Sequence[Result]) -> dict[str, Any]:
    """The stable form that README.md describes: keys may be added, none changes its meaning."""
    return {
        "trace": {"name": source, **asdict(facts)},
        "results": [_result(result) for result in results],
    }


def _result(result: Result) -> dict[str, Any]:
    return {
        "policy": result.policy,
        "capacity": result.capacity,
        "page_size": result.page_size,
        "seed": result.seed,
        "calls": result.calls,
        "prompt_tokens": result.prompt_tokens,
        "hit_tokens": result.hit_tokens,
        "recomputed_tokens": result.recomputed_tokens,
        "hit_rate": result.hit_rate,
        "evicted_tokens": result.evicted_tokens,
        "failed_share": result.failed_share,
        "valid": result.failed_share <= MOST_FAILED,
        "guard_switches": result.guard_switches,
        "warmed_tokens": result.warmed_tokens,
        "warmed_share": result.warmed_share,
        "calls_per_second": result.calls_per_second,
    }


def write_json(path: Path, reports: Sequence[dict[str, Any]]) -> None:
    """One report as an object, several as a list."""
    body = reports[0] if len(reports) == 1 else list(reports)
    path.write_text(json.dumps(body, indent=2) + "\n", encoding="utf-8")


Cell = tuple[str, int]


def by_cell(results: Sequence[Result]) -> dict[Cell, list[Result]]:
    """Results of one policy at one capacity, over the seeds, in order of appearance."""
    cells: dict[Cell, list[Result]] = {}
    for result in results:
        cells.setdefault((result.policy, result.capacity), []).append(result)
    return cells


def paired_gains(runs: Sequence[Result], base: Sequence[Result]) -> list[float]:
    """Points of hit rate over the base, seed by seed."""
    of_seed = {result.seed: result.hit_rate for result in base}
    return [100 * (run.hit_rate - of_seed[run.seed]) for run in runs if run.seed in of_seed]


def table(results: Sequence[Result]) -> list[list[str]]:
    """Rows of text, the header first: one row for each policy and capacity, means over seeds."""
    cells = by_cell(results)
    rows = [
        ["capacity", "policy", "hit %", "± lru", "gap closed", "recomputed", "failed %", "calls/s"]
    ]
    for (policy, capacity), runs in cells.items():
        base = cells.get(("lru", capacity))
        bound = cells.get(("belady", capacity))
        rows.append(
            [
                f"{capacity:,}",
                policy + ("" if all(r.failed_share <= MOST_FAILED for r in runs) else " (invalid)"),
                f"{100 * fmean(run.hit_rate for run in runs):.1f}",
                _gain(runs, base) if policy != "lru" else "",
                _closed(runs, base, bound),
                f"{fmean(run.recomputed_tokens for run in runs):,.0f}",
                f"{100 * fmean(run.failed_share for run in runs):.1f}",
                f"{fmean(run.calls_per_second for run in runs):,.0f}",
            ]
        )
    return rows


def _gain(runs: Sequence[Result], base: Sequence[Result] | None) -> str:
    if not base or not (gains := paired_gains(runs, base)):
        return ""
    spread = f" [{min(gains):+.1f}..{max(gains):+.1f}]" if len(gains) > 1 else ""
    return f"{fmean(gains):+.1f}{spread}"


def _closed(
    runs: Sequence[Result], base: Sequence[Result] | None, bound: Sequence[Result] | None
) -> str:
    if not base or not bound or runs[0].policy in ("lru", "infinite"):
        return ""
    room = fmean(r.hit_rate for r in bound) - fmean(r.hit_rate for r in base)
    gain = fmean(r.hit_rate for r in runs) - fmean(r.hit_rate for r in base)
    return f"{100 * gain / room:.0f} %" if room > 0.001 else ""


def verdict(facts: TraceFacts, results: Sequence[Result], policy: str = "scout") -> str:
    """One sentence to act on."""
    cells = by_cell(results)
    parts = []
    for capacity in dict.fromkeys(result.capacity for result in results):
        ours, base = cells.get((policy, capacity)), cells.get(("lru", capacity))
        if not ours or not base:
            continue
        spent = sum(run.recomputed_tokens for run in ours)
        before = sum(run.recomputed_tokens for run in base)
        if any(run.failed_share > MOST_FAILED for run in (*ours, *base)):
            parts.append(f"{capacity:,} tokens are too few to judge (calls were not admitted)")
        elif before and abs(change := 1 - spent / before) >= 0.005:
            word = "fewer" if change > 0 else "more"
            parts.append(
                f"{policy} would recompute {100 * abs(change):.0f} % {word} prompt tokens than "
                f"lru at {capacity:,} tokens"
            )
        else:
            parts.append(f"{policy} would change nothing at {capacity:,} tokens")
    parts.append(
        f"{100 * facts.anchor_share:.0f} % of prompt tokens are in prefixes that sessions share"
    )
    parts.append(f"{100 * facts.id_share:.0f} % of calls carry a session id")
    return "; ".join(parts) + "."


def plot(path: Path, source: str, results: Sequence[Result]) -> None:
    """Hit rate over capacity, one line a policy, as PNG or whatever the suffix says."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cells = by_cell(results)
    figure, axes = pyplot.subplots(figsize=(7, 4.5))
    for policy in dict.fromkeys(result.policy for result in results):
        points = sorted(
            (capacity, 100 * fmean(run.hit_rate for run in runs))
            for (name, capacity), runs in cells.items()
            if name == policy
        )
        dashed = policy in BOUNDS
        axes.plot(*zip(*points, strict=True), "--" if dashed else "-", marker="o", label=policy)
    axes.set_xlabel("cache capacity (tokens)")
    axes.set_ylabel("prompt tokens found cached (%)")
    axes.set_title(source)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
