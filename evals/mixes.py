"""Synthetic multi-agent sessions as token ids: the habits of clients that make identity hard.

Text is made of phrases drawn with Zipf frequencies, so that equal word sequences occur in
unrelated places, as in real text. Everything follows from the seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from evals.recorded import RecordedCall

_VOCABULARY = 32_000
_PHRASES = 3_000
_HEADER_SEED = 7


class Writer:
    """Writes text; two writers of one seed write the same."""

    def __init__(self, seed: int) -> None:
        pool = random.Random(_HEADER_SEED)
        self._phrases = [
            [pool.randrange(100, _VOCABULARY) for _ in range(pool.randint(1, 6))]
            for _ in range(_PHRASES)
        ]
        self._weights = list(accumulate(1 / (k + 5) for k in range(_PHRASES)))
        self.rng = random.Random(seed)

    def text(self, n: int) -> list[int]:
        """``n`` tokens of prose."""
        out: list[int] = []
        while len(out) < n:
            out += self.rng.choices(self._phrases, cum_weights=self._weights)[0]
        return out[:n]

    def about(self, n: int) -> int:
        """A length around ``n``, skewed as lengths are."""
        return max(1, round(n * self.rng.lognormvariate(0, 0.5)))


@dataclass(frozen=True)
class Client:
    """How an application composes its prompts.

    Lengths in tokens. ``header``: chat template, the same for everyone. ``preamble``: shared by
    the agents of the application. ``early``: private text before the system text; ``date_every``:
    instead of private, the early text changes every so many sessions. ``embed_task``: the task
    stands inside the system text. ``tools``: tool descriptions of which each turn adds one.
    ``shuffle_tools``: all tools at once, in an order that each session draws. ``templated``: the
    agents' system texts differ in a name only.
    ``own_rewrapped``: an agent's own messages return in another wrapping (LangGraph).
    ``stripped``: share of the output that does not return (thinking). ``stateless``: the prompt
    holds a new document instead of the history. ``managed``: agent 0 calls the others as a manager;
    the history of each begins anew at every call (smolagents).
    """

    agents: int = 6
    routing: str = "selector"
    turns: int = 12
    header: int = 48
    preamble: int = 0
    system: int = 300
    early: int = 0
    date_every: int = 0
    embed_task: bool = False
    tools: int = 0
    shuffle_tools: bool = False
    templated: bool = False
    task: int = 60
    output: int = 80
    own_rewrapped: bool = False
    stripped: float = 0.0
    stateless: bool = False
    managed: bool = False


class Application:
    """One application: fixed texts, and any number of sessions with them."""

    def __init__(self, name: str, client: Client, seed: int) -> None:
        self.name, self.client = name, client
        self.writer = Writer(seed)
        self.header = Writer(_HEADER_SEED).text(client.header)
        self.preamble = self.writer.text(client.preamble)
        self.systems = [
            self.writer.text(self.writer.about(client.system)) for _ in range(client.agents)
        ]
        if client.templated:
            names = [self.writer.text(6) for _ in self.systems]
            self.systems = [self.systems[0][:10] + name + self.systems[0][10:] for name in names]
        self.tools = [self.writer.text(60) for _ in range(client.tools)]
        self.chain = [
            self.writer.rng.choices(range(client.agents), k=3) for _ in range(client.agents)
        ]
        self.sessions = 0
        self._early: list[int] = []
        self._order = self.tools

    def _next(self, agent: int, turn: int) -> int:
        client, rng = self.client, self.writer.rng
        if client.routing == "pipeline" or client.routing == "debate":
            return (agent + 1) % client.agents
        if client.routing == "random":
            return rng.randrange(client.agents)
        return rng.choices(self.chain[agent], weights=(6, 3, 1))[0]

    def session(self) -> list[RecordedCall]:
        """One session's calls."""
        client, writer = self.client, self.writer
        if not client.date_every or self.sessions % client.date_every == 0:
            self._early = writer.text(client.early)
        self.sessions += 1
        task = writer.text(writer.about(client.task))
        if client.managed:
            return self._managed(task)
        self._order = self.tools
        if client.shuffle_tools:
            self._order = writer.rng.sample(self.tools, len(self.tools)) * 9
        messages: list[tuple[int, list[int]]] = []
        agent, calls = 0, []
        turns = round(writer.rng.gauss(client.turns, client.turns / 4))
        for turn in range(max(min(2, client.turns), turns)):
            prompt = np.array(self._prompt(agent, turn, task, messages), dtype=np.int32)
            output = writer.text(writer.about(client.output))
            calls.append(RecordedCall(f"{self.name}{agent}", prompt, np.array(output, np.int32)))
            messages.append((agent, output[int(len(output) * client.stripped) :]))
            if client.agents == 1:
                messages.append((-1, writer.text(writer.about(client.task))))
            agent = self._next(agent, turn)
        return calls

    def _managed(self, task: list[int]) -> list[RecordedCall]:
        """A manager's turns, between them a worker's: one to three calls from a fresh start."""
        writer, calls = self.writer, []

        def call(agent: int, task: list[int], messages: list[tuple[int, list[int]]]) -> list[int]:
            prompt = np.array(self._prompt(agent, 0, task, messages), dtype=np.int32)
            output = writer.text(writer.about(self.client.output))
            calls.append(RecordedCall(f"{self.name}{agent}", prompt, np.array(output, np.int32)))
            return output

        history: list[tuple[int, list[int]]] = []
        for _ in range(self.client.turns // 3):
            asked = call(0, task, history)
            worker = writer.rng.randrange(1, self.client.agents)
            steps: list[tuple[int, list[int]]] = []
            for _ in range(writer.rng.randint(1, 3)):
                steps.append((worker, call(worker, asked + task, steps)))
                steps.append((-1, writer.text(writer.about(self.client.task))))
            history += [(0, asked), (worker, steps[-2][1])]
        return calls

    def _prompt(
        self, agent: int, turn: int, task: list[int], messages: list[tuple[int, list[int]]]
    ) -> list[int]:
        client = self.client
        system = self.systems[agent]
        if client.embed_task:
            cut = min(80, len(system) // 2)
            system = system[:cut] + task + system[cut:]
        prompt = self.header + self._early + self.preamble + system
        for tool in self._order[: 3 + turn]:
            prompt = prompt + tool
        if client.stateless:
            return [*prompt, 1, 2, *self.writer.text(self.writer.about(400)), 3, 1, 4]
        prompt = [*prompt, 3, 1, 2, *task, 3]
        for speaker, message in messages:
            own = speaker == agent and not client.own_rewrapped
            prompt += [1, 4, *message, 3] if own else [1, 2, 10 + speaker, *message, 3]
        return [*prompt, 1, 4]


def applications(
    clients: list[Client], per_application: int, seed: int
) -> list[list[RecordedCall]]:
    """Sessions of one application per client, taking turns."""
    built = [
        Application(f"{chr(97 + k % 26)}{k}.", client, seed * 1000 + k)
        for k, client in enumerate(clients)
    ]
    return [app.session() for _ in range(per_application) for app in built]


def _shared_agents(seed: int) -> list[list[RecordedCall]]:
    one, two = Application("a", Client(), seed), Application("b", Client(), seed + 1)
    two.systems[:2] = one.systems[:2]
    sessions = []
    for _ in range(40):
        sessions.append(one.session())
        renamed = {"b0": "a0", "b1": "a1"}
        sessions.append([c._replace(agent=renamed.get(c.agent, c.agent)) for c in two.session()])
    return sessions


_TEAM = Client()
_CHAT = Client(agents=1, system=400, turns=8)

MIXES: dict[str, Callable[[int], list[list[RecordedCall]]]] = {
    "4 applications": lambda seed: applications([_TEAM] * 4, 25, seed),
    "17 applications": lambda seed: applications([_TEAM] * 17, 15, seed),
    "preamble 300": lambda seed: applications([replace(_TEAM, preamble=300)] * 4, 25, seed),
    "pipeline": lambda seed: applications([replace(_TEAM, routing="pipeline")], 80, seed),
    "one pass": lambda seed: applications([replace(_TEAM, routing="pipeline", turns=6)], 80, seed),
    "debate": lambda seed: applications([replace(_TEAM, routing="debate", agents=3)], 80, seed),
    "random": lambda seed: applications([replace(_TEAM, routing="random")], 80, seed),
    "shared agents": _shared_agents,
    "task in system": lambda seed: applications([replace(_TEAM, embed_task=True)] * 2, 40, seed),
    "name first": lambda seed: applications([replace(_TEAM, early=12)], 80, seed),
    "date first": lambda seed: applications([replace(_TEAM, early=12, date_every=20)], 80, seed),
    "growing tools": lambda seed: applications([replace(_TEAM, tools=12)], 80, seed),
    "tool order": lambda seed: applications(
        [replace(_TEAM, tools=5, shuffle_tools=True), replace(_CHAT, tools=5, shuffle_tools=True)],
        40,
        seed,
    ),
    "templated": lambda seed: applications([replace(_TEAM, templated=True)], 80, seed),
    "templated, date": lambda seed: applications(
        [replace(_TEAM, templated=True, early=12, date_every=20)], 80, seed
    ),
    "thinking": lambda seed: applications([replace(_TEAM, stripped=0.6)] * 2, 40, seed),
    "rewrapped": lambda seed: applications([replace(_TEAM, own_rewrapped=True)] * 2, 40, seed),
    "managed": lambda seed: applications([replace(_TEAM, managed=True)] * 2, 40, seed),
    "short outputs": lambda seed: applications([replace(_TEAM, output=4)] * 2, 40, seed),
    "one-word outputs": lambda seed: applications([replace(_TEAM, output=1)] * 2, 40, seed),
    "chat": lambda seed: applications([_CHAT], 100, seed),
    "3 chats": lambda seed: applications([_CHAT] * 3, 40, seed),
    "chat, team, batch": lambda seed: applications(
        [_CHAT, _TEAM, *[replace(_CHAT, stateless=True, turns=1)] * 3], 40, seed
    ),
}
