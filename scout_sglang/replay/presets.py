"""Named settings: a timing model for each recorded set and generated workload."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from scout_sglang.replay import synthetic
from scout_sglang.replay.timing import Timing

RECORDED: dict[str, tuple[Timing, tuple[int, ...]]] = {
    "virtual_lab": (Timing(sessions_per_second=0.08), (60_000,)),
    "whowhen_hand": (Timing(sessions_per_second=0.02, max_prompt=32_000), (100_000,)),
    # The customer is a language model that speaks for a person.
    "taubench_airline": (
        Timing(sessions_per_second=0.4, human_gap=6.0, human_agents=("a0",)),
        (40_000, 70_000),
    ),
    "whowhen_alg": (Timing(sessions_per_second=0.4), (30_000, 50_000)),
}
"""Timing and capacities in tokens by the stem of a trace's file name."""


def preset_for(source: str) -> tuple[Timing, tuple[int, ...]] | None:
    """The settings that belong to a trace file or a ``synthetic:`` workload, else None."""
    if source.startswith("synthetic:"):
        return synthetic.setting(source.removeprefix("synthetic:"))
    stem = Path(source).name.split(".")[0]
    return RECORDED.get(stem)


def with_overrides(timing: Timing, overrides: dict[str, object]) -> Timing:
    """The timing with every override that is not None laid over it."""
    given = {name: value for name, value in overrides.items() if value is not None}
    return replace(timing, **given)  # type: ignore[arg-type]
