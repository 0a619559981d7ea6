"""Marks where calls end, handed up, against tags on every node that a call passes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_policy import tags
from radix_policy.call import Dispatch, NodeKind
from radix_policy.marks import Mark, inherit

ENDS = (40, 100, 160, 220)
Calls = list[tuple[int, int, int]]


class Path:
    """Nodes below each other; a call uses the first few. Tagged in both ways."""

    def __init__(self, anchor: int, labelled: bool) -> None:
        self.anchor = anchor
        self.labelled = labelled
        self.tags: dict[int, tags.Tag] = {}
        self.marks: dict[int, Mark] = {}
        self.calls = 0

    def call(self, session: int, agent: int, last: int) -> None:
        self.calls += 1
        call = Dispatch(0, session, agent, self.calls, self.anchor, self.labelled)
        prompt = ENDS[last]
        for node in range(last + 1):
            if node in self.tags:
                tags.touch(self.tags[node], call, self.tags[node].session, ENDS[node])
            else:
                self.tags[node] = tags.born(call, start(node), ENDS[node], prompt)
        mark = self.marks.setdefault(last, Mark(0))
        mark.last = self.calls
        if mark.tag is None:
            mark.claim(call, start(last), prompt, prompt)
        else:
            owner = mark.tag.session
            tags.touch(mark.tag, call, owner, prompt)
            mark.touched(call, owner)

    def agree(self) -> bool:
        """Evict from the bottom up: are the classes of the leaves the same?"""
        for node in sorted(self.tags, reverse=True):
            mark = self.marks[node]
            if mark.tag is None or mark.tag.node_class() != self.tags[node].node_class():
                return False
            if node:
                upper = self.marks.setdefault(node - 1, Mark(0))
                inherit(upper, mark, start(node - 1), ENDS[node - 1], lambda _, session: session)
        return True


def start(node: int) -> int:
    return ENDS[node - 1] if node else 0


CALLS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=7
)


@given(CALLS, st.sampled_from([0, 30, 40, 90]))
@settings(max_examples=300, deadline=None)
def test_a_leaf_is_classed_as_if_every_call_had_tagged_its_whole_path(calls: Calls, anchor: int):
    path = Path(anchor, labelled=True)
    for call in calls:
        path.call(*call)
    assert path.agree()


@given(CALLS, st.sampled_from([0, 30, 40, 90]))
@settings(max_examples=200, deadline=None)
def test_so_it_is_without_labels_while_one_session_owns_the_path(calls: Calls, anchor: int):
    path = Path(anchor, labelled=False)
    for _, agent, last in calls:
        path.call(0, agent, last)
    assert path.agree()


def test_among_strangers_it_is_so_nine_times_in_ten_at_least():
    rng = random.Random(0)
    agreed = 0
    for _ in range(1000):
        path = Path(rng.choice((0, 30, 40, 90)), labelled=False)
        for _ in range(rng.randint(1, 5)):
            path.call(rng.randrange(3), rng.randrange(2), rng.randrange(4))
        agreed += path.agree()
    assert agreed >= 900


@pytest.mark.parametrize(("start", "kind"), [(10, NodeKind.PROMPT), (30, NodeKind.OUTPUT)])
def test_above_a_piece_of_output_lies_prompt_or_more_output(start: int, kind: NodeKind):
    lower, upper = Mark(2), Mark(0)
    lower.claim(Dispatch(0, 1, 2, 3, 0, True), start=40, end=60, prompt=20)
    inherit(upper, lower, start, 40, lambda _, session: session)
    assert upper.tag is not None and upper.tag.kind == kind
    assert upper.last == 2
