"""Formats that log single calls: Mooncake, Chat Completions, SGLang's request log."""

import json

import pytest

from scout_sglang.replay.convert import convert
from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.formats.detect import reader_for
from scout_sglang.replay.formats.fields import Options
from scout_sglang.replay.policies import Setting, build
from scout_sglang.replay.timing import Timing, schedule
from scout_sglang.replay.trace import TraceError


def write(path, *lines):
    path.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )
    return path


def read(path, **options):
    chosen = Options(**options)
    return list(reader_for(path, chosen)(path, chosen))


def mooncake(time=0, size=700, blocks=(1, 2), written=5):
    return {
        "timestamp": time,
        "input_length": size,
        "output_length": written,
        "hash_ids": list(blocks),
    }


def chat(*messages, **fields):
    said = [{"role": role, "content": content} for role, content in messages]
    return {"messages": said, **fields}


def finished(rid, ids, out, at, latency=1.0, **fields):
    return {
        "timestamp": f"2026-01-01T00:00:{at:09.6f}",
        "event": "request.finished",
        "rid": rid,
        "obj": {"input_ids": ids, "sampling_params": {}, **fields},
        "out": {"output_ids": out, "meta_info": {"e2e_latency": latency, "cached_tokens": 3}},
    }


# Mooncake


def test_equal_hash_ids_are_equal_blocks_and_the_last_one_is_cut(tmp_path):
    path = write(tmp_path / "m.jsonl", mooncake(), mooncake(1500, 1024, (1, 3)))
    first, second = read(path)
    a, b = first.prompt(first.calls[0]), second.prompt(second.calls[0])
    assert (len(a), len(b)) == (700, 1024)
    assert (a[:512] == b[:512]).all()
    assert (a[512:] != b[512:700]).any()
    assert (second.calls[0].time, second.calls[0].has_session) == (1.5, False)
    assert len(first.output(first.calls[0])) == 5


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        (mooncake(-5), "'timestamp' runs backwards"),
        (mooncake(size=2000), "'input_length' is 2000"),
        (mooncake(blocks=("x",)), "'hash_ids' must be a list of block numbers"),
        (mooncake(written=-1), "'output_length' must not be negative"),
        ({"timestamp": 9, "hash_ids": [1]}, "'input_length' is missing"),
    ],
)
def test_a_malformed_mooncake_line_is_named_or_skipped(tmp_path, line, complaint):
    path = write(tmp_path / "m.jsonl", mooncake(), line)
    with pytest.raises(TraceError, match=r"m\.jsonl:2: ") as caught:
        read(path)
    assert complaint in str(caught.value)
    assert len(read(path, lenient=True)) == 1


@pytest.mark.parametrize("policy", ["lru", "scout", "cachescout", "belady", "infinite"])
def test_a_mooncake_trace_runs_with_its_own_times(tmp_path, policy):
    lines = [mooncake(1000 * n, 1000, (1, 2 + n % 3)) for n in range(12)]
    sessions = read(write(tmp_path / "m.jsonl", *lines))
    events = list(schedule(sessions, Timing(), 0))
    setting = Setting(policy, 4096, 16, 2048, 8192, lambda: iter(events))
    result = replay(build(setting), events, Result(policy, 4096, 16, 0, hits=[]))
    assert result.hits[0] == 0
    assert set(result.hits[4:]) == {992}


# Chat Completions


def test_the_next_turn_begins_with_the_last_prompt_and_its_answer(tmp_path):
    asked = ("system", "Be brief."), ("user", "Who are you?")
    turns = [
        chat(*asked, response="A clerk.", session_id="s"),
        chat(*asked, ("assistant", "A clerk."), ("user", "Of what?"), session_id="s"),
    ]
    [session] = read(write(tmp_path / "c.jsonl", *turns))
    first, second = session.calls
    seen = [*session.prompt(first), *session.output(first)]
    assert session.prompt(second).tolist()[: len(seen)] == seen
    assert second.gap == "human"


def test_every_id_channel_of_a_chat_request_is_read(tmp_path):
    label = {"custom_params": {"scout": {"agent": "critic", "session": "labelled"}}}
    lines = [
        chat(("user", "a"), session_id="body"),
        chat(("user", "a"), conversation_id="conversation"),
        {"request": chat(("user", "a"), **label)},
        chat(("user", "a"), headers={"x-smg-routing-key": "key"}),
    ]
    sessions = read(write(tmp_path / "c.jsonl", *lines))
    assert [s.name for s in sessions[:3]] == ["body", "conversation", "labelled"]
    assert sessions[2].calls[0].agent == "critic"
    assert (sessions[3].calls[0].routing_key, sessions[3].calls[0].has_session) == ("key", False)


