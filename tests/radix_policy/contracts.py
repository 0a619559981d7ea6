"""What every policy must do: random programs over a Scout, and what is seen of it.

A :class:`World` plays the engine: calls arrive, are admitted, pass through nodes that carry tags,
end or are aborted; nodes are split and evicted. Programs are lists of small tuples, so that
hypothesis can shrink them.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from radix_policy import tags, warm_start
from radix_policy.call import Call, Dispatch, NodeKind
from radix_policy.config import parse_config
from radix_policy.scout import Scout
from radix_policy.tags import SHARED, NodeClass

AGENTS, SESSIONS = 5, 6
CAPACITY = 4000

steps = st.tuples(
    st.sampled_from(["call"] * 5 + ["queue", "admit", "finish", "abort", "end", "split", "evict"]),
    st.integers(0, SESSIONS - 1),
    st.integers(0, AGENTS - 1),
)
programs = st.lists(steps, max_size=50)


def scout(policy: str, capacity: int = CAPACITY, **config) -> Scout:
    return Scout(parse_config(policy, config), capacity)


def text(seed: int, size: int) -> np.ndarray:
    """Fixed words: the same for the same seed, no two seeds sharing their first token."""
    rest = np.random.default_rng(seed).integers(0, 30_000, size - 1, dtype=np.int32)
    return np.concatenate([np.array([40_000 + seed], dtype=np.int32), rest])


class Memory:
    """An engine's memory: ``cached`` tokens of everything, ``spare`` ones, and ``leaves``."""

    def __init__(self, cached: int = 0, spare: int = 1 << 20, leaves=(), whole: bool = False):
        self.whole = whole
        self.cached, self.spare, self.leaves = cached, spare, list(leaves)
        self.asked: list[tuple[object, int]] = []

    def resident(self, namespace, tokens) -> int:
        self.asked.append((namespace, len(tokens)))
        return min(self.cached, len(tokens))

    def free(self) -> int:
        return self.spare

    def victims(self, worth):
        return iter(self.leaves)


class World:
    """One Scout and the calls and nodes around it.

    ``labelled``: calls name their agent and session. ``name``: what agent a is called, a
    permutation of the agents. ``start``: number of the first session.
    """

    def __init__(self, scout: Scout, labelled: bool = True, name=tuple(range(AGENTS)), start=0):
        self.scout = scout
        self.labelled = labelled
        self.name = name
        self.under_way: list[tuple[Dispatch, np.ndarray, bool]] = []
        self.nodes: list[tuple[tags.Tag, int]] = []
        self.said: dict[int, int] = {}
        self.start = start
        self.agent_ids: dict[int, int] = {}
        self.turn = 0

    def run(self, program) -> list[object]:
        """What is seen after each step."""
        return [self.step(*step) for step in program]

    def step(self, what: str, session: int, agent: int) -> object:
        if what == "split" or what == "evict":
            self._change_node(what, session)
        elif what in ("call", "queue", "end"):
            self._arrive(session, agent, ends=what == "end")
            if what != "queue":
                self._finish(len(self.under_way) - 1, aborts=False)
        elif self.under_way:
            self._advance(what, session % len(self.under_way))
        return self.seen()

    def quiet(self) -> None:
        """Abort what is under way."""
        while self.under_way:
            self._finish(0, aborts=True)

    def _arrive(self, session: int, agent: int, ends: bool) -> None:
        self.turn += 1
        number = self.start + session
        said = self.said[session] = self.said.get(session, 0) + 7
        prompt = np.concatenate(
            [text(agent, 90), text(1000 * (1 + number) + agent, 20), text(number + 500, said + 1)]
        )
        label = {}
        if self.labelled:
            label = {"agent": f"agent {self.name[agent]}", "session": f"session {number}"}
        call = self.scout.observe(Call(prompt, ("tenant",), **label, end_of_session=ends))
        self.agent_ids[agent] = call.agent
        self.under_way.append((call, prompt, False))

    def _advance(self, what: str, which: int) -> None:
        call, prompt, admitted = self.under_way[which]
        if what == "admit" and not admitted:
            self.scout.admit(call)
            for tag, end in self.nodes:
                if end % AGENTS == call.agent % AGENTS:
                    self.scout.touch(tag, call, end)
            self.nodes.append((tags.born(call, 0, len(prompt), len(prompt)), len(prompt)))
            self.scout.start(call, len(prompt), len(prompt) // 2)
            self.under_way[which] = (call, prompt, True)
        else:
            self._finish(which, aborts=what == "abort")

    def _finish(self, which: int, aborts: bool) -> None:
        if not aborts and not self.under_way[which][2]:
            self._advance("admit", which)
        call, prompt, _ = self.under_way.pop(which)
        if aborts:
            self.scout.abandon(call)
            return
        output = text(7_000_000 + self.start + self.turn, 12)
        end = len(prompt) + 12
        self.nodes.append((tags.born(call, len(prompt), end, len(prompt)), end))
        self.scout.finish(call, np.concatenate([prompt, output]), len(prompt), 40)

    def _change_node(self, what: str, which: int) -> None:
        if not self.nodes:
            return
        if what == "split":
            tag, end = self.nodes[which % len(self.nodes)]
            self.nodes.append((tags.split(tag), end // 2))
        else:
            order = [self.scout.priority(tag, end) for tag, end in self.nodes]
            self.nodes.pop(int(np.argmin(order)))

    # -- what is seen --------------------------------------------------------------------

    def seen(self) -> tuple[object, ...]:
        """Worth and order of every node, and who is expected where."""
        nodes = [
            (self.scout.score(tag.node_class()), self.scout.priority(tag, end))
            for tag, end in self.nodes
        ]
        predictions = [sorted(self.scout.predict(call).items()) for call, *_ in self.under_way]
        return nodes, predictions, self.planned(), self.scout.state()["beta"]

    def planned(self) -> tuple[int, ...] | None:
        """Tenant, agent, session, start and end of what the policy would bring back."""
        plan = self.scout.act(Memory())
        return None if plan is None else (*plan.prefix[:3], plan.start, plan.stop)

    def worths(self) -> dict[tuple[int, int], float]:
        """By agent and kind, whatever its id: shared nodes under kind -1, then private ones."""
        found = {}
        for agent, number in self.agent_ids.items():
            shared = NodeClass(0, SHARED, (number,), NodeKind.PROMPT, 0)
            found[agent, -1] = self.scout.score(shared)
            for session in range(SESSIONS):
                private = NodeClass(0, session, (number,), NodeKind.SPINE, self.scout.clock)
                found[agent, session] = self.scout.score(private)
        return found


def forget_text(scout: Scout) -> None:
    """Take from a Scout what its snapshot leaves out on purpose: private words, the cache."""
    scout.flush()
    hot = warm_start.hot(scout)
    for store in (scout.anchors, scout.prompts):
        for number in scout._by_number:
            store.forget_tenant(number)
    for tenant in scout._tenants.values():
        tenant.namespace = None
        identity, value = tenant.identity, tenant.value
        for agent in identity._agents.values():
            agent.divergence._reference = None
        anchors, linker = identity._anchors, identity._sessions
        fresh = type(identity)(scout.config)
        anchors._windows = fresh._anchors._windows
        for trie in (anchors._trie, anchors._synced):
            trie.load(**trie.save())
        for name in ("_continuations", "_outputs", "_texts", "_keys"):
            setattr(linker, name, getattr(fresh._sessions, name))
        for record in linker._sessions.values():
            record.running = 0
        if hasattr(value, "reuse"):
            value.reuse._left.clear()
    warm_start.take_up(scout, hot)
