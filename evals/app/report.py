"""From replies to the numbers, the table, the plot and the sentence that the demo ends with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.table import Table

from evals.app.client import Run

Summary = dict[str, Any]

# Column title, path into a summary, format of the value.
_COLUMNS = (
    ("hit rate", ("hit_rate",), "{:.3f}"),
    ("recomputed", ("recomputed_tokens",), "{:,}"),
    ("TTFT mean", ("ttft_ms", "mean"), "{:,.0f}"),
    ("p50", ("ttft_ms", "p50"), "{:,.0f}"),
    ("p99 (ms)", ("ttft_ms", "p99"), "{:,.0f}"),
    ("turns/s", ("turns_per_second",), "{:.2f}"),
)


def summarise(run: Run) -> Summary:
    """The numbers of one policy; every call counts, also the first ones on an empty cache."""
    prompt = sum(reply.prompt_tokens for reply in run.replies)
    cached = sum(reply.cached_tokens for reply in run.replies)
    ttft = np.array([reply.ttft_ms for reply in run.replies])
    p50, p99 = np.percentile(ttft, [50, 99])
    return {
        "hit_rate": round(cached / prompt, 4),
        "prompt_tokens": prompt,
        "recomputed_tokens": prompt - cached,
        "ttft_ms": {
            "mean": round(float(ttft.mean()), 1),
            "p50": round(float(p50), 1),
            "p99": round(float(p99), 1),
        },
        "turns_per_second": round(len(run.replies) / run.seconds, 3),
    }


def baseline(policies: Mapping[str, Summary]) -> str:
    """The policy that the others are measured against: lru, or the first where lru is missing."""
    return "lru" if "lru" in policies else next(iter(policies))


def table(policies: Mapping[str, Summary]) -> Table:
    """One row per policy; behind each value its ratio to the baseline."""
    base = policies[baseline(policies)]
    made = Table(title=f"In brackets: ratio to {baseline(policies)}")
    made.add_column("policy")
    for title, _, _ in _COLUMNS:
        made.add_column(title, justify="right")
    for name, summary in policies.items():
        made.add_row(name, *(_cell(summary, base, keys, form) for _, keys, form in _COLUMNS))
    return made


def _cell(summary: Summary, base: Summary, keys: tuple[str, ...], form: str) -> str:
    value, reference = _at(summary, keys), _at(base, keys)
    ratio = f"{value / reference:.2f}" if reference else "-"
    return f"{form.format(value)} ({ratio})"


def _at(summary: Summary, keys: tuple[str, ...]) -> Any:
    for key in keys:
        summary = summary[key]
    return summary


def verdict(policies: Mapping[str, Summary]) -> str:
    """Who recomputed the fewest prompt tokens, and by how much."""
    base = baseline(policies)
    ranked = sorted(policies, key=lambda name: policies[name]["recomputed_tokens"])
    if len(ranked) == 1:
        return f"Only {base} ran, so there is nothing to compare it with."
    best, other = ranked[0], base if ranked[0] != base else ranked[1]
    tokens = _change(policies, best, other, ("recomputed_tokens",))
    ttft = _change(policies, best, other, ("ttft_ms", "mean"))
    if tokens == 0:
        return f"A draw: {best} and {other} recomputed equally many prompt tokens."
    return (
        f"{best} won: it recomputed {-tokens:.1f} % fewer prompt tokens than {other}, "
        f"and its mean TTFT was {abs(ttft):.1f} % {'lower' if ttft <= 0 else 'higher'}."
    )


def _change(policies: Mapping[str, Summary], name: str, other: str, keys: tuple[str, ...]) -> float:
    reference = _at(policies[other], keys)
    return 100 * (_at(policies[name], keys) / reference - 1) if reference else 0.0


def plot(report: Mapping[str, Any], path: Path) -> None:
    """Draw recomputed tokens and TTFT of each policy into a PNG file."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    policies, bounds = report["policies"], report["bounds"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    names, colours = list(policies), _colours(policies)

    bars = left.bar(names, [policies[n]["recomputed_tokens"] for n in names], color=colours)
    left.bar_label(bars, fmt="{:,.0f}")
    # One wide and pale, one dashed: both are seen where they are equal.
    least = bounds["infinite_cache"]["recomputed_tokens"]
    left.axhline(least, lw=4, color="0.8", label="infinite cache", zorder=2.1)
    best = bounds["belady"]["recomputed_tokens"]
    left.axhline(best, ls="--", color="0.3", label="Bélády, same size", zorder=2.2)
    left.set_ylabel("prompt tokens computed again (lower is better)")

    kinds, width = ("mean", "p50", "p99"), 0.8 / len(names)
    for number, (name, colour) in enumerate(zip(names, colours, strict=True)):
        at = np.arange(len(kinds)) + (number - (len(names) - 1) / 2) * width
        right.bar(
            at, [policies[name]["ttft_ms"][k] for k in kinds], width, label=name, color=colour
        )
    right.set_xticks(range(len(kinds)), kinds)
    right.set_ylabel("time to first token, ms (lower is better)")
    for axes in (left, right):
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=5, frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"Six agents, {report['sessions_live']} sessions live, {report['routing']}: "
        f"{report['max_total_tokens']:,} tokens of cache for a working set of "
        f"{report['working_set_tokens']:,}"
    )
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _colours(policies: Mapping[str, Summary]) -> list[str]:
    ours = {"scout": "#d1495b", "cachescout": "#edae49"}
    greys = iter(("#33658a", "#6f9ab8", "#a9c4d6", "#d0dfe9"))
    return [ours.get(name) or next(greys, "#d0dfe9") for name in policies]
