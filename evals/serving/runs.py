"""Runs kept as JSON lines, so that a comparison goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from evals.serving.samples import Run, Sample


class Place(NamedTuple):
    """Which run of a comparison: everything that tells two of them apart.

    ``rate``: arrivals a second. ``repeat``: from 0; its seed is that of the set-up plus so many.
    """

    workload: str
    rate: float
    repeat: int
    policy: str


class Record(NamedTuple):
    """A run that ended. ``books``: what was counted meanwhile beside the calls."""

    place: Place
    run: Run
    books: dict[str, Any]


class RunLog:
    """The records of one set-up in a file, one a line, appended as they come.

    ``setup`` is what every run shares (model, cache, ids, ...); it is the file's first line.
    A line that was cut short by a kill is left out, and its run is made again.

    Raises:
        ValueError: the file was made under another set-up.
    """

    def __init__(self, path: Path, setup: Mapping[str, Any]) -> None:
        self.path = path
        self.records: dict[Place, Record] = {}
        kept = [] if not path.exists() else _lines(path)
        if kept and kept[0] != setup:
            raise ValueError(f"{path} was made under another set-up: {kept[0]}, not {dict(setup)}")
        for line in kept[1:]:
            samples = [Sample(*sample) for sample in line["samples"]]
            run = Run(samples, line["broken"], line["duration"])
            place = Place(*line["place"])
            self.records[place] = Record(place, run, line["books"])
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write("\n" if kept else json.dumps(setup) + "\n")

    def add(self, record: Record) -> None:
        """Keep a run; times are rounded to what the file has of them."""
        record = record._replace(run=_rounded(record.run))
        self.records[record.place] = record
        line = {
            "place": record.place,
            "broken": record.run.broken,
            "duration": record.run.duration,
            "books": record.books,
            "samples": record.run.samples,
        }
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")


def _rounded(run: Run) -> Run:
    begun = min((sample.started for sample in run.samples), default=0.0)
    samples = [
        sample._replace(
            started=round(sample.started - begun, 4),
            ttft_ms=round(sample.ttft_ms, 2),
            latency_ms=round(sample.latency_ms, 2),
        )
        for sample in run.samples
    ]
    return run._replace(samples=samples)


def _lines(path: Path) -> list[Any]:
    found = []
    for text in path.read_text().splitlines():
        try:
            found.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return found
