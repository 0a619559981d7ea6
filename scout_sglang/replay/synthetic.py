"""Generated workloads: ``synthetic:NAME``, seeded, streamed, each session from its own number.

A prompt is the chat template's header, the application's preamble, the agent's anchor, perhaps a
skill, the task, and what has been said so far. Nothing is kept between sessions, so a trace of
any length takes the same memory. ``synthetic:mix24?sessions=5000&seed=3`` changes length and seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from urllib.parse import parse_qsl

import numpy as np

from scout_sglang.replay.timing import Timing
from scout_sglang.replay.topology import Matrix, transition_matrix
from scout_sglang.replay.trace import Session, Tokens, TraceCall, TraceError

VOCAB = 50_000
Range = tuple[int, int]


@dataclass(frozen=True)
class Workload:
    """What is generated. Token ranges are inclusive and uniform.

    ``topologies``: one for each application; an application has ``agents`` roles and is picked
    with Zipf weight 1/rank**``zipf``. ``turns``: calls of a session. ``tool_share``: calls that
    come after a tool run, whose result joins the history. ``human_share``: calls that come after
    a person's answer. ``skills``: documents of an application of which a session uses one, placed
    after the anchor. ``thinking``: output tokens that never return in a prompt. ``sweep_share``:
    sessions that are one call over a document of ``sweep_document`` tokens. ``drift``: from half
    of the trace on, the roles follow each other in another order. ``cyclic``: sessions go round
    the roles in turn, one call each. ``shuffled_labels``: agent names are drawn at random.
    """

    topologies: tuple[str, ...] = ("selector",)
    agents: int = 6
    zipf: float = 1.0
    header: int = 24
    preamble: Range = (40, 80)
    anchor: Range = (200, 400)
    task: Range = (30, 90)
    output: Range = (20, 100)
    tool_result: Range = (40, 200)
    turns: Range = (3, 12)
    tool_share: float = 0.25
    human_share: float = 0.0
    skills: int = 0
    skill: Range = (150, 400)
    thinking: Range = (0, 0)
    sweep_share: float = 0.0
    sweep_document: Range = (400, 1200)
    drift: bool = False
    cyclic: bool = False
    shuffled_labels: bool = False
    sessions: int = 400
    seed: int = 0


SMALL = Workload()
REALISTIC = Workload(
    preamble=(200, 600),
    anchor=(1500, 6000),
    task=(100, 600),
    output=(60, 500),
    tool_result=(100, 1500),
    turns=(4, 16),
    sessions=200,
)
FOUR = ("selector", "debate", "pipeline", "random")
SEVENTEEN = (*FOUR, *FOUR, *FOUR, *FOUR, "selector")
CHAT = replace(SMALL, agents=1, tool_share=0.1, human_share=1.0, turns=(2, 16), anchor=(300, 400))

PRESETS: dict[str, tuple[Workload, Timing, tuple[int, ...]]] = {
    "pipeline": (replace(SMALL, topologies=("pipeline",)), Timing(), (6_500, 9_000)),
    "debate": (replace(SMALL, topologies=("debate",)), Timing(), (6_500, 9_000)),
    "selector": (SMALL, Timing(), (6_500, 9_000)),
    "random": (replace(SMALL, topologies=("random",)), Timing(), (6_500, 9_000)),
    "mix24": (replace(SMALL, topologies=FOUR), Timing(), (8_000, 12_000)),
    "mix102": (replace(SMALL, topologies=SEVENTEEN, sessions=800), Timing(), (12_000, 20_000)),
    "realistic6": (REALISTIC, Timing(sessions_per_second=0.1), (40_000, 80_000)),
    "realistic24": (
        replace(REALISTIC, topologies=FOUR),
        Timing(sessions_per_second=0.1),
        (80_000, 120_000),
    ),
    "chat": (CHAT, Timing(0.12), (12_000, 20_000)),
    "sweep": (replace(CHAT, sweep_share=0.6, sessions=800), Timing(0.3), (12_000, 20_000)),
    "drift": (replace(SMALL, topologies=FOUR, drift=True, sessions=600), Timing(), (8_000,)),
    "bursts": (
        replace(SMALL, topologies=FOUR, human_share=0.3),
        Timing(human_gap=60.0),
        (12_000, 20_000),
    ),
    "loop": (
        replace(SMALL, agents=20, cyclic=True, turns=(1, 1), sessions=3000, task=(4, 12)),
        Timing(),
        (7_700, 8_000),
    ),
    "skills": (replace(SMALL, topologies=FOUR, skills=4), Timing(), (12_000,)),
    "thinking": (replace(SMALL, topologies=FOUR, thinking=(50, 300)), Timing(), (12_000,)),
    "labels-shuffled": (replace(SMALL, shuffled_labels=True), Timing(), (8_000,)),
}


def parse_name(name: str) -> tuple[str, Workload]:
    """The preset's name and its workload with the query's ``sessions`` and ``seed`` applied.

    Raises:
        TraceError: no such preset, or a bad query.
    """
    base, _, query = name.partition("?")
    if base not in PRESETS:
        raise TraceError(f"synthetic:{base} is unknown; accepted: {', '.join(sorted(PRESETS))}")
    workload = PRESETS[base][0]
    for key, value in parse_qsl(query, keep_blank_values=True):
        if key not in ("sessions", "seed") or not value.isdigit():
            raise TraceError(f"synthetic:{name}: {key}={value} is not sessions=N or seed=N")
        if key == "sessions":
            workload = replace(workload, sessions=int(value))
        else:
            workload = replace(workload, seed=int(value))
    return base, workload


def setting(name: str) -> tuple[Timing, tuple[int, ...]]:
    """Timing model and capacities of a preset."""
    return PRESETS[parse_name(name)[0]][1:]


def trace(name: str) -> SyntheticTrace:
    """The named workload as a re-readable trace."""
    return SyntheticTrace(f"synthetic:{name}", parse_name(name)[1])


class SyntheticTrace:
    """Sessions of a workload, generated anew on every reading."""

    def __init__(self, name: str, workload: Workload):
        self.name = name
        self.workload = workload
        self.cast = _Cast(workload)

    def __iter__(self) -> Iterator[Session]:
        for index in range(self.workload.sessions):
            yield _session(self.workload, self.cast, index)


def _tokens(key: tuple[int, ...], size: int) -> Tokens:
    return np.random.default_rng(key).integers(0, VOCAB, size, dtype=np.int32)


class _Cast:
    """The fixed parts: applications, their chains, anchors and skills."""

    def __init__(self, workload: Workload):
        self.workload = workload
        rng = np.random.default_rng((workload.seed, 1))
        self.header = _tokens((workload.seed, 2), workload.header)
        self.chains: list[Matrix] = []
        self.drifted: list[Matrix] = []
        for topology in workload.topologies:
            if workload.agents == 1:
                chain = np.ones((1, 1))
            else:
                chain = transition_matrix(topology, workload.agents, rng)
            order = rng.permutation(workload.agents)
            self.chains.append(chain)
            self.drifted.append(chain[np.ix_(order, order)])
        weights = 1.0 / np.arange(1, len(self.chains) + 1) ** workload.zipf
        self.popularity = weights / weights.sum()
        self._fixed = lru_cache(maxsize=None)(self._make)

    def _make(self, kind: int, application: int, number: int, sizes: Range) -> Tokens:
        rng = np.random.default_rng((self.workload.seed, 3, kind, application, number))
        return rng.integers(0, VOCAB, int(rng.integers(*sizes, endpoint=True)), dtype=np.int32)

    def preamble(self, application: int) -> Tokens:
        return self._fixed(0, application, 0, self.workload.preamble)

    def anchor(self, application: int, agent: int) -> Tokens:
        return self._fixed(1, application, agent, self.workload.anchor)

    def skill(self, application: int, number: int) -> Tokens:
        return self._fixed(2, application, number, self.workload.skill)


def _session(workload: Workload, cast: _Cast, index: int) -> Session:
    rng = np.random.default_rng((workload.seed, 4, index))
    writer = _Writer(workload, cast, rng, index)
    if rng.random() < workload.sweep_share:
        writer.sweep()
    else:
        writer.conversation()
    return Session(f"s{index}", writer.segments, writer.calls)


class _Writer:
    """Writes one session call by call."""

    def __init__(self, workload: Workload, cast: _Cast, rng: np.random.Generator, index: int):
        self.workload, self.cast, self.rng, self.index = workload, cast, rng, index
        self.application = int(rng.choice(len(cast.popularity), p=cast.popularity))
        self.segments: list[Tokens] = []
        self.calls: list[TraceCall] = []

    def _add(self, tokens: Tokens) -> int:
        self.segments.append(tokens)
        return len(self.segments) - 1

    def _fresh(self, sizes: Range) -> int:
        size = int(self.rng.integers(*sizes, endpoint=True))
        return self._add(self.rng.integers(0, VOCAB, size, dtype=np.int32))

    def sweep(self) -> None:
        """One call of the sweep's own role over a document."""
        head = self._add(self.cast.header)
        anchor = self._add(self.cast.anchor(self.application, self.workload.agents))
        document = self._fresh(self.workload.sweep_document)
        output = self._fresh(self.workload.output)
        self.calls.append(TraceCall("sweep", (head, anchor, document), output, "start"))

    def conversation(self) -> None:
        workload = self.workload
        head = self._add(self.cast.header)
        preamble = self._add(self.cast.preamble(self.application))
        skill = self._skill()
        task = self._fresh(workload.task)
        anchors: dict[int, int] = {}
        history: list[int] = []
        agent = self.index % workload.agents if workload.cyclic else 0
        for turn in range(int(self.rng.integers(*workload.turns, endpoint=True))):
            gap = self._gap(turn)
            if gap in ("tool", "human"):
                history.append(
                    self._fresh(workload.tool_result if gap == "tool" else workload.task)
                )
            if agent not in anchors:
                anchors[agent] = self._add(self.cast.anchor(self.application, agent))
            prompt = (head, preamble, anchors[agent], *skill, task, *history)
            answer = self._fresh(workload.output)
            self.calls.append(TraceCall(self._label(agent), prompt, self._spoken(answer), gap))
            history.append(answer)
            agent = self._successor(agent)

    def _skill(self) -> tuple[int, ...]:
        if not self.workload.skills:
            return ()
        number = int(self.rng.integers(self.workload.skills))
        return (self._add(self.cast.skill(self.application, number)),)

    def _spoken(self, answer: int) -> int:
        """What the call generates: thinking, which no later prompt holds, and the answer."""
        if self.workload.thinking == (0, 0):
            return answer
        thought = self._fresh(self.workload.thinking)
        return self._add(np.concatenate([self.segments[thought], self.segments[answer]]))

    def _gap(self, turn: int) -> str:
        if turn == 0:
            return "start"
        drawn = self.rng.random()
        if drawn < self.workload.tool_share:
            return "tool"
        return "human" if self.rng.random() < self.workload.human_share else "llm"

    def _label(self, agent: int) -> str:
        if self.workload.shuffled_labels:
            agent = int(self.rng.integers(self.workload.agents))
        return f"app{self.application}.agent{agent}"

    def _successor(self, agent: int) -> int:
        changed = self.workload.drift and self.index >= self.workload.sessions // 2
        chain = (self.cast.drifted if changed else self.cast.chains)[self.application]
        return int(self.rng.choice(len(chain), p=chain[agent]))
