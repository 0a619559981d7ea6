"""Idle moments in the lab: warm-ups help where memory is tight, and do nothing where they can't."""

from __future__ import annotations

import functools

import pytest

from scout_sglang.replay import presets
from scout_sglang.replay.describe import describe
from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.policies import Setting, build
from scout_sglang.replay.synthetic import trace
from scout_sglang.replay.timing import schedule

PAGE = 16


def run(name: str, capacity: int, **options) -> Result:
    timing, _ = presets.preset_for(f"synthetic:{name}")
    events = functools.partial(schedule, trace(name), timing, 0)
    facts = describe(events, PAGE)
    setting = Setting(
        policy=options.pop("policy", "scout"),
        capacity=capacity,
        page_size=PAGE,
        max_tokens=facts.longest + PAGE,
        footprint=facts.footprint,
        events=events,
        **options,
    )
    return replay(build(setting), events(), Result("", capacity, PAGE, 0), facts.calls // 6)


def test_where_memory_is_tight_warm_ups_find_more_and_where_it_is_not_they_change_nothing():
    tight, loose = ("mix24?sessions=80", 10_000), ("selector?sessions=40", 400_000)
    off, on = (run(*tight, idle_share=0.3, warmup=warm) for warm in (False, True))
    assert on.hit_rate > off.hit_rate + 0.01
    assert off.warmed_tokens == 0 < on.warmed_tokens < 0.1 * on.prompt_tokens
    off, on = (run(*loose, idle_share=0.3, warmup=warm) for warm in (False, True))
    assert on.hit_rate == pytest.approx(off.hit_rate, abs=0.001)
    assert on.warmed_tokens < 0.001 * on.prompt_tokens


def test_where_everyone_may_come_next_less_than_one_percent_of_prefill_are_warm_ups():
    assert run("random?sessions=80", 6_512, idle_share=0.3).warmed_share < 0.01


def test_without_idle_moments_nothing_is_warmed_and_other_policies_take_none():
    assert run("mix24?sessions=20", 10_000, idle_share=0.0).warmed_tokens == 0
    assert run("mix24?sessions=20", 10_000, idle_share=1.0, policy="lru").warmed_tokens == 0
