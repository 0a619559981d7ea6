"""The load harness's figures, without a server."""

import pytest

from evals import serve_bench
from evals.serving.bench_tool import run_of as run_of_tool
from evals.serving.report import factor, report, sustainable_rate
from evals.serving.runs import Place, Record, RunLog
from evals.serving.samples import Run, Sample, ratios, summarise

SETUP = {"model": "tiny", "ids": True}


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
    assert found["ttft_p95_ms"]["ratio"] == pytest.approx(107 / 207, abs=1e-4)
    assert "tokens_per_second" not in ratios([run_of(2)], [run_of(1)])
    assert found["tokens_per_second"]["ratio"] == pytest.approx(15.4 / 15.2, abs=1e-4)


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
    cold = serve_bench.policy_flags(serve_bench.parse(["--policies", "scout-cold"]))["scout-cold"]
    assert cold[-1] == '{"warmup": false}'
    with pytest.raises(ValueError, match="--flags: 'mine' is not NAME=FLAGS"):
        serve_bench.policy_flags(serve_bench.parse(["--flags", "mine"]))


def test_the_factor_between_sustainable_rates_has_an_interval_or_is_unknown():
    pairs = {1.0: [(run_of(1), run_of(1))], 2.0: [(run_of(5), run_of(3))]}
    found = factor(pairs, budget_ms=250)
    assert found["factor"] == pytest.approx(1.733 / 1.366, abs=1e-2)
    assert found["low"] < found["factor"] < found["high"]
    assert factor(pairs, budget_ms=50) is None
    assert factor(pairs, budget_ms=400) is None


def test_a_report_pairs_the_repeats_that_both_policies_have():
    kept = [("lru", 0, 2), ("lru", 1, 2), ("scout", 1, 1)]
    records = [
        Record(Place("app", 0.5, repeat, policy), run_of(scale), {"faults": repeat})
        for policy, repeat, scale in kept
    ]
    [found] = report(records, ["lru", "scout", "slru"], [200])
    [point] = found["points"]
    assert list(point["policies"]) == ["lru", "scout"]
    assert point["policies"]["lru"]["repeats"] == [0, 1]
    assert point["policies"]["scout"]["books"] == {"faults": 1}
    assert point["policies"]["scout"]["ratios"]["recomputed_tokens"]["ratio"] == 0.5
    assert found["sustainable"] == []


def test_runs_are_kept_line_by_line_and_one_cut_short_is_made_again(tmp_path):
    path = tmp_path / "runs.jsonl"
    log = RunLog(path, SETUP)
    records = [Record(Place("app", 0.5, n, "scout"), run_of(1), {"faults": 0}) for n in (0, 1, 2)]
    for record in records[:2]:
        log.add(record)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 20)
    log = RunLog(path, SETUP)
    assert list(log.records.values()) == records[:1]
    log.add(records[2])
    assert RunLog(path, SETUP).records.keys() == {records[0].place, records[2].place}
    with pytest.raises(ValueError, match="another set-up"):
        RunLog(path, {**SETUP, "ids": False})


def test_sglangs_own_tool_is_read_request_by_request_and_a_failed_one_is_an_error():
    figures = {
        "ttfts": [0.1, 0.3],
        "itls": [[0.01, 0.02], []],
        "input_lens": [50, 60],
        "output_lens": [3, 1],
        "cached_tokens": [0, 40],
        "errors": ["", ""],
        "duration": 4.0,
    }
    run = run_of_tool(figures)
    assert run.seconds == 4.0
    assert summarise(run)["recomputed_tokens"] == 70
    assert run.samples[0].latency_ms == pytest.approx(130)
    with pytest.raises(RuntimeError, match="1 requests failed, first: refused"):
        run_of_tool({**figures, "errors": ["", "refused"]})
