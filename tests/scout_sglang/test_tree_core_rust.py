"""The policy on SGLang's Rust tree core: the victims of the Python core, and no poisoned mutex."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sglang.srt.mem_cache.radix_cache import RadixKey

from evals import soak
from radix_policy.call import NodeKind
from radix_policy.reuse import PRIOR, ReuseRatios
from scout_sglang import faults
from scout_sglang.replay.request import token_array
from scout_sglang.tree_core_python import ScoutTreeCore
from scout_sglang.tree_core_rust import RustScoutCore
from tests.scout_sglang.lab import PAGES, Lab, Program, evict, random_steps, span, steps
from tests.server.plugins.scout_testing import ON_RUST, POINTS, make_breakable


def rust(capacity: int, page: int = 1, **config) -> Lab:
    lab = Lab("scout", capacity, page, core="rust", **config)
    assert isinstance(lab.core, RustScoutCore)
    return lab


def python(capacity: int, page: int = 1, **config) -> Lab:
    lab = Lab("scout", capacity, page, core="python", **config)
    assert isinstance(lab.core, ScoutTreeCore)
    return lab


def leaves(lab: Lab) -> list[tuple]:
    """Depth, last token and class of every leaf, on either core."""
    if isinstance(lab.core, ScoutTreeCore):
        found = [
            (len(path), path[-1], node.scout_tag.node_class())
            for path, node in lab.nodes()
            if not node.children
        ]
        return sorted(found)
    found = []
    for node, mark in lab.core.records.items():
        at = lab.core.nodes.victim(node)
        if not at.children:
            last = np.frombuffer(mark.tail, np.int32)[-1].item()
            found.append((at.end, last, mark.tag.node_class()))
    return sorted(found)


# -- against the Python core -------------------------------------------------------------


@pytest.fixture(scope="module", autouse=True)
def splits_that_are_no_access():
    """To SGLang's Python core a split is an access of the lower half, too; that breaks ties."""
    split_node, touch_node = ScoutTreeCore._split_node, ScoutTreeCore._touch_node
    last = {}

    def touch(self, node):
        last.clear()
        last[node] = node.last_access_time
        touch_node(self, node)

    def split(self, key, child, split_len):
        before = last.get(child, child.last_access_time)
        result = split_node(self, key, child, split_len)
        child.last_access_time = before
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScoutTreeCore, "_touch_node", touch)
        patch.setattr(ScoutTreeCore, "_split_node", split)
        yield


@given(PAGES, st.booleans(), st.booleans(), steps)
@settings(max_examples=60, deadline=None)
def test_leaves_are_classed_as_on_the_python_core(page, labelled, tight, program):
    labs = [build((10 if tight else 400) * 16 * page, page) for build in (python, rust)]
    running = [Program(lab, labelled) for lab in labs]
    for step in program:
        for one in running:
            one.step(*step)
        assert leaves(labs[0]) == leaves(labs[1])


