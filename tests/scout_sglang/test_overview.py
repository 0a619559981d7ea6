"""What is counted and shown: sums that agree, bounded tables, and looking changes nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from radix_policy.call import NodeKind
from radix_policy.tags import SHARED, Tag
from scout_sglang import counters as counting
from scout_sglang.counters import Counters, Spent
from scout_sglang.overview import MOST_AGENTS, MOST_CLASSES, overview
from tests.scout_sglang.lab import Lab, Program, random_steps


def assert_sums_agree(shown):
    totals, agents = shown["totals"], shown["agents"]
    assert totals["hit_tokens"] + totals["recomputed_tokens"] == totals["prompt_tokens"]
    for field in ("calls", "prompt_tokens", "hit_tokens", "recomputed_tokens"):
        assert sum(agent[field] for agent in agents) == totals[field]
    by_kind = shown["evictions"]["by_kind"].values()
    assert sum(line["tokens"] for line in by_kind) == totals["evicted_tokens"]
    memory = shown["memory"]
    held = sum(line["tokens"] for line in shown["cache_map"])
    assert held == memory["evictable"] + memory["protected"]
    moves = shown["transitions"]
    for row, end, other in zip(moves["probabilities"], moves["ends"], moves["others"], strict=True):
        assert sum(row) + end + other == pytest.approx(round(sum(row) + end + other), abs=0.01)


@pytest.mark.parametrize("policy", ["scout", "cachescout"])
@pytest.mark.parametrize("mode", ["on", "shadow"])
@pytest.mark.parametrize("core", ["python", "rust"])
def test_sums_agree_and_looking_changes_no_hit(policy, mode, core):
    hits = []
    for looks in (False, True):
        lab = Lab(policy, 40 * 16, core=core, mode=mode)
        program = Program(lab, labelled=True)
        for number, step in enumerate(random_steps(5, 300)):
            program.step(*step)
            if looks and number % 5 == 0:
                lab.core.survey.at = None
                assert_sums_agree(overview(lab.cache))
        program.end()
        hits.append(program.hits)
    assert hits[0] == hits[1]
    assert overview(lab.cache)["totals"]["evicted_tokens"] == lab.evicted > 0


def test_with_very_many_agents_the_rest_is_one_line():
    lab = Lab("scout", 4000)
    for number in range(300):
        label = {"agent": f"agent {number % 150}", "session": str(number)}
        lab.call(f"r{number}", [number % 150] * 20, [1, 2], label=label)
    shown = overview(lab.cache)
    assert_sums_agree(shown)
    assert len(shown["agents"]) == MOST_AGENTS + 1
    assert shown["agents"][-1]["label"] == "other"
    assert shown["agents"][-1]["calls"] == 100
    assert len(shown["cache_map"]) <= MOST_CLASSES


@pytest.mark.parametrize("exposed", [False, True])
def test_prompts_are_shown_only_where_that_is_asked_for(exposed):
    lab = Lab("scout", 4000, expose_prompts=exposed)
    for number in range(6):
        label = {"agent": "one", "session": str(number)}
        lab.call(f"r{number}", [*range(70_000, 70_040), 80_000 + number], [1], label=label)
    [agent] = overview(lab.cache)["agents"]
    assert agent["anchor_tokens"] == 40
    assert agent.get("anchor_text") == (list(range(70_000, 70_040)) if exposed else None)
    assert ("70001" in str(overview(lab.cache))) == exposed


def test_counts_are_bounded(monkeypatch):
    monkeypatch.setattr(counting, "MOST_AGENTS", 10)
    counted = Counters()
    for number in range(1000):
        counted.arrived(number)
        counted.served((0, number), 10, 4, 3)
        counted.evicted([(Tag(0, SHARED, (number,), NodeKind.PROMPT), 5, 0.5)], "value")
        counted.changed("mode", "on", "shadow")
    assert len(counted.by_agent) == 10
    assert counted.other.calls == 990
    assert counted.total.recomputed == 6000
    assert len(counted.recent) == counting.MOST_RECENT
    assert len(counted.changes) == counting.MOST_CHANGES


def test_the_99th_percentile_of_a_step_is_right_to_a_quarter_octave():
    spent = Spent()
    for _ in range(980):
        spent.add(100e-6)
    for _ in range(20):
        spent.add(5e-3)
    assert 5e-3 <= spent.quantile(0.99) <= 6.3e-3
    assert 100e-6 <= spent.quantile(0.5) <= 126e-6


def test_every_field_is_on_the_operators_page():
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    named = set(re.findall(r"`(\w+)`", page))
    lab = Lab("scout", 40 * 16, core="rust", mode="shadow")
    program = Program(lab, labelled=True)
    for step in random_steps(5, 60):
        program.step(*step)
    program.end()
    lab.core.survey.at = None
    shown = overview(lab.cache)
    inside = ("memory", "totals", "transitions", "sessions", "next_agent", "guard", "shadow")
    fields = {*shown, *(name for part in inside for name in shown[part])}
    fields |= {name for part in ("agents", "history", "cache_map") for name in shown[part][0]}
    fields |= {*shown["evictions"], *shown["evictions"]["recent"][0]}
    fields |= {name for cost in shown["cpu"].values() for name in cost}
    assert fields <= named, fields - named
