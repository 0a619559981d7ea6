"""What the policy knows, for people: reading only, so that looking changes no decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from radix_policy import passage
from radix_policy.cachescout import CacheScoutValue
from radix_policy.call import Tokens
from radix_policy.identity import AgentReport
from radix_policy.scout import Scout
from radix_policy.value import Floats, ScoutValue

Agent = tuple[int, int]
"""A tenant's number and an agent's id."""


class Transitions(NamedTuple):
    """Who follows whom among ``k`` agents, as counted.

    ``probabilities`` (k, k): share of an agent's calls after which the session went on with
    another one. ``ends`` (k,): after which it ended; ``others`` (k,): went on with an agent that
    is not among the k. A row sums to one with its end and others, to zero if its agent was never
    followed. ``starts`` (k,): share of all sessions that began with the agent.
    """

    probabilities: Floats
    ends: Floats
    others: Floats
    starts: Floats


def agents(scout: Scout) -> dict[Agent, AgentReport]:
    """Every known agent of every tenant."""
    return {
        (number, known.agent): known
        for number, identity, _ in scout.tenants()
        for known in identity.agent_report()
    }


def prompt(scout: Scout, agent: Agent) -> Tokens:
    """How a first prompt of the agent begins: token ids, which are somebody's words."""
    tenant, number = agent
    known = [identity for name, identity, _ in scout.tenants() if name == tenant]
    return known[0].prompt(number) if known else np.zeros(0, np.int32)


def transitions(scout: Scout, chosen: Sequence[Agent]) -> Transitions:
    """Who follows whom among the ``chosen`` agents. O(k^2)."""
    k = len(chosen)
    moves, totals = np.zeros((k, k)), np.zeros(k)
    ends, starts, born = np.zeros(k), np.zeros(k), 0.0
    for number, _, rule in scout.tenants():
        pairs = [(at, rule.rows.get(a)) for at, (t, a) in enumerate(chosen) if t == number]
        at = np.array([i for i, row in pairs if row is not None], dtype=np.int64)
        rows = np.array([row for _, row in pairs if row is not None], dtype=np.int64)
        follows = _follows(rule)
        moves[np.ix_(at, at)] = follows[np.ix_(rows, rows)]
        totals[at] = follows[rows].sum(axis=1)
        if isinstance(rule, ScoutValue):
            ends[at], starts[at] = rule.counts.ends[rows], rule.counts.starts[rows]
            born += float(rule.counts.starts.sum())
    others = totals - moves.sum(axis=1)
    whole = np.maximum(totals + ends, 1e-9)
    return Transitions(
        moves / whole[:, None], ends / whole, others / whole, starts / max(born, 1e-9)
    )


def predictability(scout: Scout) -> float:
    """R over all tenants, each by the calls that followed another: how certain the next one is."""
    parts = [
        (float(follows.sum()), passage.predictability(follows))
        for follows in (_follows(rule) for _, _, rule in scout.tenants())
    ]
    calls = sum(weight for weight, _ in parts)
    return sum(weight * r for weight, r in parts) / calls if calls else 0.0


def live_sessions(scout: Scout) -> int:
    """Sessions that have not ended and are not presumed over."""
    return sum(rule.live for _, _, rule in scout.tenants())


def _follows(rule: ScoutValue | CacheScoutValue) -> Floats:
    return np.asarray(rule.counts.follows if isinstance(rule, ScoutValue) else rule.follows)
