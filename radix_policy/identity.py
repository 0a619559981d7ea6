"""Who is calling: session and agent of a call, by label where one is sent, else inferred.

One instance per namespace; nothing learned leaves it. Work per call is a few passes over its
tokens; state is bounded by the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from radix_policy.anchors import AnchorIndex
from radix_policy.call import Call, Identified, Tokens
from radix_policy.config import IdentityConfig
from radix_policy.divergence import Divergence
from radix_policy.hashing import Hashes, digest, rolling
from radix_policy.sessions import Link, SessionLinker


class AgentReport(NamedTuple):
    """What is known of one agent.

    ``anchor``: tokens of its fixed context; ``divergence``: the earliest token position at which
    prompts of two recent sessions differed; ``calls``, ``sessions``: how many were seen.
    """

    agent: int
    label: str | None
    anchor: int
    divergence: int
    calls: int
    sessions: int


@dataclass(slots=True)
class _Agent:
    label: str | None
    calls: int = 0
    sessions: int = 0
    divergence: Divergence = field(default_factory=Divergence)


class Identity:
    """Agents and sessions of one namespace."""

    def __init__(self, config: IdentityConfig) -> None:
        self._config = config
        self._anchors = AnchorIndex(config.max_anchor_nodes)
        self._sessions = SessionLinker(config.max_sessions, self._unlabel)
        self._agents: dict[int, _Agent] = {}
        self._agent_labels: dict[str, int] = {}
        self._session_labels: dict[str, int] = {}
        self._label_of: dict[int, str] = {}

    def identify(self, call: Call, now: int, hashes: Hashes | None = None) -> Identified:
        """Session and agent of a call that enters the queue at dispatch ``now``.

        ``hashes``: ``hashing.rolling(call.tokens)`` where the caller has it already.
        """
        agent = None if call.agent is None else self._labelled_agent(call.agent)
        link = None if call.session is None else self._labelled_session(call.session, now)
        if self._config.infer and (agent is None or link is None):
            H = rolling(call.tokens) if hashes is None else hashes
            path = self._anchors.locate(H)
            if link is None:
                guess = self._anchors.peek(path) if agent is None else agent
                link = self._sessions.link(H, path.shared, guess, now, call.routing_key)
            inferred = self._anchors.observe(path, H, link.session)
            agent = inferred if agent is None else agent
        agent = 0 if agent is None else agent
        link = Link(self._sessions.create(now), True) if link is None else link
        first_visit = self._sessions.visit(link.session, agent, now)
        anchor = self._count(agent, call, link.session, first_visit)
        return Identified(link.session, agent, anchor, link.new, link.merged)

    def finish(
        self,
        session: int,
        agent: int,
        tokens: Tokens,
        prompt_len: int,
        now: int,
        hashes: Hashes | None = None,
    ) -> None:
        """A call has ended: remember its output, to recognise what continues or quotes it.

        ``tokens``: prompt and output, shape (N,), of which the first ``prompt_len`` are prompt.
        """
        session = self.root(session)
        self._sessions.leave(session)
        if self._config.infer and session not in self._label_of:
            H = rolling(tokens) if hashes is None else hashes
            self._sessions.finish(H, prompt_len, session)

    def end_session(self, session: int) -> None:
        """The client said that ``session`` is over; a later call under its label begins anew."""
        session = self.root(session)
        self._sessions.forget(session)

    def root(self, session: int) -> int:
        """The session that ``session`` was merged into, or itself."""
        return self._sessions.root(session)

    def agent_report(self) -> list[AgentReport]:
        """Every known agent, by id."""
        return [
            AgentReport(
                number, a.label, a.divergence.anchor, a.divergence.first, a.calls, a.sessions
            )
            for number, a in sorted(self._agents.items())
        ]

    def begins(self, agent: int, tokens: Tokens) -> bool:
        """Whether ``tokens`` begin with what the agent's last sessions have in common."""
        known = self._agents.get(agent)
        return known is not None and known.divergence.begins(tokens)

    def prompt(self, agent: int) -> Tokens:
        """How the agent's latest first prompt of a session begins; empty if it is not known."""
        known = self._agents.get(agent)
        return Divergence().prompt() if known is None else known.divergence.prompt()

    def labelled(self, label: str) -> int | None:
        """The agent that clients call so, None if none does."""
        return self._agent_labels.get(label)

    def sessions_of(self, agent: int) -> int:
        """Sessions that the agent was seen in; 0 if it is forgotten."""
        known = self._agents.get(agent)
        return 0 if known is None else known.sessions

    def sizes(self) -> dict[str, int]:
        """How much is kept: entries by kind, and bytes of the tables and of trie nodes."""
        return {
            "agents": len(self._agents),
            "agent_labels": len(self._agent_labels),
            "sessions": len(self._sessions),
            "session_labels": len(self._session_labels),
            "anchor_nodes": self._anchors.size,
            "table_bytes": self._sessions.nbytes + self._anchors.nbytes,
        }

    def bytes(self) -> int:
        """Memory held: tables, trie nodes, the prompts that anchors are measured with, records.

        O(agents).
        """
        sizes = self.sizes()
        prompts = sum(agent.divergence.nbytes for agent in self._agents.values())
        records = 200 * sizes["agents"] + 300 * sizes["sessions"] + 150 * sizes["session_labels"]
        return sizes["table_bytes"] + prompts + records

    # -- labels ------------------------------------------------------------------------

    def _labelled_agent(self, label: str) -> int:
        agent = self._agent_labels.get(label)
        if agent is None:
            agent = self._anchors.new_agent()
            self._agent_labels[label] = agent
        return agent

    def _labelled_session(self, label: str, now: int) -> Link:
        label = digest(label)
        session = self._session_labels.get(label)
        if session is not None and self._sessions.alive(session):
            return Link(session, False)
        session = self._sessions.create(now)
        self._session_labels[label] = session
        self._label_of[session] = label
        return Link(session, True)

    def _unlabel(self, session: int) -> None:
        label = self._label_of.pop(session, None)
        if label is not None and self._session_labels.get(label) == session:
            del self._session_labels[label]

    # -- agents ------------------------------------------------------------------------

    def _count(self, agent: int, call: Call, session: int, first_visit: bool) -> int:
        record = self._agents.pop(agent, None) or _Agent(call.agent)
        self._agents[agent] = record
        record.calls += 1
        if first_visit:
            record.sessions += 1
            record.divergence.observe(call.tokens, session)
        while len(self._agents) > self._config.max_agents:
            oldest = next(iter(self._agents))
            gone = self._agents.pop(oldest)
            self._anchors.forget(oldest)
            if gone.label is not None:
                del self._agent_labels[gone.label]
        return record.divergence.anchor
