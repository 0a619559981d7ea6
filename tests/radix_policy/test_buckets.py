"""Leaves in buckets: the same victims as a scan of all leaves, and no more look-ups than needed."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from radix_policy.blend import BlendedWalk
from radix_policy.buckets import REFRESHED, Buckets, Leaf
from radix_policy.call import NodeKind
from radix_policy.tags import Tag


class World:
    """Leaves of sessions whose values change, beside the buckets that have to keep up."""

    def __init__(self) -> None:
        self.records: dict[int, Leaf] = {}
        self.value: dict[int, int] = {}
        self.stale_before: dict[int, int] = {}
        self.clock = 0
        self.epoch = 0
        self.looked_up = 0
        self.buckets = Buckets(self.records, self.order)

    def order(self, tag: Tag) -> float:
        self.looked_up += 1
        stale = tag.number < self.stale_before.get(tag.session, 0)
        return self.value.get(tag.session, 0) + tag.kind - 100.0 * stale

    def put(self, node: int, session: int, kind: int) -> None:
        self.clock += 1
        leaf = self.records.setdefault(node, Leaf(None, 0))
        leaf.last = self.clock
        if leaf.bucket is None or leaf.tag is None or leaf.tag.session != session:
            leaf.tag = Tag(0, session, (0,), NodeKind(kind))
        leaf.tag.number = self.clock
        self.buckets.put(node, leaf)

    def change(self, session: int, value: int) -> list[tuple[int, int]]:
        """The session's value changes; who has to be told of it (a rise is noticed anyway)."""
        self.epoch += 1
        fell = value < self.value.get(session, 0)
        self.value[session] = value
        return [(0, session)] if fell else []

    def scan(self) -> int | None:
        """The least leaf by (order, last access, id), looking at all."""
        candidates = [(n, leaf) for n, leaf in self.records.items() if leaf.bucket is not None]
        key = lambda c: (self.order(c[1].tag), c[1].last, c[0])  # noqa: E731
        return min(candidates, key=key)[0] if candidates else None

    def evict(self) -> int | None:
        found = self.buckets.first()
        if found is None:
            return None
        node, leaf = found
        self.buckets.drop(leaf)
        del self.records[node]
        return node


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 11), st.integers(0, 4), st.integers(0, 3)),
    max_size=120,
)


@given(STEPS)
@settings(max_examples=150, deadline=None)
def test_victims_are_those_of_a_scan_of_all_leaves(steps):
    world = World()
    for action, node, session, number in steps:
        moved: list[tuple[int, int]] = []
        if action <= 1:
            world.put(node, session, number)
        elif action == 2 and node in world.records:
            world.buckets.drop(world.records[node])
        elif action == 3:
            moved = world.change(session, 10 * node)
        elif action == 4:
            world.epoch += 1
            world.stale_before[session] = world.clock
            moved = [(0, session)]
        world.buckets.refresh(world.epoch, moved)
        least = world.scan()
        found = world.buckets.first()
        assert (found and found[0]) == least
        if number == 0:
            assert world.evict() == least


@given(st.permutations(range(30)))
@settings(max_examples=20, deadline=None)
def test_a_leaf_without_a_tag_goes_first_and_the_longest_unused_of_those(order):
    world = World()
    for node in order:
        world.clock += 1
        world.records[node] = Leaf(None, world.clock)
        world.buckets.put(node, world.records[node])
    world.put(99, 1, 0)
    assert [world.evict() for _ in range(31)] == [*order, 99]


def test_the_values_looked_up_in_a_dispatch_do_not_grow_with_the_leaves():
    counts = []
    for leaves in (1_000, 4_000):
        world = World()
        for node in range(leaves):
            world.put(node, node // 2, 0)
        world.value = {session: session % 97 for session in range(leaves)}
        world.buckets.refresh(1, [])
        world.evict()
        world.looked_up = 0
        for epoch in range(2, 12):
            world.buckets.refresh(epoch, [(0, 5)])
            world.evict()
        counts.append(world.looked_up)
    assert max(counts) <= 10 * (REFRESHED + 8)


def test_a_class_is_forgotten_with_its_last_leaf():
    world = World()
    for round_ in range(50):
        for node in range(20):
            world.put(node, 100 * round_ + node, 0)
    assert world.buckets.classes == len(world.buckets) == 20
    while world.evict() is not None:
        pass
    assert world.buckets.classes == 0
    assert not world.buckets._of_session


def test_what_is_outdated_does_not_pile_up():
    world = World()
    for step in range(20_000):
        world.put(step % 10, step % 3, 0)
        if step % 7 == 0:
            world.evict()
    held = sum(len(bucket.heap) for bucket in world.buckets) + len(world.buckets._first)
    assert held < 400


@given(STEPS, st.floats(0.01, 0.99))
@settings(max_examples=60, deadline=None)
def test_a_blended_walk_takes_the_least_blend_of_the_ranks_of_all_leaves(steps, beta):
    world = World()
    for action, node, session, number in steps:
        world.put(12 * action + node, session, number)
    world.buckets.refresh(1, [])
    leaves = list(world.records.items())
    orders = np.sort([world.order(leaf.tag) for _, leaf in leaves])
    recencies = np.sort([leaf.last for _, leaf in leaves])

    def blend(leaf: Leaf) -> float:
        by_value = np.searchsorted(orders, world.order(leaf.tag)) / len(leaves)
        return (1 - beta) * by_value + beta * np.searchsorted(recencies, leaf.last) / len(leaves)

    walk = BlendedWalk(world.buckets, beta)
    for node, leaf in sorted(leaves, key=lambda pair: (blend(pair[1]), pair[1].last)):
        found = walk.first()
        assert found is not None and found[0] == node
        world.buckets.drop(leaf)
    assert walk.first() is None
