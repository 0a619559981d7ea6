from __future__ import annotations

from radix_policy import tags
from radix_policy.call import Dispatch, NodeKind


def call(session: int, agent: int, number: int, anchor: int = 100, labelled: bool = True):
    return Dispatch(0, session, agent, number, anchor, labelled)


def test_a_node_born_beyond_the_prompt_is_output() -> None:
    assert tags.born(call(1, 5, 1, anchor=0), 10, 12, prompt=10).kind is NodeKind.OUTPUT
    assert tags.born(call(1, 5, 1, anchor=0), 9, 12, prompt=10).kind is NodeKind.PROMPT


def test_the_owners_next_call_makes_a_node_spine_and_the_same_call_does_not() -> None:
    tag = tags.born(call(1, 5, 1, anchor=0), 0, 10, 10)
    tags.touch(tag, call(1, 5, 1, anchor=0), owner=1, end=10)
    assert tag.kind is NodeKind.PROMPT
    tags.touch(tag, call(1, 5, 2, anchor=0), owner=1, end=10)
    assert (tag.kind, tag.number) == (NodeKind.SPINE, 2)


def test_a_second_session_makes_a_node_shared_by_both_agents() -> None:
    tag = tags.born(call(1, 5, 1, anchor=0), 0, 10, 10)
    tags.touch(tag, call(2, 3, 2), owner=1, end=10)
    assert tag.shared
    assert tag.node_class().agents == (3, 5)


def test_beyond_the_anchor_an_inferred_stranger_takes_over_and_the_next_one_shares() -> None:
    tag = tags.born(call(1, 5, 1), 0, 1000, 1000)
    tags.touch(tag, call(2, 6, 2, labelled=False), owner=1, end=1000)
    assert (tag.session, tag.agents) == (2, (6,))
    tags.touch(tag, call(3, 6, 3, labelled=False), owner=2, end=1000)
    assert tag.shared


def test_merged_sessions_do_not_share_a_node_with_themselves() -> None:
    tag = tags.born(call(1, 5, 1, anchor=0), 0, 10, 10)
    tags.touch(tag, call(2, 5, 2, anchor=0), owner=2, end=10)
    assert tag.session == 2 and not tag.shared


def test_the_upper_half_of_a_split_is_its_own_mark() -> None:
    tag = tags.born(call(1, 5, 1, anchor=0), 0, 10, 10)
    upper = tags.split(tag)
    tags.touch(upper, call(2, 5, 2), owner=1, end=5)
    assert upper.shared and not tag.shared


def test_what_lies_within_a_known_anchor_is_shared_from_the_beginning() -> None:
    assert tags.born(call(1, 5, 1, anchor=100), 0, 100, prompt=300).shared
    assert not tags.born(call(1, 5, 1, anchor=100), 100, 300, prompt=300).shared


def test_an_anchor_that_is_learned_later_is_shared_at_the_owners_next_call() -> None:
    tag = tags.born(call(1, 5, 1, anchor=0), 0, 90, prompt=300)
    tags.touch(tag, call(1, 5, 2, anchor=100), owner=1, end=90)
    assert tag.shared
