"""Turns a seed into sessions and one fixed order of calls, before any server runs.

Several sessions are live at a time. After each turn a session waits for its tools or its user
(an exponential gap whose mean depends on the role); when it ends, the next one takes its place.
These gaps live on a virtual clock: they decide only in which order the calls are sent.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from evals.app.routing import ROUTINGS
from evals.app.team import Task, Team

Message = dict[str, str]

# Mean wait after a turn, in units of the virtual clock: tools of a tester or coder run longest.
_MEAN_GAP = {"planner": 2, "researcher": 6, "coder": 8, "tester": 12, "reviewer": 4, "writer": 4}


@dataclass(frozen=True)
class Turn:
    """One call of a session: who speaks, and what the tools return afterwards."""

    role: str
    result: str


@dataclass(frozen=True)
class Session:
    """One user's task and its turns."""

    id: str
    task: Task
    turns: list[Turn]


class Call(NamedTuple):
    """A position in the fixed order: turn number `turn` of session number `session`."""

    session: int
    turn: int


@dataclass(frozen=True)
class Workload:
    """All sessions and the order in which their calls are sent."""

    team: Team
    sessions: list[Session]
    calls: list[Call]

    def role(self, call: Call) -> str:
        """The agent that a call goes to."""
        return self.sessions[call.session].turns[call.turn].role

    def is_last(self, call: Call) -> bool:
        """Whether the session ends with this call."""
        return call.turn == len(self.sessions[call.session].turns) - 1

    def messages(self, call: Call, outputs: list[str]) -> list[Message]:
        """The chat messages of a call, given what the model answered in the earlier turns.

        The agent's own turns are `assistant`, those of others `user` with the speaker's name, as
        AutoGen renders a group chat. Each turn is followed by the result of its tools, so the
        list ends with a `user` message (SGLang would turn a trailing `assistant` into `user`).
        """
        session = self.sessions[call.session]
        role = session.turns[call.turn].role
        messages: list[Message] = [
            {"role": "system", "content": self.team.prompts[role]},
            {"role": "user", "content": session.task.text},
        ]
        for turn, output in zip(session.turns[: call.turn], outputs, strict=True):
            if turn.role == role:
                messages.append({"role": "assistant", "content": output})
            else:
                messages.append(_said_by(turn.role, output))
            messages.append(_said_by(f"{turn.role}_tools", turn.result))
        return messages


def _said_by(name: str, text: str) -> Message:
    return {"role": "user", "name": name, "content": f"{name}: {text}"}


def build_workload(
    team: Team, *, seed: int, routing: str, sessions: int, sessions_live: int
) -> Workload:
    """Build `sessions` sessions of which at most `sessions_live` are open at a time.

    Equal arguments give equal workloads. Raises ValueError naming an argument out of range.
    """
    if routing not in ROUTINGS:
        raise ValueError(f"routing must be one of {', '.join(ROUTINGS)}, not {routing!r}")
    if not 1 <= sessions_live <= sessions:
        raise ValueError(
            f"sessions_live must lie between 1 and sessions ({sessions}), not {sessions_live}"
        )
    rng = Random(seed)
    made = [_session(team, rng, routing, number) for number in range(sessions)]
    return Workload(team, made, _order(made, sessions_live, rng))


def _session(team: Team, rng: Random, routing: str, number: int) -> Session:
    task = rng.choice(team.tasks)
    route = ROUTINGS[routing](rng, task.kind)
    unused = {role: rng.sample(texts, len(texts)) for role, texts in team.results.items()}
    turns = []
    for role in route:
        # A session sees each result once, until a role has spoken more often than it has results.
        unused[role] = unused[role] or list(team.results[role])
        turns.append(Turn(role, unused[role].pop()))
    return Session(f"tidewater-{number:04d}-{rng.getrandbits(32):08x}", task, turns)


def _order(sessions: list[Session], live: int, rng: Random) -> list[Call]:
    waiting = list(range(live, len(sessions)))[::-1]
    due = [(rng.uniform(0, 6), Call(number, 0)) for number in range(live)]
    heapq.heapify(due)
    calls = []
    while due:
        now, call = heapq.heappop(due)
        calls.append(call)
        turns = sessions[call.session].turns
        then = now + rng.expovariate(1 / _MEAN_GAP[turns[call.turn].role])
        if call.turn + 1 < len(turns):
            heapq.heappush(due, (then, Call(call.session, call.turn + 1)))
        elif waiting:
            heapq.heappush(due, (then, Call(waiting.pop(), 0)))
    return calls
