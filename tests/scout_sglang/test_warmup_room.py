"""SGLang's memory as the planner sees it: true, on both tree cores, and untouched by looking."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_policy.peek import Peek
from radix_policy.prefix_store import Prefix
from radix_policy.tags import SHARED
from scout_sglang import warmup_room
from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.ours import build
from scout_sglang.replay.request import LabRequest
from scout_sglang.warmup_room import LEAVES, CacheRoom
from tests.scout_sglang.lab import evict, span

CAPACITY = 512
calls = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(1, 60)), min_size=1, max_size=25
)
cores = pytest.mark.parametrize("core", ["rust", "python"])


class Calls:
    """A cache of ours in which agents' calls come one after another."""

    def __init__(self, core: str, page_size: int = 1, **config):
        setting = Setting(
            policy="scout",
            capacity=CAPACITY,
            page_size=page_size,
            max_tokens=CAPACITY,
            footprint=CAPACITY,
            events=lambda: iter(()),
            config={"core": core, **config},
        )
        self.policy = build(setting)
        self.cache = self.policy.cache
        self.scout = self.policy.calls.scout
        self.room = CacheRoom(self.cache)
        self.count = 0

    def call(self, session: int, agent: int, fresh: int) -> int | None:
        self.count += 1
        prompt = span(100 * agent, 40) + span(1000 + 100 * session, fresh)
        req = LabRequest(f"r{self.count}", np.array(prompt, dtype=np.int32))
        req.session_id = f"s{session}"
        label = {"agent": str(agent)}
        req.sampling_params.custom_params = {"scout": label}
        self.policy.on_arrival(None, req)
        hit = self.policy.admit(req, 4)
        if hit is None:
            self.policy.on_abort(None, req)
            return None
        req.finish(np.array(span(9000 + 10 * self.count, 4), dtype=np.int32))
        self.policy.release(req)
        return hit

    def warm(self, tokens: list[int], agent: int) -> None:
        piece = Prefix(0, agent, SHARED, 0, len(tokens), np.array(tokens, dtype=np.int32))
        req = LabRequest("piece", piece.tokens)
        self.policy.calls.warm("piece", piece)
        assert self.policy.admit(req, 0) is not None
        req.finished_reason = "length"
        self.policy.release(req)

    def victims(self) -> list[tuple[float, int]]:
        return list(self.room.victims(Peek(self.scout).worth))


@cores
@settings(deadline=None, max_examples=25)
@given(calls)
def test_looking_changes_nothing_that_is_decided_later(core, program):
    one, other = Calls(core), Calls(core)
    for step in program:
        assert one.call(*step) == other.call(*step)
        one.victims()
        one.scout.act(one.room)
        one.room.resident((), np.arange(60, dtype=np.int32))
    assert one.policy.evicted_tokens == other.policy.evicted_tokens
    assert one.scout.snapshot() == other.scout.snapshot()
    one.cache.sanity_check()


@pytest.mark.parametrize(("core", "leaves"), [("rust", LEAVES), ("python", LEAVES), ("python", 3)])
@settings(deadline=None, max_examples=25)
@given(calls, st.integers(1, 120))
def test_what_is_evicted_for_an_allocation_is_worth_no_more_than_was_foreseen(
    core, leaves, program, tokens
):
    lab = Calls(core, guard=False)
    for step in program:
        lab.call(*step)
    held, highest = 0, 0.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warmup_room, "LEAVES", leaves)
        for value, size in lab.victims():
            highest, held = max(highest, value), held + size
            if held >= tokens:
                break
    peek = Peek(lab.scout)
    gone = []
    core_of = lab.cache.tree_core
    name = "_evicted" if core == "rust" else "evict_device_leaf"
    goes = getattr(core_of, name)

    def seen(victim, *args):
        if core == "rust":
            tag = core_of.records[victim.id].tag
        else:
            tag = getattr(core_of.node_by_id(victim), "scout_tag", None)
        gone.append(peek.worth(tag))
        return goes(victim, *args)

    setattr(core_of, name, seen)
    freed = evict(lab, tokens)
    if held >= tokens:
        assert freed >= tokens
        # Order is by quarter octaves of the value.
        assert max(gone) <= highest * 2**0.25 + 1e-9


@cores
def test_residency_is_counted_in_the_namespace_that_is_asked_about(core):
    lab = Calls(core)
    lab.call(0, 1, 20)
    ids = np.array(span(100, 40) + [7] * 20, dtype=np.int32)
    assert lab.room.resident((None, None, None), ids) == 40
    assert lab.room.resident((None, "salt", None), ids) == 0
    assert lab.room.resident(("key", None, None), ids) == 0


@cores
def test_a_warm_up_is_its_agents_and_outlives_what_is_worth_less(core):
    lab = Calls(core, guard=False)
    for session in range(5):
        for turn in range(4):
            lab.call(session, turn % 2, 10 + turn)
    lab.cache.reset()
    lab.cache.req_to_token_pool.clear()
    lab.policy.allocator.clear()
    agent = next(p.agent for p in lab.scout.anchors if p.tokens[0] == 100)
    lab.warm(span(100, 40), agent)
    before = lab.scout.state()["dispatches"]
    assert lab.scout.ledger.sent == 40
    values = [value for value, _ in lab.victims()]
    assert values == [Peek(lab.scout).worth(tag) for tag in tags_of(lab)] and values[0] > 0
    lab.call(9, 1, 20)
    assert lab.scout.state()["dispatches"] == before + 1
    assert (lab.scout.ledger.used, lab.scout.ledger.resident) == (40, 0)


def tags_of(lab):
    core = lab.cache.tree_core
    if hasattr(core, "buckets"):
        return [record.tag for record in core.records.values()]
    return [leaf.scout_tag for leaf in core.evictable_device_leaves]
