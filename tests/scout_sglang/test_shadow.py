"""Shadow mode: lru serves, and what the policy would have hit is known."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from evals import demo, demo_replay
from evals.app.footprint import as_paths, working_set
from evals.app.team import load_team
from evals.app.workload import build_workload
from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.policies import Setting, build
from scout_sglang.shadow import Shadow
from scout_sglang.tree_core import set_mode
from tests.scout_sglang.lab import PAGES, Lab, Program, random_steps, span, steps


@pytest.fixture(scope="module")
def demo_calls():
    """The demo's calls on its default routing, without a model, and the sizes that go with them."""
    options = demo.parse([])
    workload = build_workload(
        load_team(),
        seed=1,
        routing="selector",
        sessions=options.sessions,
        sessions_live=options.sessions_live,
    )
    tokenizer = demo.Tokenizer("embedded")
    prompts = demo.dry_prompts(workload, tokenizer, options.max_tokens)
    answer = tokenizer.encode(" ".join(["answer"] * options.max_tokens))
    needed = working_set(as_paths(prompts), [call.session for call in workload.calls])
    events = list(demo_replay.calls(workload, prompts, answer, options.in_flight))
    return events, demo.cache_size(prompts, needed, options), max(map(len, prompts)) + len(answer)


def run(demo_calls, policy, **config):
    events, capacity, longest = demo_calls
    setting = Setting(policy, capacity, 1, longest, capacity, lambda: iter(events), config=config)
    built = build(setting)
    return built, replay(built, events, Result(policy, capacity, 1, 0, hits=[]))


def test_it_hits_as_lru_does_and_foretells_what_switching_on_saves(demo_calls):
    _, lru = run(demo_calls, "lru")
    _, on = run(demo_calls, "scout")
    shadowed, served = run(demo_calls, "scout", mode="shadow")
    assert served.hits == lru.hits
    saved = lru.recomputed_tokens - on.recomputed_tokens
    foretold = shadowed.calls.shadow.state()
    assert foretold["lru_hit_tokens"] == lru.hit_tokens
    assert foretold["saved_tokens"] == pytest.approx(saved, rel=0.02)
    assert saved > 0.05 * lru.recomputed_tokens


@given(PAGES, steps)
@settings(max_examples=30, deadline=None)
def test_on_the_python_core_the_same_tokens_stay_cached_as_under_lru(page, program):
    labs = [Lab("lru", 30 * 16, page), Lab("scout", 30 * 16, page, mode="shadow")]
    running = [Program(lab, labelled=True) for lab in labs]
    for step in program:
        for one in running:
            one.step(*step)
        assert labs[0].leaves() == labs[1].leaves()


@pytest.mark.parametrize("core", ["python", "rust"])
def test_the_mode_can_change_while_calls_run(core, counted):
    lab = Lab("scout", 40 * 16, core=core)
    program = Program(lab, labelled=True)
    for number, step in enumerate(random_steps(3, 400)):
        program.step(*step)
        if number % 37 == 0:
            set_mode(lab.cache, "shadow" if lab.calls.mode == "on" else "on")
    program.end()
    lab.check()
    assert lab.evicted > 1000
    assert counted == {}


def test_a_shadow_cast_beside_a_warm_cache_counts_once_it_has_filled():
    lab = Lab("scout", 400, core="rust")
    for number in range(5):
        lab.call(f"a{number}", span(1000 * number, 90), [1, 2], session_id=str(number))
    set_mode(lab.cache, "shadow")
    lab.call("b", span(9000, 90), [1, 2], session_id="b")
    assert lab.calls.shadow.state()["calls"] == 0
    for number in range(5):
        lab.call(f"c{number}", span(10_000 + 1000 * number, 90), [1, 2], session_id=f"c{number}")
    assert 0 < lab.calls.shadow.state()["calls"] < 6


def test_a_sampled_shadow_follows_some_sessions_and_those_wholly():
    lab = Lab("scout", 2000, core="rust", mode="shadow", shadow_sample=0.5)
    followed = []
    for number in range(60):
        before = lab.calls.shadow.state()["calls"]
        lab.call(f"r{number}", span(number % 20 * 100, 40), [1], session_id=str(number % 20))
        followed.append(lab.calls.shadow.state()["calls"] - before)
    assert followed[:20] == followed[20:40] == followed[40:]
    assert 4 < sum(followed[:20]) < 16


def test_a_fault_in_the_shadow_ends_the_estimate_and_nothing_else(counted, monkeypatch):
    lab = Lab("scout", 400, core="rust", mode="shadow")
    lab.call("a", span(0, 50), [1, 2])

    def fail(*_):
        raise RuntimeError("injected")

    monkeypatch.setattr(Shadow, "_hold", fail)
    assert lab.call("b", span(0, 50), [1, 2]) == 49
    assert counted == {"shadow": 1}
    assert lab.calls.shadow is None
    assert lab.call("c", span(0, 50), [1, 2]) == 49
    lab.check()
