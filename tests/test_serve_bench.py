"""The load harness's figures, without a server."""

import pytest

from evals import serve_bench
from evals.serving.bench_tool import mooncake_sample
from evals.serving.samples import Run, Sample, ratios, summarise, sustainable_rate


def run_of(scale, sessions=8):
    """Sessions of two calls; times and computed tokens grow with ``scale``."""
    samples = [
        Sample(f"s{s}", 2.0 * s + turn, 100 * scale + s, 200 * scale, 100, 100 - 10 * scale, 4)
        for s in range(sessions)
        for turn in range(2)
    ]
    return Run(samples, 0)


def test_a_summary_counts_tokens_and_times_each_session_from_end_to_end():
    summary = summarise(Run(run_of(1).samples, broken=1))
    assert summary["calls"] == 16
    assert summary["sessions"] == 9
    assert summary["hit_rate"] == 0.9
    assert summary["recomputed_tokens"] == 160
    assert summary["session_seconds"]["mean"] == 1.2
    assert summary["seconds"] == 15.2


def test_ratios_hold_the_truth_in_their_intervals():
    found = ratios([run_of(2), run_of(2)], [run_of(1), run_of(1)])
    assert found["recomputed_tokens"] == {"ratio": 0.5, "low": 0.5, "high": 0.5}
    assert found["turn_ms"]["ratio"] == 0.5
    assert found["ttft_ms"]["low"] < 103.5 / 203.5 < found["ttft_ms"]["high"]
    assert found["session_seconds"]["ratio"] == pytest.approx(1.2 / 1.4, abs=1e-4)


def test_sessions_that_only_one_server_finished_are_left_out_of_the_ratio():
    base, other = run_of(2), run_of(1)
    assert ratios([base], [Run(other.samples[2:], 1)])["turn_ms"]["ratio"] == 0.5
    with pytest.raises(ValueError, match="no session in common"):
        ratios([base], [Run([], 8)])


@pytest.mark.parametrize(
    ("budget", "rate"), [(50, None), (100, 1.0), (300, 1.5), (500, 2.0), (5000, 4.0)]
)
def test_the_sustainable_rate_lies_where_ttft_crosses_the_budget(budget, rate):
    assert sustainable_rate([(2.0, 500), (1.0, 100), (4.0, 3000)], budget) == rate


def test_policies_take_turns_and_change_places():
    assert list(serve_bench.turns(["a", "b"], 2)) == [(0, "a"), (0, "b"), (1, "b"), (1, "a")]


def test_a_policy_is_a_name_or_the_flags_of_its_server():
    options = serve_bench.parse(["--policies", "tlru,mine", "--flags", "mine=--page-size 4"])
    flags = serve_bench.policy_flags(options)
    assert flags["tlru"][:2] == ["--radix-eviction-policy", "tlru"]
    assert flags["mine"] == ["--page-size", "4"]
    with pytest.raises(ValueError, match="--flags: 'mine' is not NAME=FLAGS"):
        serve_bench.policy_flags(serve_bench.parse(["--flags", "mine"]))


def test_a_mooncake_sample_has_the_formats_fields_and_growing_chats():
    rows = mooncake_sample(40, seed=1)
    assert rows == mooncake_sample(40, seed=1)
    assert [row["timestamp"] for row in rows] == sorted(row["timestamp"] for row in rows)
    prompts = [tuple(row["hash_ids"]) for row in rows]
    grown = [p for i, p in enumerate(prompts) if any(p[: len(q)] == q for q in prompts[:i])]
    assert len(grown) > 5