@pytest.fixture(scope="module")
def stale_is_worth_less():
    """What an agent left behind is reused least; a bucket's order of leaves rests on that."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ReuseRatios, "ratio", lambda self, agent, kind: PRIOR[kind])
        yield


@pytest.mark.usefixtures("stale_is_worth_less")
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), PAGES, steps)
@settings(max_examples=60, deadline=None)
def test_the_same_tokens_are_evicted_as_on_the_python_core(sizes, page, program):
    labs = [build(400 * 16 * page, page, guard=False) for build in (python, rust)]
    for lab in labs:
        running = Program(lab, labelled=True)
        for step in program:
            running.step(*step)
        running.end()
    for size in sizes:
        freed = {evict(lab, size * page) for lab in labs}
        assert len(freed) == 1
        assert leaves(labs[0]) == leaves(labs[1])


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize("seed", range(4))
def test_long_programs_hit_as_often_as_on_the_python_core(page, seed):
    hits = []
    for build in (python, rust):
        lab = build(40 * 16, page)
        program = Program(lab, labelled=seed % 2 == 0)
        for step in random_steps(seed, 600):
            program.step(*step)
        program.end()
        lab.check()
        assert lab.evicted > 1000
        hits.append(sum(hit or 0 for hit in program.hits))
    assert hits[1] == pytest.approx(hits[0], rel=0.02)


# -- what must not reach Rust ------------------------------------------------------------


def put_anywhere(lab: Lab, node: int) -> None:
    """Make the policy believe that the node is a leaf, and the first one to evict."""
    from radix_policy.marks import Mark

    mark = lab.core.records.setdefault(node, Mark(0))
    lab.core.buckets.drop(mark)
    mark.tag, mark.last = None, 0
    lab.core.buckets.put(node, mark)


@pytest.mark.parametrize("what", ["inner", "locked", "gone"])
def test_a_victim_that_is_no_unlocked_leaf_does_not_reach_rust(what, counted):
    lab = rust(400, guard=False)
    common = span(0, 20)
    for session in "ab":
        lab.call(session, [*common, *span(100 + ord(session) * 100, 20)], [9], session_id=session)
    lab.queue("c", span(5000, 30), session_id="c")
    lab.admit("c")
    locked = lab.under_way["c"].last_node
    gone = 10_000
    victims = [lab.core.nodes.victim(node) for node in list(lab.core.records)]
    inner = next(victim.parent.id for victim in victims if victim.parent is not None)
    put_anywhere(lab, {"inner": inner, "locked": locked, "gone": gone}[what])
    assert evict(lab, 25) == 25
    assert lab.core.refused == 1
    assert lab.cached(span(5000, 30)) == 30
    lab.check()
    lab.finish("c", [1, 2, 3, 4])
    lab.check()
    assert evict(lab, 10_000) > 0 and lab.cache.evictable_size() == 0
    assert not counted


def test_unchecked_such_a_victim_would_stop_the_core_for_good(monkeypatch):
    lab = rust(400, guard=False, trim=False)
    lab.queue("r", span(0, 30), session_id="a")
    lab.admit("r")
    monkeypatch.setattr(lab.core.nodes, "unlocked", lambda node: True)
    with pytest.raises(BaseException, match="not a D-leaf"):
        evict(lab, 25)
    with pytest.raises(BaseException, match=r"(?i)poison"):
        lab.cache.evictable_size()


def test_a_leaf_passed_over_for_its_lock_can_go_once_it_is_released():
    lab = rust(200, guard=False, trim=False)
    lab.queue("r", span(0, 40), session_id="a")
    lab.admit("r")
    assert evict(lab, 10) == 0
    lab.finish("r", [1, 2, 3, 4])
    assert evict(lab, 43) == 43
    lab.check()


# -- books, faults, recency --------------------------------------------------------------


@given(PAGES, st.booleans(), steps)
@settings(max_examples=60, deadline=None)
def test_books_balance_and_the_tree_is_sound_whatever_happens(page, labelled, program):
    lab = rust(16 * 12, page)
    running = Program(lab, labelled)
    before = dict(faults.FAULTS.counts)
    for step in program:
        running.step(*step)
        lab.check()
    running.end()
    lab.check()
    assert len(lab.calls) == 0
    assert before == faults.FAULTS.counts
    candidates = sum(mark.bucket is not None for mark in lab.core.records.values())
    assert candidates == len(lab.core.buckets)


def test_records_of_nodes_that_are_gone_are_gone():
    lab = rust(40 * 16)
    program = Program(lab, labelled=True)
    for step in random_steps(7, 1500):
        program.step(*step)
    program.end()
    assert lab.evicted > 20_000
    assert all(lab.core.nodes.victim(node) is not None for node in lab.core.records)
    lab.flush()
    assert not lab.core.records and not len(lab.core.buckets)


def hits_of(lab: Lab, seed: int) -> list[int | None]:
    program = Program(lab, labelled=True)
    for step in random_steps(seed, 400):
        program.step(*step)
    program.end()
    lab.check()
    assert lab.evicted > 1000
    return program.hits


@pytest.mark.parametrize("page", [1, 16])
def test_victims_are_those_of_lru_while_the_bucket_of_regret_is_empty(page, monkeypatch):
    expected = hits_of(Lab("lru", 16 * 16, page), seed=page)
    lab = rust(16 * 16, page)
    monkeypatch.setattr(type(lab.scout.guard), "beta", 1.0)
    assert hits_of(lab, seed=page) == expected


def test_a_score_that_fails_leaves_the_walk_to_lru(monkeypatch, counted):
    def fail(*_: object) -> float:
        raise RuntimeError("injected")

    expected = hits_of(Lab("lru", 16 * 16), seed=3)
    lab = rust(16 * 16)
    monkeypatch.setattr(lab.scout, "priority", fail)
    assert hits_of(lab, seed=3) == expected
    assert set(counted) <= {"score", "walk"} and counted


@pytest.mark.parametrize(
    "point", sorted({**POINTS, **ON_RUST}.keys() - {"radix_policy.scout:Scout.state"})
)
def test_calls_go_on_while_one_of_our_functions_fails(point, monkeypatch, counted):
    make_breakable(point, lambda: point, monkeypatch.setattr)
    lab = rust(16 * 16)
    program = Program(lab, labelled=True)
    for step in random_steps(3, 150):
        program.step(*step)
        lab.check()
    program.end()
    lab.check()
    assert lab.evicted > 1000
    assert len(lab.calls) == 0
    assert counted and set(counted) <= {**POINTS, **ON_RUST}[point]


def test_leaves_that_a_fault_left_without_a_mark_are_found_again(monkeypatch, counted):
    lab = rust(400, guard=False)
    with monkeypatch.context() as broken:
        broken.setattr(lab.core, "_added", None)
        lab.call("r0", span(0, 40), [9], session_id="a")
    assert counted == {"insert": 1}
    lab.call("r1", span(100, 40), [9], session_id="b")
    evict(lab, 40)
    assert lab.cached(span(0, 40)) == 0
    assert lab.cached(span(100, 40)) == 40
    assert not lab.core._missing


# -- kinds, trims ------------------------------------------------------------------------


@pytest.mark.parametrize(("page", "prompt", "output"), [(1, 8, 4), (16, 40, 24)])
def test_an_output_goes_before_its_prompt_and_hands_its_mark_up(page, prompt, output):
    lab = rust(64 * page, page, guard=False)
    lab.call("r", span(0, prompt), span(500, output), session_id="a")
    assert [cls.kind for *_, cls in leaves(lab)] == [NodeKind.OUTPUT]
    aligned, end = prompt // page * page, (prompt + output - 1) // page * page
    evict(lab, end - aligned)
    assert lab.cached(span(0, prompt)) == aligned
    assert [cls.kind for *_, cls in leaves(lab)] == [NodeKind.PROMPT]


@given(PAGES, st.lists(st.integers(2, 12), min_size=1, max_size=4), st.integers(1, 400))
@settings(max_examples=40, deadline=None)
def test_an_eviction_frees_the_shortfall_in_whole_pages_and_no_more(page, sizes, shortfall):
    lab = rust(64 * page, page, guard=False)
    for number, pages in enumerate(sizes):
        lab.call(f"r{number}", span(1000 * number, pages * page), [7], session_id=f"s{number}")
    wanted = min(shortfall, sum(sizes) * page)
    assert evict(lab, wanted) == -(-wanted // page) * page
    lab.check()


def test_trims_stay_within_their_namespace():
    lab = rust(400, guard=False)
    prompt = span(0, 40)
    spaces = [(None, None), ("adapter", None), (None, "salt"), ("adapter", "salt")]
    for number, (extra_key, salt) in enumerate(spaces):
        fields = {"extra_key": extra_key, "cache_salt": salt, "session_id": "a"}
        assert lab.call(f"r{number}", prompt, [9], **fields) == 0
    left = 40 * len(spaces)
    while left > 0:
        left -= evict(lab, 7)
        lab.check()
        ids = token_array(np.array(prompt))
        keys = [RadixKey(ids, extra_key, cache_salt=salt) for extra_key, salt in spaces]
        assert sum(lab.core.match_full_device_prefix(key)[0] for key in keys) == left


def test_a_soak_lets_nothing_through_that_must_stay():
    seen = soak.run(calls=450, page_size=16, seed=1, every=50)["seen"]
    assert all(seen[f"{what} refused"] for what in soak.INJECTED)


# -- which core --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "config", "env", "core", "why"),
    [
        ("scout", {"core": "rust"}, None, RustScoutCore, "SGLang's own default"),
        ("scout", {"core": "python"}, None, ScoutTreeCore, "asked for"),
        ("scout", {"core": "auto"}, None, RustScoutCore, "SGLang's own default"),
        ("scout", {"core": "auto"}, "python", ScoutTreeCore, "asks for it"),
        ("cachescout", {"core": "auto"}, None, ScoutTreeCore, "age and size"),
    ],
)
def test_the_log_says_which_core_runs_and_why(policy, config, env, core, why, monkeypatch, caplog):
    if env:
        monkeypatch.setenv("SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND", env)
    caplog.set_level(logging.INFO)
    assert type(Lab(policy, 100, **config).core) is core
    assert any("tree_core=scout-" in line and why in line for line in caplog.messages)
