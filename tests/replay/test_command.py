import json

import pytest

from scout_sglang.replay.__main__ import main, measure, parse_capacities
from scout_sglang.replay.command_line import parser
from scout_sglang.replay.describe import TraceFacts
from scout_sglang.replay.engine import Result
from scout_sglang.replay.report import verdict

FACTS = TraceFacts(
    sessions=1,
    calls=1,
    agents=1,
    prompt_tokens=100,
    output_tokens=1,
    prompt_median=100,
    prompt_p90=100,
    longest=101,
    footprint=100,
    anchor_share=0.17,
    live_sessions=1.0,
    id_share=0.62,
    r_session=None,
    r_global=None,
)


def result(policy, hits, failed=0):
    return Result(
        policy, 1024, 16, 0, calls=100, failed_calls=failed, prompt_tokens=1000, hit_tokens=hits
    )


def test_the_command_writes_json_and_a_plot(tmp_path, capsys):
    out, image = tmp_path / "o.json", tmp_path / "o.png"
    what = ["synthetic:mix24?sessions=20", "--policies", "lru,scout,belady"]
    assert main([*what, "--capacity", "8000,50%", "--json", str(out), "--plot", str(image)]) == 0
    report = json.loads(out.read_text())
    assert report["trace"]["agents"] == 24
    assert {(r["policy"], r["valid"]) for r in report["results"]} >= {
        ("lru", True),
        ("scout", True),
    }
    assert all(0 < r["hit_rate"] < 1 for r in report["results"])
    assert image.read_bytes().startswith(b"\x89PNG")
    assert "scout would recompute" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["synthetic:nothing"], "synthetic:nothing is unknown"),
        (["synthetic:mix24?sessions=2", "--policies", "best"], "unknown 'best'; accepted: lru"),
        (["synthetic:mix24?sessions=2", "--capacity", "lots"], "'lots' must be a number"),
        (["synthetic:mix24?sessions=2", "--config", "lru=7"], "POLICY=JSON"),
        (["nowhere.jsonl"], "nowhere.jsonl: cannot be read"),
    ],
)
def test_a_wrong_argument_ends_in_one_clear_line(argv, complaint, capsys):
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert error.startswith("replay: error: ")
    assert error.count("\n") == 1
    assert complaint in error


def test_a_trace_can_be_cut_after_some_sessions():
    args = parser().parse_args(["_", "--policies", "lru", "--max-sessions", "3"])
    measured = measure("synthetic:mix24?sessions=20", args)
    assert measured.facts.sessions == 3
    assert measured.results[0].calls == measured.facts.calls


def test_capacities_are_whole_pages_of_tokens_or_of_the_footprint():
    assert parse_capacities("1000,25%", 4000, 16) == [992, 992]


def test_the_verdict_names_saving_shared_share_and_ids():
    text = verdict(FACTS, [result("lru", 500), result("scout", 655)])
    assert text == (
        "scout would recompute 31 % fewer prompt tokens than lru at 1,024 tokens; 17 % of prompt "
        "tokens are in prefixes that sessions share; 62 % of calls carry a session id."
    )


def test_the_verdict_admits_a_loss():
    assert "recompute 10 % more" in verdict(FACTS, [result("lru", 500), result("scout", 450)])


def test_the_verdict_refuses_to_judge_when_calls_were_not_admitted():
    assert "too few to judge" in verdict(FACTS, [result("lru", 500, 2), result("scout", 655)])