def test_chat_calls_of_one_session_are_ordered_by_time(tmp_path):
    lines = [
        chat(("user", "second"), session_id="s", time=20),
        chat(("tool", "first"), session_id="s", time="1970-01-01T00:00:10Z"),
    ]
    [session] = read(write(tmp_path / "c.jsonl", *lines))
    assert [call.time for call in session.calls] == [10, 20]
    assert [call.gap for call in session.calls] == ["start", "human"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"messages": []}, "'messages' must be a list of objects"),
        (chat(("user", "a"), time="noon"), "'time' must be seconds or ISO 8601"),
        (chat(("user", "a"), response=[1]), "'response' must be text or an object"),
    ],
)
def test_a_malformed_chat_line_is_named(tmp_path, line, complaint):
    path = write(tmp_path / "c.jsonl", chat(("user", "a")), line)
    with pytest.raises(TraceError, match=complaint):
        read(path)


# SGLang's request log


def test_a_server_log_gives_ids_lengths_and_times_in_order_of_arrival(tmp_path):
    log = write(
        tmp_path / "host_0.log",
        '[2026-01-01 00:00:00] {"event": "request.received", "rid": "x"}',
        finished("HEALTH_CHECK_1", [1], [2], 3),
        "[2026-01-01 00:00:05] " + json.dumps(finished("b", [1, 2, 4], [7], 5, session_id="s")),
        finished("a", [1, 2, 3], [9, 9], 6, latency=4.0, session_id="s", extra_key="tenant"),
    )
    [session] = read(log)
    late, early = session.calls[1], session.calls[0]
    assert session.prompt(early).tolist() == [1, 2, 3]
    assert late.time - early.time == pytest.approx(2.0)
    assert (early.duration, early.cached, early.namespace) == (4.0, 3, ("tenant", None))


def test_a_log_without_token_ids_says_how_to_log_them(tmp_path):
    line = finished("a", [1], [2], 1)
    del line["obj"]["input_ids"]
    with pytest.raises(TraceError, match="--log-requests-level 3"):
        read(write(tmp_path / "l.log", line))


def test_equal_prompts_of_two_namespaces_share_nothing(tmp_path):
    ids = list(range(1, 65))
    log = write(
        tmp_path / "l.log",
        *(finished(f"r{n}", ids, [5], 10 * n + 1, cache_salt=f"salt{n % 2}") for n in range(4)),
    )
    for policy in ("lru", "scout", "belady", "infinite"):
        events = list(schedule(read(log), Timing(), 0))
        setting = Setting(policy, 1024, 16, 128, 1024, lambda events=events: iter(events))
        result = replay(build(setting), events, Result(policy, 1024, 16, 0, hits=[]))
        assert result.hits == [0, 0, 48, 48]


# Conversion


def test_a_converted_trace_replays_like_its_source(tmp_path):
    log = write(
        tmp_path / "l.log",
        *(
            finished(f"r{n}", [*range(1, 50 + 20 * n)], [5] * n, 9 * n + 1, session_id="s")
            for n in range(4)
        ),
    )
    source = read(log)
    for anonymise, name in ((False, "t.jsonl.zst"), (True, "t.jsonl.gz"), (True, "t.jsonl")):
        assert convert("log", source, tmp_path / name, anonymise) == 1
        [copy] = read(tmp_path / name)
        lengths = [len(copy.prompt(call)) for call in copy.calls]
        assert lengths == [len(source[0].prompt(call)) for call in source[0].calls]
        assert [call.time for call in copy.calls] == [call.time for call in source[0].calls]
        first, last = copy.prompt(copy.calls[0]), copy.prompt(copy.calls[-1])
        assert (first == last[: len(first)]).all()


def test_anonymising_leaves_no_token_name_or_salt_readable(tmp_path):
    log = write(
        tmp_path / "l.log",
        finished("r", [101, 102, 103, 104], [105], 1, session_id="bob", cache_salt="secret"),
    )
    convert("bobs log", read(log), tmp_path / "t.jsonl", anonymise=True)
    text = (tmp_path / "t.jsonl").read_text()
    assert not any(word in text for word in ("bob", "secret"))
    [copy] = read(tmp_path / "t.jsonl")
    assert copy.prompt(copy.calls[0]).tolist() != [101, 102, 103, 104]
