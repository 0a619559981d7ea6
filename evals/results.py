"""``python -m evals.results REPORT.json… > evals/RESULTS.md``: replay reports as one page.

The reports are what ``python -m scout_sglang.replay … --json REPORT.json`` writes.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

INTRODUCTION = """# Results

Share of prompt tokens found cached, in percent, on SGLang's own cache classes in the replay lab
(`python -m scout_sglang.replay`, see `scout_sglang/replay/README.md`); in brackets the points over
lru, paired by seed. *Bound* knows all future calls and frees page by page; *infinite* never
evicts. *Gap* is the share of the way from lru to the bound that scout covers. Live: mean number of
sessions under way. Shared: share of prompt tokens in prefixes that sessions share. A row with more
than 1 % of calls not admitted is in brackets: it is no measurement.

Losses are rows with a minus. This page was written by `python -m evals.results`.
"""
COLUMNS = ("lru", "slru", "cachescout", "scout", "belady", "infinite")


def main(paths: Sequence[str]) -> int:
    print(INTRODUCTION)
    print(
        "| trace | capacity | seeds | live | shared | lru | slru | cachescout | **scout** "
        "| bound | infinite | gap |"
    )
    print("|" + "---|" * 12)
    for path in paths:
        loaded = json.loads(Path(path).read_text(encoding="utf-8"))
        for report in loaded if isinstance(loaded, list) else [loaded]:
            for row in rows(report):
                print("| " + " | ".join(row) + " |")
    return 0


def rows(report: dict[str, Any]) -> list[list[str]]:
    """One table row for each capacity of a report."""
    trace, results = report["trace"], report["results"]
    name = Path(trace["name"]).name.split(".")[0]
    out = []
    for capacity in dict.fromkeys(result["capacity"] for result in results):
        cells = {p: _of(results, capacity, p) for p in COLUMNS}
        valid = all(run["valid"] for p in ("lru", "scout") for run in cells[p])
        size = f"{capacity:,}" if valid else f"({capacity:,})"
        row = [name, size, str(len(cells["lru"])), f"{trace['live_sessions']:.1f}"]
        row.append(f"{100 * trace['anchor_share']:.0f} %")
        row += [_cell(cells[p], cells["lru"], gain=p not in ("lru", "infinite")) for p in COLUMNS]
        row.append(_gap(cells))
        out.append(row)
    return out


def _of(results: Sequence[dict[str, Any]], capacity: int, policy: str) -> list[dict[str, Any]]:
    return [r for r in results if (r["capacity"], r["policy"]) == (capacity, policy)]


def _rate(runs: Sequence[dict[str, Any]]) -> float:
    return 100 * fmean(run["hit_rate"] for run in runs)


def _cell(runs: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]], gain: bool) -> str:
    if not runs:
        return "–"
    shown = f"{_rate(runs):.1f}"
    return f"{shown} ({_rate(runs) - _rate(base):+.1f})" if gain and base else shown


def _gap(cells: dict[str, list[dict[str, Any]]]) -> str:
    if not all(cells[p] for p in ("lru", "scout", "belady")):
        return "–"
    room = _rate(cells["belady"]) - _rate(cells["lru"])
    return (
        f"{100 * (_rate(cells['scout']) - _rate(cells['lru'])) / room:.0f} %" if room > 0.1 else "–"
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
