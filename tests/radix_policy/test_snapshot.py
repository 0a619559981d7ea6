"""State on disk: whole or refused, and nothing in it that could tell a prompt."""

from __future__ import annotations

import io
import json
import os
import stat

import numpy as np
import pytest
from contracts import World, programs, scout, text
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_policy import signatures, snapshot
from radix_policy.call import Call, NodeKind
from radix_policy.config import POLICIES
from radix_policy.hashing import mix, prefix_hashes, rolling, window_keys
from radix_policy.identity import _Agent
from radix_policy.scout import Scout
from radix_policy.snapshot import SnapshotError
from radix_policy.trie import Path, Trie


def learned(policy: str = "scout", named: bool = True, **config) -> Scout:
    """A Scout that has seen some sessions."""
    world = World(scout(policy, **config), named)
    for session in range(6):
        for agent in (0, 1, 2, 0):
            world.step("call", session, agent)
    return world.scout


def archive(data: bytes) -> dict[str, np.ndarray]:
    with np.load(io.BytesIO(data), allow_pickle=False) as members:
        return {name: members[name] for name in members.files}


def with_header(data: bytes, **changed) -> bytes:
    members = archive(data)
    header = json.loads(members["header"].tobytes()) | changed
    members["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    out = io.BytesIO()
    np.savez(out, **members)
    return out.getvalue()


@pytest.mark.parametrize("policy", POLICIES)
@settings(deadline=None, max_examples=20)
@given(programs, st.booleans())
def test_a_restored_state_saves_to_the_same_bytes(policy, program, named):
    world = World(scout(policy), named)
    world.run(program)
    world.quiet()
    data = world.scout.snapshot()
    other = scout(policy)
    other.restore(data)
    assert other.snapshot() == data == world.scout.snapshot()


def test_taking_a_snapshot_changes_no_decision():
    one, other = World(scout("scout")), World(scout("scout"))
    for session in range(30):
        other.scout.snapshot()
        assert one.step("call", session % 6, session % 4) == other.step(
            "call", session % 6, session % 4
        )


# -- refused -------------------------------------------------------------------------------


def refused(data: bytes, why: str, model: str = "", **config) -> None:
    """``data`` is refused for ``why``, and the Scout goes on as an empty one."""
    victim = scout(config.pop("policy", "scout"), **config)
    with pytest.raises(SnapshotError, match=why):
        victim.restore(data, model)
    assert victim.state()["dispatches"] == victim.state()["tenants"] == 0
    assert World(victim).step("call", 0, 0)


WHOLE = learned().snapshot()


@settings(deadline=None, max_examples=40)
@given(st.integers(0, len(WHOLE) - 1))
def test_a_truncated_state_is_refused(length):
    refused(WHOLE[:length], "not a whole state of scout")


@settings(deadline=None, max_examples=60)
@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_a_damaged_state_is_refused_or_the_damage_is_outside_of_what_is_read(place, change):
    damaged = bytearray(WHOLE)
    damaged[place] ^= change
    victim = scout("scout")
    try:
        victim.restore(bytes(damaged))
    except SnapshotError:
        assert victim.state()["tenants"] == 0
    else:
        assert victim.snapshot() == WHOLE


def test_a_foreign_file_is_refused():
    other = io.BytesIO()
    np.savez(other, weights=np.ones(3))
    refused(other.getvalue(), "no header")
    refused(b"#!/bin/sh\n", "not a whole state of scout")
    refused(with_header(WHOLE, format="else"), "another format")


def test_a_file_with_a_pickle_in_it_is_refused_unread():
    members = archive(WHOLE) | {"a0": np.array([print], dtype=object)}
    out = io.BytesIO()
    np.savez(out, **members)
    refused(out.getvalue(), "not a whole state of scout")


def test_a_future_version_is_refused_by_number():
    refused(with_header(WHOLE, version=99), "a state of version 99; this scout reads version 2")


def test_a_state_with_other_fields_is_refused_though_its_version_is_the_same():
    refused(with_header(WHOLE, layout="0"), "another release")


def test_a_state_whose_numbers_mean_something_else_is_refused(monkeypatch):
    monkeypatch.setattr(signatures, "_WIDTH", 9)
    refused(WHOLE, "another release")


def test_a_state_of_another_rule_or_model_is_refused():
    refused(WHOLE, "learned under scout, the policy here is cachescout", policy="cachescout")
    saved = learned().snapshot("llama")
    refused(saved, "learned on model 'llama', this one is 'qwen'", model="qwen")


def test_a_variant_takes_up_what_its_rule_has_learned():
    plain = scout("no-prediction")
    plain.restore(WHOLE)
    assert plain.state()["agents"] == 3


def nodes(trie: Trie) -> None:
    """Branches that three sessions have in common: what is kept."""
    for k in range(60):
        keys = np.arange(9 * k, 9 * k + 3, dtype=np.uint64).tobytes()
        for session in range(3):
            trie.insert(Path(keys, *trie.locate(keys), 0), session)


BEYOND = {
    "max_agents": {
        "agents": lambda identity, value: identity._agents.update({k: _Agent(None) for k in TEN}),
        "labels": lambda identity, value: identity._agent_labels.update({f"l{k}": k for k in TEN}),
        "rows": lambda identity, value: [value.rows.claim(k) for k in TEN],
        "ratios": lambda identity, value: value.reuse._sums.update(
            {(k, NodeKind.PROMPT): [0.5, 1.0] for k in TEN}
        ),
        "calls of a session": lambda identity, value: value.sessions.by_id[3].calls.update(
            dict.fromkeys(TEN, 1)
        ),
    },
    "max_sessions": {
        "linked": lambda identity, value: [identity._sessions.create(1) for _ in TEN],
        "labels": lambda identity, value: identity._session_labels.update(
            {f"s{k}": k for k in TEN}
        ),
        "names": lambda identity, value: identity._label_of.update({k: f"s{k}" for k in TEN}),
        "live": lambda identity, value: [value.sessions.add(k) for k in TEN],
    },
    "max_anchor_nodes": {
        "prefixes": lambda identity, value: nodes(identity._anchors._trie),
        "prefixes found further on": lambda identity, value: nodes(identity._anchors._synced),
    },
}
TEN = range(100, 110)
BOUNDS = {"max_agents": 8, "max_sessions": 8, "max_anchor_nodes": 64}


@pytest.mark.parametrize("limit,table", [(b, t) for b, tables in BEYOND.items() for t in tables])
def test_a_state_with_a_table_beyond_its_bound_is_refused_by_the_bounds_name(limit, table):
    one = learned()
    scout("scout", **BOUNDS).restore(one.snapshot())
    tenant = one._by_number[0]
    BEYOND[limit][table](tenant.identity, tenant.value)
    what = limit.removeprefix("max_")
    refused(one.snapshot(), rf"holds \d+ {what}, {limit} allows \d+ here", **BOUNDS)


def test_more_current_agents_or_tenants_than_configured_are_refused():
    paper = learned("cachescout")
    why = "holds 6 sessions, max_sessions allows 5 here"
    refused(paper.snapshot(), why, policy="cachescout", max_sessions=5)
    two = scout("scout")
    for name in "ab":
        two.observe(Call(text(1, 50), (name,)))
    refused(two.snapshot(), "holds 2 namespaces, max_namespaces allows 1 here", max_namespaces=1)


# -- what it holds -------------------------------------------------------------------------


@pytest.mark.parametrize("warm_start", [0, 1 << 16])
def test_no_token_label_or_hash_of_private_text_is_in_the_file(warm_start):
    tenant = scout("scout", warm_start=warm_start)
    shared, private = text(1, 80), [text(100 + k, 300) for k in range(12)]
    for k, words in enumerate(private):
        prompt = np.concatenate([shared, words])
        label = {"session": f"secret-session-{k}"} if k % 2 else {}
        call = tenant.observe(Call(prompt, ("secret-salt",), **label, routing_key="secret-key"))
        tenant.admit(call)
        tenant.start(call, len(prompt), 0)
        output = text(500 + k, 60)
        tenant.finish(call, np.concatenate([prompt, output]), len(prompt), 60)
    members = archive(tenant.snapshot())
    everything = b"".join(member.tobytes() for member in members.values())
    assert b"secret" not in everything
    held = np.concatenate([m.ravel() for m in members.values() if m.dtype == np.uint64])
    for words in [shared, *private]:
        known = words is shared and warm_start > 0
        assert (words[:8].tobytes() in everything) == known
    for k, words in enumerate(private):
        H = rolling(np.concatenate([shared, words, text(500 + k, 60)]))
        own = np.arange(len(shared) + 1, len(H))
        hashes = [H[own], prefix_hashes(H, own)]
        for width in (8, 16, 32):
            keys = window_keys(H, len(shared), len(H) - 1, width)
            hashes += [keys, mix(keys)]
        hashes = np.concatenate(hashes)
        assert not np.isin(hashes, held).any()
        # Tables keep half of a hash, and a value in place of the other half.
        assert not np.isin(hashes << np.uint64(32), held >> np.uint64(32) << np.uint64(32)).any()
    assert len(held) > 5  # the shared text's


def test_a_prompt_that_is_taken_for_an_agents_is_in_no_file_for_that():
    learned = scout("scout")
    shared = text(1, 200)
    for number in range(60):  # so few prompts are not told apart: they are all of one agent
        serve(learned, np.concatenate([shared, text(100 + number, 60)]), f"s{number % 9}")
    stranger = text(900, 150)
    for _ in range(3):
        serve(learned, stranger, "stranger")
    everything = b"".join(m.tobytes() for m in archive(learned.snapshot()).values())
    assert shared[:8].tobytes() in everything
    assert stranger[:8].tobytes() not in everything


def serve(learned, prompt, session):
    call = learned.observe(Call(prompt, session=session))
    learned.admit(call)
    learned.start(call, len(prompt), 0)
    output = text(5000, 3)
    learned.finish(call, np.concatenate([prompt, output]), len(prompt), 3)


def test_every_field_is_either_kept_or_left_behind_by_name():
    for policy in POLICIES:
        world = World(scout(policy), labelled=False)
        for session in range(6):
            for agent in (0, 1, 2, 0):
                world.step("call", session, agent)
        waiting, seen = [*world.scout._tenants.values(), world.scout.horizon], set()
        waiting.append(world.scout.guard)
        while waiting:
            x = waiting.pop()
            if isinstance(x, dict):
                waiting += x.values()
            names = {*getattr(x, "__dict__", ()), *getattr(type(x), "__slots__", ())}
            if type(x) in snapshot.KEPT and type(x).__name__ not in ("Trie", "HashMap"):
                declared = {*snapshot.KEPT[type(x)], *snapshot.LEFT.get(type(x), ())}
                assert names - {"__dict__"} <= declared, type(x)
                assert not {*snapshot.KEPT[type(x)]} & {*snapshot.LEFT.get(type(x), ())}
                seen.add(type(x))
                waiting += [getattr(x, name) for name in snapshot.KEPT[type(x)] if name in names]
            elif type(x).__name__ == "Tenant":
                waiting += [x.identity, x.value]
        assert len(seen) > 8


def test_a_tenant_is_known_again_by_its_own_namespace_only():
    one = scout("scout")
    for session in range(4):
        for agent in ("planner", "coder"):
            call = one.observe(Call(text(1, 50), ("acme", None), agent, f"s{session}"))
            one.finish(call, text(1, 60), 50, 10)
    back = scout("scout")
    back.restore(one.snapshot())
    again = back.observe(Call(text(1, 50), ("acme", None), "planner", "s9"))
    assert (again.tenant, again.agent) == (call.tenant, call.agent - 1)
    assert max(back.predict(again).values()) > 0.5
    other = back.observe(Call(text(1, 50), ("acme", "salt"), "planner", "s9"))
    assert other.tenant != again.tenant
    assert back.state()["tenants"] == 2


def test_a_session_that_its_client_names_goes_on_where_it_was():
    one = learned()
    back = scout("scout")
    back.restore(one.snapshot())
    for scout_ in (one, back):
        call = scout_.observe(Call(text(1, 90), ("tenant",), "agent 1", "session 3"))
        assert call.session == 3


def test_calls_under_way_are_not_part_and_a_session_that_was_ending_has_ended():
    world = World(scout("scout"))
    world._arrive(0, 0, ends=True)
    world._arrive(1, 0, ends=False)
    back = scout("scout")
    back.restore(world.scout.snapshot())
    value = back._by_number[0].value
    assert [entry.waiting for entry in value.sessions.by_id.values()] == [[], []]
    assert value.sessions.alive_slots().tolist() == [1]
    for call, prompt, _ in world.under_way:
        back.finish(call, prompt, len(prompt), 0)


def test_the_guards_bucket_is_as_full_in_a_cache_of_another_size():
    one = scout("scout")
    assert one.guard is not None
    one.guard.bucket *= 0.3
    larger = scout("scout", capacity=3 * one.horizon.capacity)
    larger.restore(one.snapshot())
    assert larger.guard is not None
    assert larger.guard.beta == pytest.approx(one.guard.beta) == pytest.approx(0.7)
    assert larger.guard.cap == 3 * one.guard.cap


# -- files ---------------------------------------------------------------------------------


def test_a_file_holds_what_was_written_and_is_its_owners_alone(tmp_path):
    path = tmp_path / "scout.state"
    snapshot.write(path, b"old")
    snapshot.write(path, WHOLE)
    assert snapshot.read(path) == WHOLE
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "scout.state"
    snapshot.write(path, b"old")

    def fails(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fails)
    with pytest.raises(OSError, match="No space"):
        snapshot.write(path, WHOLE)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_missing_file_is_refused_with_the_reason(tmp_path):
    with pytest.raises(SnapshotError, match="No such file"):
        snapshot.read(tmp_path / "none")
