"""One rank's part of ``GET /scout``: what the policy knows, does and costs, as plain numbers.

The shape is documented in ``docs/operating.md``. No token ids, no prompt text, no session ids.
Building it reads only; no decision depends on whether anybody looks.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

from radix_policy import report
from radix_policy.peek import Peek
from scout_sglang.counters import Agent, Counters, Served
from scout_sglang.dispatch import Calls, calls_of
from scout_sglang.server_state import describe
from scout_sglang.survey import Holding

MOST_AGENTS = 100
MOST_CLASSES = 256
FRESH_SECONDS = 2.0
MOST_LABEL = 64
MOST_SHOWN = 256
AROUND = 16
"""Tokens shown on either side of a first divergence."""
SECRET = {"state_path"}
"""Fields of the configuration that are not shown."""


def overview(tree_cache: Any, warmup: dict[str, float] | None = None) -> dict[str, Any] | None:
    """Everything, JSON-ready; None if the cache runs none of our policies.

    ``warmup``: what the warm-up says of itself.
    """
    calls = calls_of(tree_cache)
    described = describe(tree_cache)
    if calls is None or described is None:
        return None
    core = tree_cache.tree_core
    counters = calls.counters
    if core.survey.at is None or time.monotonic() - core.survey.at > FRESH_SECONDS:
        core.survey.begin()
    agents = _agents(calls, core.survey.holdings, described["memory"]["capacity"])
    chosen = _busiest(counters)
    return {
        "policy": described["policy"],
        "mode": described["mode"],
        "tree_core": core.BACKEND,
        "page_size": core.page_size,
        "uptime": round(time.monotonic() - counters.started, 1),
        "constants": {
            name: value for name, value in asdict(calls.scout.config).items() if name not in SECRET
        },
        "memory": described["memory"],
        "totals": _totals(counters),
        "agents": agents,
        "transitions": _transitions(calls, chosen),
        "sessions": _sessions(calls),
        "next_agent": _next_agent(calls),
        "guard": _guard(calls),
        "shadow": None if calls.shadow is None else calls.shadow.state(),
        "history": _history(calls),
        "evictions": _evictions(counters),
        "cache_map": _cache_map(counters, core.survey.holdings),
        "warmup": warmup,
        "changes": [
            {"ago": round(time.monotonic() - at, 1), "field": name, "from": old, "to": new}
            for at, name, old, new in counters.changes
        ],
        "state_file": _state_file(calls),
        "faults": described["faults"],
        "cpu": {
            step: {
                "count": spent.count,
                "mean_us": round(1e6 * spent.seconds / max(1, spent.count), 1),
                "p99_us": round(1e6 * spent.quantile(0.99), 1),
            }
            for step, spent in sorted(counters.cpu.items())
        },
    }


def _totals(counters: Counters) -> dict[str, int]:
    return {
        "calls": counters.total.calls,
        "calls_with_session_id": counters.calls_with_session_id,
        "calls_with_agent_id": counters.calls_with_agent_id,
        "prompt_tokens": counters.total.prompt,
        "hit_tokens": counters.total.hit,
        "recomputed_tokens": counters.total.recomputed,
        "evicted_tokens": sum(counters.evicted_tokens.values()),
    }


def _busiest(counters: Counters) -> list[Agent]:
    ranked = sorted(counters.by_agent.items(), key=lambda item: (-item[1].calls, item[0]))
    return [agent for agent, _ in ranked[:MOST_AGENTS]]


def _agents(calls: Calls, holdings: list[Holding], capacity: int) -> list[dict[str, Any]]:
    """The busiest agents, then the others together; served tokens add up to the totals."""
    counters = calls.counters
    known, peek = report.agents(calls.scout), Peek(calls.scout)
    resident: dict[Agent, int] = {}
    for holding in holdings:
        if holding.agent is not None:
            resident[holding.agent] = resident.get(holding.agent, 0) + holding.tokens
    lines = []
    rest = Served(counters.total.calls, counters.total.prompt, counters.total.hit)
    for agent in _busiest(counters):
        served, about = counters.by_agent[agent], known.get(agent)
        rest = Served(rest.calls - served.calls, rest.prompt - served.prompt, rest.hit - served.hit)
        held = resident.pop(agent, 0)
        lines.append(
            {
                "id": counters.number(agent),
                "label": label_of(about),
                "namespace": agent[0],
                "anchor_tokens": 0 if about is None else about.anchor,
                "first_divergence": 0 if about is None else about.divergence,
                **_served(served),
                "resident_tokens": held,
                "resident_share": round(held / capacity, 4),
                "value": _rounded(peek.anchor(*agent)),
                **(_words(calls, agent, about) if calls.scout.config.expose_prompts else {}),
            }
        )
    if rest.calls:
        held = sum(resident.values())
        other = {"id": None, "label": "other", "namespace": None, "anchor_tokens": None}
        lines.append(
            {
                **other,
                "first_divergence": None,
                **_served(rest),
                "resident_tokens": held,
                "resident_share": round(held / capacity, 4),
                "value": None,
            }
        )
    return lines


def label_of(about: Any) -> str | None:
    """What the client calls the agent, short and printable; None if it said nothing."""
    if about is None or about.label is None:
        return None
    return "".join(c if c.isprintable() else "?" for c in about.label[:MOST_LABEL])


def _words(calls: Calls, agent: Agent, about: Any) -> dict[str, list[int]]:
    """Token ids by the name of the text that they become; only where prompts may be shown."""
    prompt = report.prompt(calls.scout, agent)
    anchor, first = (0, 0) if about is None else (about.anchor, about.divergence)
    return {
        "anchor_text": prompt[: min(anchor, MOST_SHOWN)].tolist(),
        "divergence_text": prompt[max(0, first - AROUND) : first + AROUND].tolist(),
    }


def _served(served: Served) -> dict[str, Any]:
    return {
        "calls": served.calls,
        "prompt_tokens": served.prompt,
        "hit_tokens": served.hit,
        "recomputed_tokens": served.recomputed,
        "hit_rate": round(served.hit / served.prompt, 4) if served.prompt else 0.0,
    }


def _transitions(calls: Calls, chosen: list[Agent]) -> dict[str, Any]:
    seen = report.transitions(calls.scout, chosen)
    return {
        "agents": [calls.counters.number(agent) for agent in chosen],
        "probabilities": seen.probabilities.round(4).tolist(),
        "ends": seen.ends.round(4).tolist(),
        "others": seen.others.round(4).tolist(),
        "starts": seen.starts.round(4).tolist(),
    }


def _sessions(calls: Calls) -> dict[str, Any]:
    counters = calls.counters
    return {
        "live": report.live_sessions(calls.scout),
        "seen": calls.scout.sessions_begun,
        "ended_by_label": counters.sessions_ended_by_label,
        "id_share": round(counters.calls_with_session_id / max(1, counters.total.calls), 4),
    }


def _next_agent(calls: Calls) -> dict[str, Any]:
    judged = calls.scout.accuracy
    return {
        "predictions": judged.predictions,
        "correct": judged.correct,
        "accuracy": round(judged.correct / max(1, judged.predictions), 4),
        "R": round(report.predictability(calls.scout), 4),
    }


def _guard(calls: Calls) -> dict[str, Any] | None:
    guard = calls.scout.guard
    if guard is None:
        return None
    return {
        "beta": round(guard.beta, 3),
        "regret": guard.regret,
        "forgiven": round(guard.forgiven),
        "switches": guard.switches,
    }


def _history(calls: Calls) -> list[dict[str, Any]]:
    now, guarded = time.monotonic(), calls.scout.guard is not None
    slots = list(calls.counters.history)
    ends = [slot.begun for slot in slots[1:]] + [now]
    return [
        {
            "ago": round(now - slot.begun, 1),
            "seconds": round(end - slot.begun, 1),
            "prompt_tokens": slot.prompt,
            "hit_tokens": slot.hit,
            "lru_hit_tokens": slot.lru if guarded or slot.followed else None,
            "shadow_prompt_tokens": slot.followed,
            "shadow_hit_tokens": slot.shadow,
        }
        for slot, end in zip(slots, ends, strict=True)
        if now - slot.begun <= 905
    ]


def _state_file(calls: Calls) -> dict[str, Any] | None:
    file = None if calls.upkeep is None else calls.upkeep.state_file
    return None if file is None else file.state()


def _evictions(counters: Counters) -> dict[str, Any]:
    now = time.monotonic()
    by_kind: dict[str, dict[str, int]] = {}
    for (kind, reason), nodes in counters.evicted_nodes.items():
        line = by_kind.setdefault(kind, {"nodes": 0, "tokens": 0})
        line["nodes"] += nodes
        line["tokens"] += counters.evicted_tokens[kind, reason]
    by_reason: dict[str, int] = {}
    for (_, reason), tokens in counters.evicted_tokens.items():
        by_reason[reason] = by_reason.get(reason, 0) + tokens
    recent = [
        {
            "ago": round(now - eviction.at, 2),
            "kind": eviction.kind,
            "agent": None if eviction.agent is None else counters.number(eviction.agent),
            "tokens": eviction.tokens,
            "value": _rounded(eviction.value),
        }
        for eviction in counters.recent
    ]
    return {"by_kind": by_kind, "tokens_by_reason": by_reason, "recent": recent}


def _cache_map(counters: Counters, holdings: list[Holding]) -> list[dict[str, Any]]:
    shown, hidden = holdings[: MOST_CLASSES - 1], holdings[MOST_CLASSES - 1 :]
    if hidden:
        shown = [*shown, Holding("other", None, sum(h.tokens for h in hidden), None)]
    return [
        {
            "kind": holding.kind,
            "agent": None if holding.agent is None else counters.number(holding.agent),
            "tokens": holding.tokens,
            "value": _rounded(holding.value),
        }
        for holding in shown
    ]


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 5)
