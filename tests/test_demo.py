"""The demo: its workload, its bounds, its numbers, and real runs at a tiny size."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evals import demo
from evals.app import report
from evals.app.client import Settings, request_body
from evals.app.footprint import as_paths, belady_hits, infinite_hits, working_set
from evals.app.routing import ROUTINGS
from evals.app.team import ROLES, load_team
from evals.app.workload import Workload, build_workload
from tests.tiny_model import tiny_model_path

TEAM = load_team()
ROOT = Path(__file__).parent.parent


def _workload(seed: int = 3, routing: str = "pipeline", sessions: int = 9) -> Workload:
    return build_workload(TEAM, seed=seed, routing=routing, sessions=sessions, sessions_live=4)


def _messages(workload: Workload) -> list:
    return [workload.messages(call, ["yes"] * call.turn) for call in workload.calls]


def test_every_system_prompt_has_400_to_1500_tokens():
    tokenizer = demo.Tokenizer("embedded")
    sizes = {role: len(tokenizer.encode(TEAM.prompts[role])) for role in ROLES}
    assert all(400 <= size <= 1500 for size in sizes.values()), sizes


def test_users_ask_at_least_forty_different_things():
    assert len({task.text for task in TEAM.tasks}) >= 40


@pytest.mark.parametrize("routing", ROUTINGS)
def test_equal_seeds_give_equal_requests(routing):
    assert _messages(_workload(1, routing)) == _messages(_workload(1, routing))
    assert _messages(_workload(1, routing)) != _messages(_workload(2, routing))


@pytest.mark.parametrize("routing", ROUTINGS)
def test_turns_come_in_order_and_no_more_sessions_are_live_than_asked_for(routing):
    workload = _workload(routing=routing, sessions=20)
    turns = dict.fromkeys(range(20), 0)
    live = set()
    for call in workload.calls:
        live.add(call.session)
        assert len(live) <= 4
        assert call.turn == turns[call.session]
        turns[call.session] += 1
        if workload.is_last(call):
            live.remove(call.session)
    assert not live
    assert len(workload.calls) == sum(len(session.turns) for session in workload.sessions)


def test_an_agent_sees_its_own_turns_as_assistant_and_those_of_others_with_their_name():
    workload = _workload()
    call = next(call for call in workload.calls if call.turn >= 4)
    session, role = workload.sessions[call.session], workload.role(call)
    messages = workload.messages(call, [f"answer {turn}" for turn in range(call.turn)])
    assert messages[0] == {"role": "system", "content": TEAM.prompts[role]}
    assert messages[1] == {"role": "user", "content": session.task.text}
    for turn, message in zip(session.turns[: call.turn], messages[2::2], strict=True):
        assert message["role"] == ("assistant" if turn.role == role else "user")
        assert message.get("name") == (None if turn.role == role else turn.role)


def test_every_prompt_ends_with_a_user_message():
    assert {messages[-1]["role"] for messages in _messages(_workload())} == {"user"}


def test_an_unknown_routing_is_refused_by_name():
    with pytest.raises(ValueError, match=r"routing must be one of pipeline, .* not 'ring'"):
        _workload(routing="ring")


def test_ids_and_end_labels_are_sent_only_where_asked_for():
    workload = _workload()
    last = next(call for call in workload.calls if workload.is_last(call))
    plain = request_body(workload, last, [], Settings(ids=False))
    assert "session_id" not in plain and "custom_params" not in plain
    labelled = request_body(workload, last, [], Settings(end_labels=True))
    assert labelled["session_id"] == workload.sessions[last.session].id
    assert labelled["custom_params"] == {"scout": {"end_of_session": True}}


def test_the_working_set_is_what_live_sessions_share_and_hold():
    # Two shared tokens, tails of one and two tokens; session 1 is over when 0 sends its second.
    prompts = [[1, 2, 3], [1, 2, 4, 5], [1, 2, 3, 6], [7]]
    assert working_set(as_paths(prompts), [0, 1, 0, 2]) == 2 + 1 + 2


prompts_strategy = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=5), max_size=12)


@given(prompts_strategy, st.integers(0, 12))
def test_belady_saves_at_least_what_lru_saves_and_at_most_what_an_infinite_cache_saves(
    prompts, capacity
):
    paths = as_paths(prompts)
    best = belady_hits(paths, capacity)
    assert _lru_hits(paths, capacity) <= best <= infinite_hits(paths)
    assert belady_hits(paths, sum(map(len, paths))) == infinite_hits(paths)


def _lru_hits(paths: list[list[int]], capacity: int) -> int:
    held: dict[int, None] = {}
    hits = 0
    for path in paths:
        hits += sum(name in held for name in path)
        for name in reversed(path):
            held.pop(name, None)
            held[name] = None
        while len(held) > capacity:
            del held[next(iter(held))]
    return hits


def _summary(recomputed: int, ttft: float) -> report.Summary:
    return {
        "hit_rate": 0.5,
        "prompt_tokens": 1000,
        "recomputed_tokens": recomputed,
        "ttft_ms": {"mean": ttft, "p50": ttft, "p99": ttft},
        "turns_per_second": 1.0,
    }


def test_the_verdict_measures_the_winner_against_lru():
    said = report.verdict({"lru": _summary(500, 100.0), "scout": _summary(400, 90.0)})
    assert said.startswith("scout won: it recomputed 20.0 % fewer prompt tokens than lru")
    assert "10.0 % lower" in said


def test_the_verdict_says_so_when_lru_wins():
    said = report.verdict({"lru": _summary(400, 100.0), "scout": _summary(500, 90.0)})
    assert said.startswith("lru won: it recomputed 20.0 % fewer prompt tokens than scout")
    assert "11.1 % higher" in said


def test_all_stands_for_every_policy():
    assert demo.parse(["--policies", "all"]).policies == list(demo.POLICIES)
    assert demo.parse([]).policies == ["lru", "scout"]


@pytest.mark.server
def test_a_run_writes_the_numbers_of_every_policy_for_equal_requests(tmp_path):
    options = _tiny(tmp_path, "--policies", "lru,scout", "--sessions", "3")
    assert demo.main(options) == 0
    result = json.loads((tmp_path / "demo.json").read_text())
    assert list(result["policies"]) == ["lru", "scout"]
    assert result["seed"] == 1 and result["ids"] is True
    for summary in result["policies"].values():
        assert summary.keys() == _summary(0, 0).keys()
        assert summary["ttft_ms"].keys() == {"mean", "p50", "p99"}
        assert summary["hit_rate"] == pytest.approx(
            1 - summary["recomputed_tokens"] / summary["prompt_tokens"], abs=1e-4
        )
        assert 0 < result["bounds"]["belady"]["recomputed_tokens"] <= summary["recomputed_tokens"]
    lru, scout = (_lines(tmp_path / f"responses-{name}.jsonl") for name in ("lru", "scout"))
    assert [line["messages_sha256"] for line in lru] == [line["messages_sha256"] for line in scout]
    # The demo renders prompts as the server does, else working set and bounds would be wrong.
    tokenizer = demo.Tokenizer(tiny_model_path())
    sent = [tokenizer.render(line["messages"]) for line in _lines(tmp_path / "requests.jsonl")]
    assert [len(prompt) for prompt in sent] == [line["prompt_tokens"] for line in lru]
    assert (tmp_path / "demo.png").stat().st_size > 10_000


@pytest.mark.server
def test_a_server_that_does_not_start_is_shown_with_the_end_of_its_log(tmp_path, capsys):
    options = _tiny(tmp_path, "--policies", "lru", "--server-args=--no-such-flag")
    assert demo.main(options) == 1
    assert "unrecognized arguments: --no-such-flag" in capsys.readouterr().err


@pytest.mark.server
def test_ctrl_c_stops_the_server_too(tmp_path):
    # So many calls that it can't be over before the signal comes.
    more = ["--policies", "lru", "--sessions", "60"]
    command = [sys.executable, "-m", "evals.demo", *_tiny(tmp_path, *more)]
    running = subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,  # every process of the server inherits it: that is how we find them
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        # As from a terminal: a shell's background jobs inherit Ctrl-C ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        log = tmp_path / "logs" / "server-lru.log"
        _wait_for(lambda: log.exists() and "Prefill batch" in log.read_text())
        assert len(_processes_in(tmp_path)) >= 3
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=60)
    finally:
        running.kill()
    assert running.returncode == 130
    assert "stopped, and the server with it" in errors
    assert not _processes_in(tmp_path)


def _tiny(out: Path, *more: str) -> list[str]:
    size = ["--sessions", "3", "--sessions-live", "2", "--model-path", tiny_model_path()]
    return ["--out", str(out), *size, *more]


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _wait_for(condition, seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def _processes_in(folder: Path) -> list[int]:
    """Ids of the running processes whose working directory is the folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (process / "cwd").readlink() == folder:
                found.append(int(process.name))
    return found
