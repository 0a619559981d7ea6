"""A sample in the public format of Mooncake's conversation trace, under every policy."""

from __future__ import annotations

import json

import pytest

from evals.workloads.mooncake import BLOCK, write_sample
from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.formats.fields import Options
from scout_sglang.replay.formats.mooncake import read
from scout_sglang.replay.policies import BUILDERS, Setting, build
from scout_sglang.replay.timing import Timing, schedule


def hit_rate(path, policy: str, capacity: int) -> float:
    sessions = list(read(path, Options()))
    events = list(schedule(sessions, Timing(), 0))
    setting = Setting(policy, capacity, 16, 40_000, 3_000_000, lambda: iter(events))
    result = replay(build(setting), events, Result(policy, capacity, 16, 0), len(events) // 7)
    assert result.calls == len(sessions) and not result.failed_calls
    return result.hit_rate


def test_the_sample_has_what_the_format_demands_and_is_the_same_every_time(tmp_path):
    path = write_sample(tmp_path / "one.jsonl", 300)
    assert path.read_bytes() == write_sample(tmp_path / "two.jsonl", 300).read_bytes()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 300
    assert all(line["hash_ids"][0] == 0 for line in lines if line["input_length"] >= BLOCK)
    repeated = [n for line in lines for n in line["hash_ids"][1:]]
    assert len(set(repeated)) < 0.7 * len(repeated)
    assert len(list(read(path, Options()))) == 300


@pytest.mark.parametrize("policy", sorted(BUILDERS))
def test_every_policy_runs_on_the_sample(tmp_path, policy):
    path = write_sample(tmp_path / "mooncake_sample.jsonl", 30)
    assert 0.0 < hit_rate(path, policy, 100_000) < 0.6


@pytest.mark.parametrize("capacity", [300_000, 600_000])
def test_conversations_whose_outputs_are_never_found_again_gain_or_stay(tmp_path, capacity):
    path = write_sample(tmp_path / "mooncake_sample.jsonl", 600)
    assert hit_rate(path, "scout", capacity) >= hit_rate(path, "lru", capacity) - 0.003
