"""What the notebooks in ``evals/notebooks`` share: sizes, traces, replays, tables.

``python -m evals.notebook NOTEBOOK.py…`` runs them and writes each with its outputs beside its
text, as NOTEBOOK.ipynb (extra ``notebooks``); ``make notebooks`` does so for all.

``NOTEBOOK_SIZE`` is small (seconds, for tests), medium (a few minutes each) or full.
``SCOUT_TRACES`` is the folder of recorded sets; without it generated workloads stand in.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from radix_policy.call import Call, Dispatch
from radix_policy.config import ScoutConfig
from radix_policy.scout import Scout
from scout_sglang.replay.__main__ import Measured, load, measure
from scout_sglang.replay.command_line import parser
from scout_sglang.replay.engine import Result
from scout_sglang.replay.formats.fields import Options
from scout_sglang.replay.presets import preset_for, with_overrides
from scout_sglang.replay.report import MOST_FAILED, paired_gains
from scout_sglang.replay.timing import Event, Timing, schedule

T = TypeVar("T")
Events = Callable[[int], Iterator[Event]]

SIZES = ("small", "medium", "full")
PAPER = "CacheScout, arXiv 2608.14624"
PAPER_GAIN = (10.0, 18.0)
"""Points of hit rate over LRU that the paper reports."""


def size() -> str:
    """The size asked for.

    Raises:
        ValueError: NOTEBOOK_SIZE is none of SIZES.
    """
    asked = os.environ.get("NOTEBOOK_SIZE", "full")
    if asked not in SIZES:
        raise ValueError(f"NOTEBOOK_SIZE must be one of {', '.join(SIZES)}, got {asked!r}")
    return asked


def pick(small: T, medium: T, full: T) -> T:
    """The value that belongs to the size asked for."""
    return {"small": small, "medium": medium, "full": full}[size()]


def start() -> None:
    """Silence what the libraries say at import, and set the look of all plots."""
    warnings.filterwarnings("ignore", category=UserWarning)
    logging.getLogger("sglang").setLevel(logging.ERROR)
    from matplotlib import pyplot

    pyplot.rcParams.update(
        {
            "figure.dpi": 80,
            "font.size": 10,
            "axes.grid": True,
            "grid.alpha": 0.3,
            "axes.axisbelow": True,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    )


def recorded() -> dict[str, str]:
    """Recorded sets by name, as trace files; empty if there are none."""
    folder = Path(os.environ.get("SCOUT_TRACES", "../shared/traces"))
    return {path.name.split(".")[0]: str(path) for path in sorted(folder.glob("*.jsonl.zst"))}


def events_of(source: str, max_sessions: int | None = None, **timing: Any) -> Events:
    """The schedule of a trace by seed, under its preset's timing model with changes."""
    trace = load(source, None, Options(), max_sessions)
    base, _ = preset_for(source) or (Timing(), None)
    return partial(schedule, trace, with_overrides(base, timing))


def next_agent_accuracy(events: Events, seed: int = 0) -> float:
    """Share of next agents that scout's model names rightly, told nothing but token ids.

    The first 15 % of the calls teach and are not counted; neither are ends of sessions. An inferred
    agent goes by the name that its calls mostly have in the trace.
    """
    scout = Scout(ScoutConfig(), capacity=100_000, page_size=16)
    names: dict[int, Counter[str]] = defaultdict(Counter)
    running: dict[int, Dispatch] = {}
    guesses: dict[int, int] = {}
    right: list[bool] = []
    for event in events(seed):
        job = event.job
        if not event.starts:
            tokens = np.concatenate([job.prompt, job.output])
            scout.finish(running.pop(job.number), tokens, len(job.prompt), len(job.output))
            continue
        call = running[job.number] = scout.observe(Call(job.prompt))
        scout.admit(call)
        agent = job.call.agent or ""
        if (guess := guesses.pop(job.session_index, None)) is not None:
            right.append(bool(names[guess]) and names[guess].most_common(1)[0][0] == agent)
        names[call.agent][agent] += 1
        chances = scout.predict(call)
        guesses[job.session_index] = max(chances, key=lambda a: chances[a]) if chances else -1
    counted = right[round(0.15 * len(right)) :]
    return sum(counted) / max(len(counted), 1)


def replays(source: str, policies: Sequence[str], **options: Any) -> Measured:
    """``python -m scout_sglang.replay``, with options by their names: ``max_sessions=50``.

    ``config``: knobs by policy.
    """
    config: Mapping[str, Any] = options.pop("config", {})
    argv = [source, "--policies", ",".join(policies)]
    for policy, knobs in config.items():
        argv += ["--config", f"{policy}={json.dumps(knobs)}"]
    for name, value in options.items():
        if value is True:
            argv.append(f"--{name.replace('_', '-')}")
        elif value is not None and value is not False:
            argv += [f"--{name.replace('_', '-')}", str(value)]
    return measure(source, parser().parse_args(argv))


def runs_of(measured: Measured, policy: str, capacity: int | None = None) -> list[Result]:
    """The runs of a policy, one a seed; at the first capacity unless another is named."""
    capacity = capacity or measured.results[0].capacity
    return [r for r in measured.results if (r.policy, r.capacity) == (policy, capacity)]


def rate(measured: Measured, policy: str, capacity: int | None = None) -> float:
    """Mean hit rate in percent over the seeds."""
    return 100 * fmean(run.hit_rate for run in runs_of(measured, policy, capacity))


def gains(measured: Measured, policy: str, capacity: int | None = None) -> list[float]:
    """Points over lru, seed by seed."""
    return paired_gains(runs_of(measured, policy, capacity), runs_of(measured, "lru", capacity))


def valid(measured: Measured, capacity: int | None = None) -> bool:
    """Whether so few calls were turned away at this capacity that its runs count."""
    capacity = capacity or measured.results[0].capacity
    runs = [run for run in measured.results if run.capacity == capacity]
    return all(run.failed_share <= MOST_FAILED for run in runs)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Rows as aligned text."""
    lines = [list(columns), *[[str(cell) for cell in row] for row in rows]]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def remake(path: Path) -> None:
    """Run a notebook in the percent format; write it with its outputs as .ipynb beside it.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell failed; nothing is written.
    """
    import jupytext
    from nbclient import NotebookClient

    notebook = jupytext.read(path)
    notebook.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    NotebookClient(notebook, timeout=None, kernel_name="python3").execute()
    for number, cell in enumerate(notebook.cells):
        # Ids and times would change with every run.
        cell["id"] = f"cell-{number}"
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            # What libraries say on stderr names local folders.
            cell.outputs = [out for out in cell.outputs if out.get("name") != "stderr"]
    notebook.metadata.pop("jupytext", None)
    jupytext.write(notebook, path.with_suffix(".ipynb"))


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        remake(Path(argument))
        print(f"{argument}: done", flush=True)
