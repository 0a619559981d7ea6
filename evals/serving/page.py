"""The section *Live* of RESULTS.md, from the reports in ``evals/serving/results``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results")
MODEL = "MODEL=$(python -m tests.tiny_model --layers 4 --heads 4 --head-dim 64)"
PAPER_FACTOR = (1.7, 12.0)
"""How many times the arrival rate the paper sustains (CacheScout, arXiv 2608.14624)."""
LOWER_IS_BETTER = (*("recomputed_tokens", "ttft_ms", "ttft_p95_ms", "turn_ms", "session_seconds"),)
COLUMNS = {
    "recomputed_tokens": "recomputed tokens",
    "ttft_ms": "TTFT, mean",
    "ttft_p95_ms": "TTFT, p95",
    "turn_ms": "a turn",
    "session_seconds": "a session",
    "tokens_per_second": "tokens a second",
}
INTRODUCTION = f"""
## Live

Real servers on two CPU cores, one at a time, each with a cache that starts empty and the same
requests at the same times (`evals/serve_bench.py`); a random Llama of 28 million parameters, since
eviction saves prefill and nothing else. Ratios to the first policy of a table, with 95 % intervals:
repeats are drawn, and in each of them sessions with their calls. **Bold**: the interval lies on the
better side of 1; *loss*: on the worse. Tokens that warm-ups prefill in idle time are counted apart.
The page shows what `evals/serving/results` holds; each table names its command, where

    {MODEL}"""


def reports(folder: Path = RESULTS) -> dict[str, Any]:
    """The committed reports by name; empty if there are none."""
    return {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("*.json"))
    }


def live(folder: Path = RESULTS) -> list[str]:
    """The section as lines, a table for each report and workload; none without a report."""
    found = reports(folder)
    lines = [INTRODUCTION] if found else []
    for each in found.values():
        lines += ["", f"    {each['command']}", "", _setup(each["setup"])]
        for workload in each["workloads"]:
            lines += ["", *table(workload), *sustained(workload)]
    return lines


def _setup(setup: Mapping[str, Any]) -> str:
    ids = "session ids sent" if setup["ids"] else "no ids sent"
    return f"Cache {setup['max_total_tokens']:,} tokens, {ids}."


def table(workload: Mapping[str, Any]) -> list[str]:
    """One line for each arrival rate and policy."""
    heads = ["workload", "a second", "policy", "repeats", "hit rate, %", *COLUMNS.values()]
    heads.append("warm-up tokens")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for point in workload["points"]:
        for name, measured in point["policies"].items():
            cells = [workload["workload"], f"{point['rate']:g}", name]
            cells += [str(len(measured["repeats"])), f"{100 * measured['hit_rate']:.1f}"]
            cells += [cell(measured, quantity) for quantity in COLUMNS]
            warmed = measured["books"].get("warmup_tokens_prefilled", 0)
            lines.append(f"| {' | '.join([*cells, f'{warmed:,.0f}'])} |")
    return lines


def cell(measured: Mapping[str, Any], quantity: str) -> str:
    """The mean over repeats, and the ratio with its interval where there is one."""
    value = measured["ttft_ms"]["p95"] if quantity == "ttft_p95_ms" else measured[quantity]
    if isinstance(value, Mapping):
        value = value["mean"]
    unit = {"ttft_ms": " ms", "ttft_p95_ms": " ms", "turn_ms": " ms", "session_seconds": " s"}
    shown = f"{value:,.1f}" if quantity == "session_seconds" else f"{value:,.0f}"
    shown += unit.get(quantity, "")
    ratio = measured.get("ratios", {}).get(quantity)
    return f"{shown}<br>{ratio_with_interval(ratio, quantity)}" if ratio else shown


def ratio_with_interval(ratio: Mapping[str, float], quantity: str) -> str:
    """Marked as better or as a loss where the interval excludes 1."""
    interval = f"[{ratio['low']:.3f}, {ratio['high']:.3f}]"
    below, above = ratio["high"] < 1, ratio["low"] > 1
    better, worse = (below, above) if quantity in LOWER_IS_BETTER else (above, below)
    if better:
        return f"**{ratio['ratio']:.3f}** {interval}"
    return f"{ratio['ratio']:.3f} {interval}{' *loss*' if worse else ''}"


def sustained(workload: Mapping[str, Any]) -> Sequence[str]:
    """What arrival rate each policy sustains, beside the paper's factor."""
    lines = []
    for found in workload["sustainable"]:
        rates = ", ".join(
            f"{name} {'less than the lowest rate' if rate is None else f'{rate:.3f}'}"
            for name, rate in found["rates"].items()
        )
        lines += [
            "",
            f"Sessions a second within {found['budget_ms']:,.0f} ms of mean TTFT: {rates}.",
        ]
        for name, factor in found["factors"].items():
            lines.append(f"{name}: {_factor(factor)} (the paper: 1.7 to 12 times).")
    return lines


def _factor(factor: Mapping[str, Any] | None) -> str:
    if factor is None:
        return "the budget is not crossed by both between two of the rates: no factor"
    shown = f"{factor['factor']:.2f} times, [{factor['low']:.2f}, {factor['high']:.2f}]"
    missing = factor["draws_without_a_crossing"]
    return f"{shown}, {missing} draws without a crossing left out" if missing else shown
