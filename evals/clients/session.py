"""A session under way: where it stands in its plan, its tools, and the calls it has made."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from evals.clients.plan import Plan, ToolUse
from evals.clients.tools import Toolbox


@dataclass
class ModelCall:
    """One request to the model as it passed over the wire.

    ``started``: wall clock in seconds; ``ttft_ms``, ``latency_ms``: from the request's start to
    the first and to the last byte of the answer. ``prompt``, ``output``: token ids. ``uses``:
    names of the functions that the reply calls.
    """

    agent: str
    started: float
    has_session: bool
    prompt: list[int] = field(default_factory=list)
    output: list[int] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    ttft_ms: float = 0.0
    latency_ms: float = 0.0
    uses: list[str] = field(default_factory=list)
    error: str = ""


class SessionRun:
    """Hands out the plan step by step; ``calls`` and ``errors`` fill up meanwhile."""

    def __init__(self, plan: Plan, *, ids: bool) -> None:
        self.plan = plan
        self.tools = Toolbox()
        self.calls: list[ModelCall] = []
        self.errors: list[str] = []
        self.finished = False
        self.extra_body = {"session_id": plan.name} if ids else {}
        self._turns = deque(plan.turns)
        self._uses: deque[ToolUse] = deque()

    def next_role(self) -> str | None:
        """Begin the next turn: its agent, or None after the last one."""
        if not self._turns:
            return None
        turn = self._turns.popleft()
        self._uses = deque(turn.uses)
        return turn.role

    def next_use(self) -> ToolUse | None:
        """The tool that the agent whose turn it is calls next, or None when it only speaks."""
        return self._uses.popleft() if self._uses else None
