"""What must hold of the figures of one ``GET /scout``, and of two that follow each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scout_sglang.metrics import WARMUP_COUNTERS

SIGNED = {("guard", "regret")}
"""Numbers that may be negative; beside them what a shadow saves."""
GROWING = [
    *(("totals", name) for name in ("calls", "prompt_tokens", "hit_tokens", "recomputed_tokens")),
    *(("totals", f"calls_with_{which}_id") for which in ("session", "agent")),
    *(("totals", "evicted_tokens"), ("sessions", "seen"), ("sessions", "ended_by_label")),
    *(("next_agent", "predictions"), ("next_agent", "correct")),
    *(("guard", "forgiven"), ("guard", "switches")),
    *(("state_file", "writes"), ("state_file", "failures"), ("uptime",)),
    *(("warmup", name) for name in sorted(WARMUP_COUNTERS)),
]


def check(shown: dict[str, Any]) -> None:
    """Every number of one rank is where it may be, and all sums agree."""
    for path, number in numbers(shown):
        if path[0] == "constants" or path in SIGNED or path[-1].startswith("saved_"):
            continue
        assert number >= 0, path
        if path[-1] in ("hit_rate", "resident_share", "value", "id_share", "accuracy", "R", "beta"):
            assert number <= 1, path
    totals, agents = shown["totals"], shown["agents"]
    assert totals["hit_tokens"] + totals["recomputed_tokens"] == totals["prompt_tokens"]
    for field in ("calls", "prompt_tokens", "hit_tokens", "recomputed_tokens"):
        assert sum(agent[field] for agent in agents) == totals[field]
    for agent in agents:
        assert agent["hit_tokens"] + agent["recomputed_tokens"] == agent["prompt_tokens"]
    assert max(totals["calls_with_session_id"], totals["calls_with_agent_id"]) <= totals["calls"]
    evictions = shown["evictions"]
    by_kind = sum(line["tokens"] for line in evictions["by_kind"].values())
    assert by_kind == sum(evictions["tokens_by_reason"].values()) == totals["evicted_tokens"]
    memory = shown["memory"]
    held = memory["evictable"] + memory["protected"]
    # What a running call has generated is in neither.
    assert held + memory["available"] <= memory["capacity"]
    assert sum(line["tokens"] for line in shown["cache_map"]) <= memory["capacity"]
    assert sum(agent["resident_tokens"] for agent in agents) <= memory["capacity"]
    history = shown["history"]
    assert sum(slot["prompt_tokens"] for slot in history) <= totals["prompt_tokens"]
    assert all(slot["hit_tokens"] <= slot["prompt_tokens"] for slot in history)
    assert shown["next_agent"]["correct"] <= shown["next_agent"]["predictions"]
    check_chances(shown["transitions"])
    warmup = shown["warmup"]
    settled = warmup["tokens_used"] + warmup["tokens_wasted"] + warmup["tokens_resident"]
    assert warmup["tokens_prefilled"] == settled


def check_chances(seen: dict[str, Any]) -> None:
    """Each row of the transition matrix is a distribution, or that agent was never followed."""
    size = len(seen["agents"])
    assert len(seen["probabilities"]) == len(seen["ends"]) == len(seen["others"]) == size
    for row, end, other in zip(seen["probabilities"], seen["ends"], seen["others"], strict=True):
        assert len(row) == size
        total = sum(row) + end + other
        assert total == pytest.approx(0 if total < 0.5 else 1, abs=1e-4 * (size + 2))
    assert sum(seen["starts"]) <= 1 + 1e-4 * size


def check_growth(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Nothing has decreased that only grows."""
    for path in GROWING:
        assert at(after, path) >= at(before, path), path
    for name, count in before["faults"].items():
        assert after["faults"][name] >= count
    for step, cost in before["cpu"].items():
        assert after["cpu"][step]["count"] >= cost["count"]
    for kind, line in before["evictions"]["by_kind"].items():
        for unit, amount in line.items():
            assert after["evictions"]["by_kind"][kind][unit] >= amount
    known = {agent["id"]: agent for agent in after["agents"]}
    for agent in before["agents"]:
        if agent["id"] in known and agent["id"] is not None:
            assert known[agent["id"]]["calls"] >= agent["calls"]


def at(shown: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        shown = shown[name]
    return shown


def numbers(part: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every number with the names that lead to it."""
    if isinstance(part, dict):
        for name, value in part.items():
            yield from numbers(value, (*path, name))
    elif isinstance(part, list):
        for value in part:
            yield from numbers(value, path)
    elif isinstance(part, int | float):
        yield path, part
