import json

import pytest

from scout_sglang.replay.__main__ import main
from scout_sglang.replay.engine import Result
from scout_sglang.replay.planner import capacity_for, needs, plan_capacities, verdict
from scout_sglang.replay.stack import stack_curve
from scout_sglang.replay.synthetic import trace
from scout_sglang.replay.timing import Timing, schedule
from tests.replay.test_command import FACTS

POINTS = [(1_000, 0.2), (2_000, 0.4), (8_000, 0.6)]


@pytest.mark.parametrize(
    ("rate", "expected"),
    [(0.4, 2_000), (0.5, 4_000), (0.3, 1_414), (0.6, 8_000), (0.61, None), (0.1, 1_000)],
)
def test_between_replays_the_hit_rate_rises_with_the_logarithm_of_memory(rate, expected):
    assert capacity_for(POINTS, rate) == expected


def test_a_dip_of_lru_is_passed_over():
    assert capacity_for([(1_000, 0.4), (2_000, 0.3), (4_000, 0.5)], 0.45) == 2_000


def results():
    rates = {"lru": POINTS, "scout": [(1_000, 0.4), (2_000, 0.5), (8_000, 0.7)]}
    return [
        Result(policy, capacity, 16, 0, calls=9, prompt_tokens=1000, hit_tokens=int(1000 * rate))
        for policy, points in rates.items()
        for capacity, rate in points
    ]


def test_what_lru_needs_is_told_for_every_capacity_of_the_others():
    found = [(need.policy, need.capacity, need.lru_needs) for need in needs(results())]
    assert found == [("scout", 1_000, 2_000), ("scout", 2_000, 4_000), ("scout", 8_000, None)]


def test_a_run_in_which_calls_failed_is_no_point():
    spoiled = [*results(), Result("slru", 1_000, 16, 0, calls=9, failed_calls=1)]
    assert {need.policy for need in needs(spoiled)} == {"scout"}


def curve():
    return stack_curve(schedule(trace("mix24?sessions=20"), Timing(), 0), 16)


def test_the_verdict_names_both_memories_and_the_factor():
    text = verdict(curve(), results())
    assert "2,000 tokens (2.00 times the memory) for what scout reaches in 1,000" in text
    assert f"{curve().working_set:,} tokens would hold" in text


def test_capacities_run_from_where_calls_fit_to_where_little_is_left_to_gain():
    capacities = plan_capacities(FACTS, curve(), 16)
    assert capacities == sorted(set(capacities))
    assert len(capacities) == 8
    assert capacities[0] == 4 * FACTS.longest // 16 * 16
    assert curve().hit_rate(capacities[-1]) >= 0.99 * curve().limit


def test_the_command_plans(tmp_path, capsys):
    out, image = tmp_path / "o.json", tmp_path / "o.png"
    what = ["synthetic:mix24?sessions=20", "--plan", "--capacity", "8000,16000"]
    assert main([*what, "--json", str(out), "--plot", str(image)]) == 0
    plan = json.loads(out.read_text())["plan"]
    assert plan["exact_to"] is None
    assert len(plan["curve"]) == 64
    assert {(need["policy"], need["capacity"]) for need in plan["needs"]} == {
        ("scout", 8_000),
        ("scout", 16_000),
    }
    assert image.read_bytes().startswith(b"\x89PNG")
    assert "lru needs" in capsys.readouterr().out.replace("\n", " ")


def test_a_plan_without_lru_is_refused(capsys):
    assert main(["synthetic:mix24?sessions=2", "--plan", "--policies", "scout"]) == 2
    assert "must contain lru" in capsys.readouterr().err
