"""``python -m evals.results --traces DIR``: every workload under every policy, as RESULTS.md.

Runs the replay lab once for each row (a workload at its capacities, with and without ids) and
seed, all rows of a seed before the next, and keeps each report in ``--reports``: a second run goes
on where the first was stopped. The page is made from the reports that there are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from evals.serving.page import live
from evals.workloads.mooncake import write_sample

POLICIES = "lru,lfu,slru,tlru,cachescout,anchor-protect,scout,belady,infinite"
TLRU = '{"threshold": 512, "next_prompt_estimate": 256}'
COLUMNS = (
    *("lru", "lfu", "slru", "tlru", "cachescout", "literal", "anchor-protect"),
    *("scout", "no ids", "belady", "infinite"),
)
BOUNDS = ("no ids", "belady", "belady-leaf", "infinite")
RIVALS = "lru,fifo,filo,mru,lfu-da,lhd,ttl,kvflow,no-prediction,scout,belady-leaf"
RIVAL_COLUMNS = tuple(RIVALS.split(","))
PAGE = Path(__file__).with_name("RESULTS.md")
OVERHEAD = Path(__file__).with_name("overhead.json")
"""The report that ``python -m evals.bench_overhead --json evals/overhead.json`` writes."""


class Row(NamedTuple):
    """A workload at some capacities. ``more``: further arguments of the lab."""

    source: str
    capacities: str = ""
    more: tuple[str, ...] = ()
    rivals: bool = False

    @property
    def name(self) -> str:
        """Names the row and its report."""
        name = Path(self.source).name.removeprefix("synthetic:").split(".")[0]
        return name + "".join(self.more)


ROWS = (
    Row("synthetic:mix24", "8000,12000,16000,24000,32000"),
    Row("virtual_lab.jsonl.zst", rivals=True),
    Row("whowhen_alg.jsonl.zst", rivals=True),
    Row("whowhen_alg.jsonl.zst", more=("--end-labels",)),
    Row("taubench_airline.jsonl.zst", rivals=True),
    Row("whowhen_hand.jsonl.zst", rivals=True),
    Row("mooncake_sample.jsonl", "12%,25%,50%", rivals=True),
    Row("synthetic:debate", "6500,9000,12000"),
    Row("synthetic:selector", "6500,9000,12000"),
    Row("synthetic:random", "6500,9000"),
    Row("synthetic:pipeline", "6500,9000"),
    Row("synthetic:mix102", "12000,20000,32000"),
    Row("synthetic:chat"),
    Row("synthetic:drift", "8000"),
    Row("synthetic:bursts"),
    Row("synthetic:loop"),
    Row("synthetic:sweep"),
    Row("synthetic:labels-shuffled"),
    Row("synthetic:skills"),
    Row("synthetic:thinking"),
)
VARIANTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "": (POLICIES, ("--config", f"tlru={TLRU}")),
    "literal": ("cachescout", ("--config", 'cachescout={"variant": "literal"}')),
    "no ids": ("scout", ("--no-ids",)),
    "rivals": (RIVALS, ()),
}
INTRODUCTION = """# Results

Share of prompt tokens found cached, in percent, on SGLang's own cache classes in the replay lab
(`scout_sglang/replay/README.md`); in brackets the points over lru. Seeds of session arrivals and
pauses: as many as the column *seeds* says; the mean is shown, with several also the lowest and the
highest gain of scout. *Bound* knows all future calls and frees page by page; *infinite* never
evicts. *Gap* is the share of the way from lru to the bound that scout covers. A row with more than
1 % of calls not admitted is in brackets: it is no measurement. The best of all but the bounds is
bold. Every policy starts empty; the first 15 % of the calls are not counted. Workloads of the
command that are missing here were not measured yet.

Losses are cells with a minus, and rows in which another column than scout is bold.

    python -m evals.results --traces {traces} --seeds {seeds}

| workload | capacity | seeds | lru | lfu | slru | tlru | cachescout | literal | anchor-protect \
| scout | no ids | bound | infinite | gap |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"""


RIVALS_INTRODUCTION = f"""
## Rivals from the literature

The recorded sets and a Mooncake sample (`evals/workloads/mooncake.py`) under the rest of what the
lab can replay, of the same command. *kvflow* is told the true course of every session, *ttl* the
kind of every pause, and *belady-leaf* knows the future but frees whole leaves.

| workload | capacity | seeds | {" | ".join(RIVAL_COLUMNS)} |
|---|---|---|{"---|" * len(RIVAL_COLUMNS)}"""

OVERHEAD_INTRODUCTION = """
## What the policy costs

Thread CPU time of *scout* as a multiple of stock *lru* on SGLang's Rust tree core, medians of one
run in which both take turns; microseconds and bytes where it says so
(`python -m evals.bench_overhead --quick --json evals/overhead.json`; more in
`evals/notebooks/05_overhead.ipynb`).

