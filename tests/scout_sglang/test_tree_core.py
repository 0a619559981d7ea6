"""The Python tree core inside SGLang's real cache: victims, tags, trims, and sound books."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_policy.call import NodeKind
from scout_sglang import faults
from tests.scout_sglang.lab import PAGES, Lab, Program, evict, random_steps, span, steps
from tests.server.plugins.scout_testing import ON_PYTHON, POINTS, make_breakable

ROOT = Path(__file__).parents[2]


# -- trimming ----------------------------------------------------------------------------


@given(PAGES, st.lists(st.integers(2, 12), min_size=1, max_size=4), st.integers(1, 400))
@settings(max_examples=40, deadline=None)
def test_an_eviction_frees_the_shortfall_in_whole_pages_and_no_more(page, sizes, shortfall):
    lab = Lab("scout", 64 * page, page, guard=False)
    for number, pages in enumerate(sizes):
        prompt = span(1000 * number, pages * page)
        lab.call(f"r{number}", prompt, [7], session_id=f"s{number}")
    held = sum(sizes) * page
    wanted = min(shortfall, held)
    assert evict(lab, wanted) == -(-wanted // page) * page
    lab.check()
    assert sum(len(node.key) for _, node in lab.nodes()) == lab.cache.evictable_size()


def test_what_a_trim_leaves_is_the_beginning_of_the_prompt_with_its_tag():
    lab = Lab("scout", 64, guard=False)
    lab.call("r", span(0, 40), [7], session_id="a")
    tag = lab.node(*span(0, 40)).scout_tag.node_class()
    evict(lab, 10)
    assert lab.leaves() == [tuple(span(0, 30))]
    assert lab.node(*span(0, 30)).scout_tag.node_class() == tag


@pytest.mark.parametrize("trim", [True, False])
def test_a_whole_leaf_goes_where_trimming_is_off_or_recency_alone_decides(trim):
    lab = Lab("scout", 64, trim=trim)
    lab.call("r", span(0, 40), [7], session_id="a")
    if trim:
        lab.scout.guard.bucket = -1.0
    assert evict(lab, 10) == 40


# -- tags --------------------------------------------------------------------------------


def kinds(lab: Lab) -> dict[int, NodeKind]:
    """Kind of every node by the depth at which it ends."""
    return {len(path): node.scout_tag.kind for path, node in lab.nodes()}


@pytest.mark.parametrize(("page", "prompt", "output"), [(1, 8, 4), (16, 40, 24)])
def test_prompt_and_output_are_nodes_of_their_own_kind(page, prompt, output):
    lab = Lab("scout", 64 * page, page)
    lab.call("r", span(0, prompt), span(500, output), session_id="a")
    aligned, end = prompt // page * page, (prompt + output - 1) // page * page
    assert kinds(lab) == {aligned: NodeKind.PROMPT, end: NodeKind.OUTPUT}


def test_what_a_session_uses_again_becomes_its_spine():
    lab = Lab("scout", 128)
    lab.call("r0", span(0, 8), span(500, 4), session_id="a")
    lab.call("r1", [*span(0, 8), *span(500, 4), *span(20, 8)], [9], session_id="a")
    assert kinds(lab) == {8: NodeKind.SPINE, 11: NodeKind.SPINE, 20: NodeKind.PROMPT}


def test_a_split_leaves_the_lower_half_private_and_the_common_half_shared():
    lab = Lab("scout", 128)
    common, tails = span(0, 10), {"a": span(100, 10), "b": span(200, 10)}
    for session, tail in tails.items():
        lab.call(session, [*common, *tail], [9], session_id=session, label={"agent": session})
    own = [lab.node(*common, *tail).scout_tag for tail in tails.values()]
    assert not any(tag.shared or tag.kind != NodeKind.PROMPT for tag in own)
    assert own[0].session != own[1].session
    shared = lab.node(*common).scout_tag
    assert shared.shared
    assert shared.agents == own[0].agents + own[1].agents


def test_a_history_that_its_agent_left_behind_is_worth_less_than_the_one_it_went_on_with():
    lab = Lab("scout", 256, guard=False)
    label = {"agent": "x"}
    lab.call("r0", [*span(0, 10), *span(100, 10)], [9], session_id="a", label=label)
    left = lab.node(*span(0, 10), *span(100, 10)).scout_tag
    before = lab.scout.score(left.node_class())
    lab.call("r1", [*span(0, 10), *span(200, 10)], [9], session_id="a", label=label)
    went_on = lab.node(*span(0, 10), *span(200, 10)).scout_tag
    assert lab.scout.score(left.node_class()) < 0.5 * lab.scout.score(went_on.node_class())
    assert lab.scout.score(left.node_class()) < 0.5 * before


# -- victims -----------------------------------------------------------------------------


@pytest.mark.parametrize(("waits", "victim"), [(True, "b"), (False, "a")])
def test_the_prefix_of_a_waiting_call_is_kept(waits, victim):
    lab = Lab("scout", 100, guard=False, trim=False)
    first, second = span(0, 40), span(100, 40)
    label = {"agent": "x"}
    lab.call("r0", first, [9], session_id="a", label=label)
    lab.call("r1", second, [9], session_id="b", label=label)
    if waits:
        lab.queue("r2", [*first, *span(50, 5)], session_id="a", label=label)
    evict(lab, 30)
    assert (lab.cached(first), lab.cached(second)) == ((0, 40) if victim == "a" else (40, 0))


@given(st.sampled_from(["scout", "cachescout"]), PAGES, st.booleans(), steps)
@settings(max_examples=60, deadline=None)
def test_books_balance_and_the_tree_is_sound_whatever_happens(policy, page, labelled, program):
    lab = Lab(policy, 16 * 12, page)
    running = Program(lab, labelled)
    before = dict(faults.FAULTS.counts)
    for step in program:
        running.step(*step)
        lab.check()
    running.end()
    lab.check()
    assert len(lab.calls) == 0
    assert before == faults.FAULTS.counts


def test_two_processes_choose_the_same_victims():
    code = (
        "import json, sys; from tests.scout_sglang.lab import transcript;"
        "cases = [(p, g, s) for p in ('scout', 'cachescout') for g in (1, 16) for s in (1, 2)];"
        "json.dump([transcript(*case) for case in cases], sys.stdout)"
    )
    running = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for seed in ("1", "2")
    ]
    first, second = (json.loads(process.communicate(timeout=300)[0]) for process in running)
    assert first == second
    assert min(case["evicted"] for case in first) > 1000


# -- faults ------------------------------------------------------------------------------


def run(lab: Lab, seed: int) -> list[object]:
    """A random program: what each call found cached, and what was cached after each step.

    Every session has an agent of its own, so that no anchor is learned: where one is, its end
    also ends a node, and there are other leaves to choose from than under lru.
    """
    program = Program(lab, labelled=True)
    seen: list[object] = []
    for action, session, _, length in random_steps(seed, 150):
        program.step(action, session, session, length)
        lab.check()
        seen.append(lab.leaves())
    program.end()
    return [*program.hits, *seen]


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize(
    "point", ["radix_policy.scout:Scout.priority", "radix_policy.guard:Guard.beta"]
)
def test_victims_are_those_of_lru_while_the_score_fails(point, page, monkeypatch, counted):
    make_breakable(point, lambda: point, monkeypatch.setattr)
    lru = Lab("lru", 16 * 16, page)
    expected = run(lru, seed=page)
    assert lru.evicted > 1000
    assert run(Lab("scout", 16 * 16, page), seed=page) == expected
    assert counted and set(counted) <= POINTS[point]


def test_a_score_that_fails_in_the_middle_of_a_walk_leaves_the_rest_to_lru(monkeypatch, counted):
    lab = Lab("scout", 200, guard=False, trim=False)
    lab.call("r0", span(100, 20), [9], session_id="oldest")
    lab.call("r1", span(0, 20), [9], session_id="grown")
    lab.call("r2", span(0, 40), [9], session_id="grown")
    lab.call("r3", span(200, 20), [9], session_id="newest")
    # The newest tokens of session 1 go first; its spine, a leaf by then, cannot be scored.
    values = {(1, NodeKind.PROMPT): 1.0, (2, NodeKind.PROMPT): 4.0, (0, NodeKind.PROMPT): 5.0}
    score = lambda scout, tag, size: values[tag.session, tag.kind]  # noqa: E731
    monkeypatch.setattr(type(lab.scout), "priority", score)
    evict(lab, 40)
    assert lab.leaves() == [tuple(span(0, 20)), tuple(span(200, 20))]
    assert counted == {"score": 1}
    lab.check()


@pytest.mark.parametrize(
    "point", sorted({**POINTS, **ON_PYTHON}.keys() - {"radix_policy.scout:Scout.state"})
)
def test_calls_go_on_while_one_of_our_functions_fails(point, monkeypatch, counted):
    make_breakable(point, lambda: point, monkeypatch.setattr)
    lab = Lab("scout", 16 * 16)
    program = Program(lab, labelled=True)
    for step in random_steps(3, 150):
        program.step(*step)
        lab.check()
    program.end()
    lab.check()
    assert lab.evicted > 1000
    assert len(lab.calls) == 0
    assert counted and set(counted) <= {**POINTS, **ON_PYTHON}[point]
