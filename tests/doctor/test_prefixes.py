"""Why prefixes break: each cause is found where it was planted, and nothing where there is none."""

import json

import pytest

from scout_sglang.doctor.__main__ import main
from scout_sglang.doctor.causes import CAUSES
from scout_sglang.doctor.prompts import parts_of_text
from tests.doctor import planted

FORMS = {"chat": planted.chat_log, "server": planted.server_log}


@pytest.fixture(params=FORMS)
def write(request):
    return FORMS[request.param]


def diagnosed(path, capsys, *more):
    status = main(["--prefixes", str(path), "--json", *more])
    return status, json.loads(capsys.readouterr().out)["agents"]


def causes(agents):
    return {cause["cause"] for agent in agents for cause in agent["causes"]}


def test_every_cause_that_is_named_can_be_planted():
    assert set(planted.CAUSES) == {cause.name for cause in CAUSES}


@pytest.mark.parametrize("ids", [True, False], ids=["session ids", "no ids"])
@pytest.mark.parametrize("cause", planted.CAUSES)
def test_a_planted_cause_is_found_and_no_other(cause, ids, write, tmp_path, capsys):
    status, agents = diagnosed(write(tmp_path / "log", cause, ids=ids), capsys)
    assert status == 1
    assert len(agents) == len(planted.TEAM.prompts)
    assert causes(agents) == {cause}


@pytest.mark.parametrize("ids", [True, False], ids=["session ids", "no ids"])
def test_a_clean_log_is_met_with_silence(ids, write, tmp_path, capsys):
    path = write(tmp_path / "log", ids=ids)
    assert main(["--prefixes", str(path)]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "pair", [("date_time", "own_output"), ("id", "tool_order"), ("json_keys", "tool_list")]
)
def test_two_causes_in_one_log_are_both_found(pair, write, tmp_path, capsys):
    assert causes(diagnosed(write(tmp_path / "log", *pair), capsys)[1]) == set(pair)


def test_tokens_add_up_and_the_most_expensive_stands_first(write, tmp_path, capsys):
    _, agents = diagnosed(write(tmp_path / "log", "date_time", "own_output"), capsys)
    cost = [agent["recomputed_tokens"] for agent in agents]
    assert cost == sorted(cost, reverse=True)
    for agent in agents:
        assert 0 < agent["recomputed_tokens"] < agent["prompt_tokens"]
        tokens = [cause["recomputed_tokens"] for cause in agent["causes"]]
        assert tokens == sorted(tokens, reverse=True)
        assert tokens[0] <= agent["recomputed_tokens"]


def test_the_place_of_the_break_is_shown_with_the_text_of_both_prompts(tmp_path, capsys):
    _, agents = diagnosed(planted.server_log(tmp_path / "log", "id"), capsys)
    for agent in agents:
        [cause] = agent["causes"]
        assert cause["before"].endswith("Trace ")
        assert cause["now"][:36] != cause["earlier"][:36]
        assert cause["now"][36:] == cause["earlier"][36:]


def test_a_servers_log_gives_the_exact_token_of_the_first_difference(tmp_path, capsys):
    path = planted.server_log(tmp_path / "log", "id")
    lines = path.read_text().splitlines()
    _, agents = diagnosed(path, capsys)
    for agent in agents:
        [cause] = agent["causes"]
        a, b = (
            json.loads(lines[cause[line] - 1])["obj"]["input_ids"]
            for line in ("line", "earlier_line")
        )
        at = cause["position"]
        assert a[:at] == b[:at] and a[at] != b[at]


def test_calls_of_two_tenants_are_never_compared(tmp_path, capsys):
    path = planted.chat_log(tmp_path / "log", "date_time")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for number, line in enumerate(lines):
        line["request"]["cache_salt"] = f"tenant {number}"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert diagnosed(path, capsys)[0] == 0


def test_a_label_names_the_agent(tmp_path, capsys):
    path = planted.chat_log(tmp_path / "log", "date_time")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        line["request"]["custom_params"] = {"scout": {"agent": "everyone"}}
    path.write_text("\n".join(map(json.dumps, lines)))
    assert [agent["agent"] for agent in diagnosed(path, capsys)[1]] == ["everyone"]


def test_the_report_spells_out_what_a_terminal_would_act_on(tmp_path, capsys):
    prompts = [
        {
            "messages": [
                {"role": "system", "content": f"\x1b[31m {at}:00:00 \x1b]0;x\x07" + "rule. " * 40},
                {"role": "user", "content": "go"},
            ]
        }
        for at in (10, 11)
    ]
    path = tmp_path / "log"
    path.write_text("\n".join(map(json.dumps, prompts)))
    assert main(["--prefixes", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "a date or time" in shown and "\\u001b" in shown
    assert all(sign.isprintable() for sign in shown.replace("\n", ""))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "the file is empty"),
        ('{"hash_ids": [1]}', "no prompt text to look at"),
        ('{"messages": [1]}', "log:1: field 'messages'"),
        ('{"event": "request.finished", "obj": {}, "out": {}}', "--log-requests-level 3"),
        ('{"event": "request.received"}', "no calls in it"),
    ],
)
def test_a_log_that_cannot_be_read_is_an_error_with_status_2(content, complaint, tmp_path, capsys):
    (tmp_path / "log").write_text(content)
    assert main(["--prefixes", str(tmp_path / "log")]) == 2
    assert complaint in capsys.readouterr().err


def test_malformed_lines_are_skipped_and_counted_on_request(tmp_path, capsys):
    path = planted.chat_log(tmp_path / "log")
    path.write_text(path.read_text() + "nonsense\n")
    assert main(["--prefixes", str(path), "--lenient"]) == 0
    assert "1 lines skipped" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    [
        "<|im_start|>system\nA<|im_end|>\n<|im_start|>user\nB<|im_end|>\n<|im_start|>assistant\n",
        "<|start_header_id|>system<|end_header_id|>\n\nA<|eot_id|><|start_header_id|>user"
        "<|end_header_id|>\n\nB<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|system|>\nA<|end|>\n<|user|>\nB<|end|>\n<|assistant|>\n",
    ],
    ids=["ChatML", "Llama 3", "Phi"],
)
def test_a_rendered_prompt_is_cut_at_the_templates_marks(text):
    assert [(part.role, part.text) for part in parts_of_text(text)] == [
        ("system", "A"),
        ("user", "B"),
    ]