| what | measured | asked for | holds |
|---|---|---|---|"""


def main(argv: Sequence[str] | None = None) -> int:
    cli = argparse.ArgumentParser(prog="evals.results", description=__doc__)
    cli.add_argument("--traces", type=Path, required=True, help="folder of the recorded sets")
    cli.add_argument("--reports", type=Path, default=Path("build/results"))
    cli.add_argument("--seeds", type=int, default=3)
    cli.add_argument("--jobs", type=int, default=2, help="replays at once")
    cli.add_argument("--page-only", action="store_true", help="from the reports that there are")
    args = cli.parse_args(argv)
    args.reports.mkdir(parents=True, exist_ok=True)
    if not args.page_only:
        with ThreadPoolExecutor(args.jobs) as pool:
            list(pool.map(lambda job: _run(args, *job), _jobs(args.seeds)))
    PAGE.write_text(page(args.reports, args.seeds, args.traces.name), encoding="utf-8")
    return 0


def _jobs(seeds: int) -> list[tuple[Row, str, int]]:
    return [
        (row, variant, seed)
        for seed in range(seeds)
        for row in ROWS
        for variant in VARIANTS
        if row.rivals or variant != "rivals"
    ]


def _report(folder: Path, row: Row, variant: str, seed: int) -> Path:
    return folder / f"{row.name}{variant.replace(' ', '-')}-{seed}.json"


def _run(args: argparse.Namespace, row: Row, variant: str, seed: int) -> None:
    path = _report(args.reports, row, variant, seed)
    if path.exists():
        return
    policies, more = VARIANTS[variant]
    command = [sys.executable, "-m", "scout_sglang.replay", _source(args, row)]
    command += ["--policies", policies, "--seed", str(seed)]
    command += ["--capacity", row.capacities] if row.capacities else []
    unfinished = path.with_suffix(".part")
    subprocess.run(
        [*command, *more, *row.more, "--json", str(unfinished)],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    unfinished.rename(path)
    print(f"{row.name} {variant} seed {seed}", flush=True)


def _source(args: argparse.Namespace, row: Row) -> str:
    if row.source.startswith("synthetic:"):
        return row.source
    if row.source != "mooncake_sample.jsonl":
        return str(args.traces / row.source)
    sample = args.reports / row.source
    return str(sample if sample.exists() else write_sample(sample))


def page(folder: Path, seeds: int, traces: str) -> str:
    """RESULTS.md from the reports in ``folder``."""
    lines = [INTRODUCTION.format(seeds=seeds, traces=traces)]
    for row in ROWS:
        results = _results(folder, row, "", seeds)
        for variant in ("literal", "no ids"):
            for result in _results(folder, row, variant, seeds):
                results.append({**result, "policy": variant})
        lines += ["| " + " | ".join(cells) + " |" for cells in table(row.name, results)]
    lines.append(RIVALS_INTRODUCTION)
    for row in ROWS:
        rows = table(row.name, _results(folder, row, "rivals", seeds), RIVAL_COLUMNS)
        lines += ["| " + " | ".join(cells) + " |" for cells in rows]
    lines += live()
    lines += overhead(OVERHEAD)
    return "\n".join(lines) + "\n"


def overhead(report: Path) -> list[str]:
    """What the policy costs, as lines of the page; none without a report."""
    if not report.exists():
        return []
    bars = json.loads(report.read_text(encoding="utf-8"))["bars"]
    rows = [f"| {b['name']} | {b['value']:,} | {b['bar']:,} | {_holds(b)} |" for b in bars]
    return [OVERHEAD_INTRODUCTION, *rows]


def _holds(bar: dict[str, Any]) -> str:
    return "yes" if bar["holds"] else "**no**"


def _results(folder: Path, row: Row, variant: str, seeds: int) -> list[dict[str, Any]]:
    """Of every seed of which there are the reports that it is compared with as well."""
    found: list[dict[str, Any]] = []
    for seed in range(seeds):
        path = _report(folder, row, variant, seed)
        if path.exists() and (variant == "rivals" or _report(folder, row, "", seed).exists()):
            found += json.loads(path.read_text(encoding="utf-8"))["results"]
    return found


def table(
    name: str, results: Sequence[dict[str, Any]], columns: Sequence[str] = COLUMNS
) -> list[list[str]]:
    """One line of cells for each capacity; the gap at its end where ``columns`` have the bound."""
    lines = []
    for capacity in dict.fromkeys(result["capacity"] for result in results):
        rates = {p: _rates(results, capacity, p) for p in columns}
        runs = [r for r in results if r["capacity"] == capacity and r["policy"] in ("lru", "scout")]
        size = f"{capacity:,}" if all(run["valid"] for run in runs) else f"({capacity:,})"
        rivals = {p: fmean(v.values()) for p, v in rates.items() if v and p not in BOUNDS}
        best = max(rivals, key=lambda p: rivals[p])
        cells = [_cell(rates[p], rates["lru"], p, p == best) for p in columns]
        lines.append(
            [
                name,
                size,
                str(len(rates["lru"])),
                *cells,
                *([_gap(rates)] if "belady" in columns else []),
            ]
        )
    return lines


def _rates(results: Sequence[dict[str, Any]], capacity: int, policy: str) -> dict[int, float]:
    """Hit rate in percent by seed."""
    return {
        r["seed"]: 100 * r["hit_rate"]
        for r in results
        if (r["capacity"], r["policy"]) == (capacity, policy)
    }


def _cell(rates: dict[int, float], base: dict[int, float], policy: str, best: bool) -> str:
    if not rates:
        return "–"
    shown = f"**{fmean(rates.values()):.1f}**" if best else f"{fmean(rates.values()):.1f}"
    if policy in ("lru", "infinite"):
        return shown
    gains = [rate - base[seed] for seed, rate in rates.items()]
    shown += f" ({fmean(gains):+.1f})"
    spread = policy == "scout" and len(gains) > 1
    return f"{shown}<br>{min(gains):+.1f} to {max(gains):+.1f}" if spread else shown


def _gap(rates: dict[str, dict[int, float]]) -> str:
    if not all(rates[p] for p in ("lru", "scout", "belady")):
        return "–"
    lru, scout, bound = (fmean(rates[p].values()) for p in ("lru", "scout", "belady"))
    return f"{100 * (scout - lru) / (bound - lru):.0f} %" if bound - lru > 0.1 else "–"


if __name__ == "__main__":
    raise SystemExit(main())
