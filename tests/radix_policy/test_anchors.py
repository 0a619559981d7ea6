from __future__ import annotations

import numpy as np
import pytest

from evals.identity_quality import measure
from evals.mixes import MIXES, Client, Writer, applications
from radix_policy import trie
from radix_policy.anchors import AnchorIndex
from radix_policy.config import IdentityConfig
from radix_policy.hashing import rolling


def agents_of(client: Client, count: int = 1, sessions: int = 25, **kwargs):
    """Quality with sessions known, so that only the agents are inferred."""
    return measure(applications([client] * count, sessions, seed=1), live=8, labels=True, **kwargs)


def test_four_applications_behind_one_48_token_header_are_four_sets_of_agents() -> None:
    quality, pairs = agents_of(Client(agents=4, header=48), count=4)
    assert quality.v == pytest.approx(1.0)
    assert quality.agents == quality.agents_true == len({true for true, _ in pairs}) == 16


def test_a_preamble_shared_by_the_agents_of_an_application_does_not_hide_them() -> None:
    assert agents_of(Client(preamble=300), count=2)[0].v > 0.98


def test_a_task_inside_the_system_text_does_not_split_the_agent() -> None:
    assert agents_of(Client(embed_task=True))[0].v > 0.98


def test_a_user_name_before_the_system_text_does_not_hide_the_agent() -> None:
    assert agents_of(Client(early=12))[0].v > 0.95


def test_a_new_date_before_the_system_text_does_not_make_new_agents() -> None:
    assert agents_of(Client(early=12, date_every=20), sessions=80)[0].v > 0.9


def test_a_tool_list_that_grows_does_not_split_the_agent() -> None:
    assert agents_of(Client(tools=12))[0].v > 0.95


def test_tools_in_another_order_do_not_split_the_agent() -> None:
    assert agents_of(Client(tools=5, shuffle_tools=True))[0].v > 0.98


def test_agents_that_differ_in_a_name_only_are_told_apart() -> None:
    assert agents_of(Client(templated=True))[0].v > 0.98


def test_two_applications_that_share_agents_share_their_ids() -> None:
    quality, _ = measure(MIXES["shared agents"](0)[:50], live=8, labels=True)
    assert quality.v > 0.98


def test_one_chat_prompt_is_one_agent_whatever_the_users_write() -> None:
    assert agents_of(Client(agents=1), sessions=40)[0].agents == 1


def test_documents_sent_one_by_one_are_one_agent() -> None:
    chat, batch = Client(agents=1, turns=6), Client(agents=1, turns=1, stateless=True)
    quality, _ = measure(applications([chat, batch, batch], 30, seed=1), live=8, labels=True)
    assert quality.v > 0.98


def test_a_worker_whose_history_begins_anew_at_every_call_is_one_agent() -> None:
    quality, _ = agents_of(Client(managed=True), count=2, sessions=40)
    assert quality.v > 0.99
    assert quality.agents == quality.agents_true == 12


def test_an_accepted_agent_keeps_its_id() -> None:
    index, writer = AnchorIndex(4096), Writer(0)
    header, one, other = writer.text(48), writer.text(200), writer.text(200)
    seen: dict[int, list[int]] = {0: [], 1: []}
    for session in range(40):
        for step in range(6):
            which = step % 2 if session % 3 else int(step > 2)
            tokens = np.array(header + (one, other)[which] + writer.text(60), dtype=np.int32)
            H = rolling(tokens)
            seen[which].append(index.observe(index.locate(H), H, session))
    for ids in seen.values():
        assert len(set(ids[60:])) == 1
    assert seen[0][-1] != seen[1][-1]


def test_agents_of_many_sessions_that_call_in_strict_turn_are_told_apart() -> None:
    index, writer = AnchorIndex(4096), Writer(0)
    agents = [writer.text(100) for _ in range(3)]
    for turn in range(8):
        found: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
        for session in range(300):
            which = (session + turn) % 3
            H = rolling(np.array(agents[which] + writer.text(40), dtype=np.int32))
            found[which].add(index.observe(index.locate(H), H, session))
    assert [len(ids) for ids in found.values()] == [1, 1, 1]
    assert len(set.union(*found.values())) == 3


def test_what_nodes_remember_of_sessions_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(trie, "_SESSIONS_PER_NODE", 50)
    monkeypatch.setattr(trie, "_MOST_USES", 400)
    monkeypatch.setattr(trie, "_FEW_SESSIONS", 5)
    index, rng = AnchorIndex(256), np.random.default_rng(0)
    anchors = rng.integers(0, 30_000, (30, 64), dtype=np.int32)
    for session in range(2000):
        tail = rng.integers(0, 30_000, 20, dtype=np.int32)
        H = rolling(np.concatenate([anchors[session % 30], tail]))
        index.observe(index.locate(H), H, session)
    held = [len(node.used or ()) for node in nodes_of(index._trie.root)]
    assert max(held) <= 50
    assert sum(held) == index._trie.uses <= 400 + 5 * len(held)


def nodes_of(node: trie.Node) -> list[trie.Node]:
    return [node, *(below for child in node.children.values() for below in nodes_of(child))]


def test_a_flood_of_prompts_keeps_the_index_bounded_and_its_agents_known() -> None:
    index, rng = AnchorIndex(1024), np.random.default_rng(0)
    team = applications([Client(agents=3)], 15, seed=0)
    known: dict[str, int] = {}
    for session, calls in enumerate(team):
        for call in calls:
            H = rolling(call.prompt)
            known[call.agent] = index.observe(index.locate(H), H, session)
    for session in range(1000, 4000):
        H = rolling(rng.integers(0, 30_000, 100, dtype=np.int32))
        index.observe(index.locate(H), H, session)
        if session % 50 == 0:
            call = team[0][session // 50 % len(team[0])]
            H = rolling(call.prompt)
            assert index.observe(index.locate(H), H, 0) == known[call.agent]
    assert index.size <= 1024


def test_a_prompt_shorter_than_the_first_boundary_has_an_agent() -> None:
    index, H = AnchorIndex(64), rolling(np.array([1, 2, 3], dtype=np.int32))
    assert index.observe(index.locate(H), H, 0) == 0


def test_agents_in_use_are_bounded() -> None:
    config = IdentityConfig(max_agents=5)
    _, pairs = agents_of(Client(agents=12), config=config)
    assert pairs
