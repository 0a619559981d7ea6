"""Realistic answers of ``GET /scout`` made up from a seed: few agents or a hundred, any ranks."""

from __future__ import annotations

from random import Random
from typing import Any

TEAM = ("planner", "researcher", "coder", "tester", "reviewer", "writer")
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\">",
    "</script><script>document.title='owned'</script>",
    "\u202egnp.exe\u202c\x07\x1b[31m",
    "a" * 4000,
    "javascript:document.title='owned'",
    "\"'><svg onload=document.title='owned'>",
)


def state(
    agents: int = 6, ranks: int = 1, tick: int = 0, labels: tuple[str, ...] = TEAM, **changes: Any
) -> dict[str, Any]:
    """An answer with that many agents on each rank; ``tick`` counts polls, so that figures move.

    ``changes`` replace fields of every rank.
    """
    return {
        "schema": 1,
        "version": "0.1.0",
        "sglang": "0.5.23",
        "model": "SmolLM2-135M-Instruct",
        "ranks": [{**_rank(agents, n, tick, labels), **changes} for n in range(ranks)],
    }


def idle(**changes: Any) -> dict[str, Any]:
    """A server that has seen no call yet: zeros, empty lists and nulls."""
    return state(
        0,
        uptime=3.0,
        memory={"capacity": 8825, "available": 8825, "evictable": 0, "protected": 0},
        totals=dict.fromkeys(_totals([]), 0),
        transitions={"agents": [], "probabilities": [], "ends": [], "starts": []},
        sessions={"live": 0, "seen": 0, "ended_by_label": 0, "id_share": None},
        next_agent={"predictions": 0, "correct": 0, "accuracy": None, "R": None},
        guard=None,
        history=[],
        evictions={"by_kind": {}, "recent": []},
        cache_map=[],
        warmup=None,
        faults={},
        cpu={},
        **changes,
    )


def _rank(count: int, rank: int, tick: int, labels: tuple[str, ...]) -> dict[str, Any]:
    rng = Random(f"{count} {rank}")
    capacity = 262_144
    agents = [_agent(rng, n, labels, tick) for n in range(count)]
    cache = _cache(rng, agents, capacity)
    held = sum(cell["tokens"] for cell in cache)
    return {
        "dp_rank": rank,
        "policy": "scout",
        "mode": "on",
        "tree_core": "scout-rust",
        "page_size": 16,
        "uptime": 5112.4 + 2 * tick,
        "constants": {"guard": True, "trim": True},
        "memory": {
            "capacity": capacity,
            "available": capacity - held,
            "evictable": held - 9_000 if held > 9_000 else 0,
            "protected": min(held, 9_000),
        },
        "totals": _totals(agents),
        "agents": agents,
        "transitions": _transitions(rng, count),
        "sessions": {"live": 37, "seen": 1904, "ended_by_label": 211, "id_share": 0.62},
        "next_agent": {"predictions": 9120, "correct": 6612, "accuracy": 0.725, "R": 0.64},
        "guard": {"beta": 0.18, "regret": 41_200, "forgiven": 1_310, "switches": 2},
        "shadow": None,
        "history": _history(rng, tick),
        "evictions": _evictions(rng, agents, tick),
        "cache_map": cache,
        "warmup": {
            "on": True,
            "pieces_sent": 418 + tick,
            "tokens_prefilled": 52_100,
            "tokens_used": 38_400,
            "tokens_wasted": 6_100,
            "tokens_resident": 7_600,
            "foreground_delay_ms": 12.5,
        },
        "faults": {},
        "cpu": {
            "arrive": {"count": 11_220, "mean_us": 118.0, "p99_us": 410.0},
            "evict": {"count": 3_410, "mean_us": 96.5, "p99_us": 1_240.0},
        },
    }


def _agent(rng: Random, n: int, labels: tuple[str, ...], tick: int) -> dict[str, Any]:
    calls = int(3000 / (1 + 0.35 * n)) + 3 * tick
    prompt = calls * rng.randint(1500, 6000)
    hit = int(prompt * rng.uniform(0.35, 0.93))
    anchor = rng.randint(180, 4200)
    return {
        "id": n,
        "label": labels[n] if n < len(labels) else (f"worker-{n:02d}" if n % 3 else None),
        "namespace": n % 3,
        "anchor_tokens": anchor,
        "first_divergence": anchor + rng.randint(0, 90),
        "calls": calls,
        "prompt_tokens": prompt,
        "hit_tokens": hit,
        "recomputed_tokens": prompt - hit,
        "hit_rate": round(hit / prompt, 4),
        "resident_tokens": rng.randint(2_000, 30_000),
        "resident_share": round(rng.uniform(0.005, 0.12), 4),
        "value": round(2 ** -rng.uniform(0, 7), 5) if n % 11 != 10 else None,
    }


def _totals(agents: list[dict[str, Any]]) -> dict[str, int]:
    def total(name: str) -> int:
        return sum(agent[name] for agent in agents)

    return {
        "calls": total("calls"),
        "calls_with_session_id": int(0.62 * total("calls")),
        "calls_with_agent_id": int(0.3 * total("calls")),
        "prompt_tokens": total("prompt_tokens"),
        "hit_tokens": total("hit_tokens"),
        "recomputed_tokens": total("recomputed_tokens"),
        "evicted_tokens": 4_870_000,
    }


def _transitions(rng: Random, count: int) -> dict[str, Any]:
    rows, ends = [], []
    for i in range(count):
        end = 0.7 if i == count - 1 else rng.choice([0.02, 0.05, 0.2])
        weights = [rng.random() ** 6 for _ in range(count)]
        weights[(i + 1) % count] += 2.0
        weights[max(0, i - 2)] += 0.6
        rows.append([round((1 - end) * w / sum(weights), 4) for w in weights])
        ends.append(end)
    starts = [0.9 if i == 0 else 0.1 / max(1, count - 1) for i in range(count)]
    return {
        "agents": list(range(count)),
        "probabilities": rows,
        "ends": ends,
        "others": [0.0] * count,
        "starts": starts,
    }


def _history(rng: Random, tick: int) -> list[dict[str, Any]]:
    slots = []
    for n in range(180, 0, -1):
        prompt = rng.randint(9_000, 60_000) if rng.random() > 0.04 else 0
        climb = 0.58 + 0.2 * (1 - n / 180)
        hit = int(prompt * min(0.97, climb + rng.uniform(-0.07, 0.07)))
        lru = int(
            prompt * min(0.97, climb - 0.09 + 0.11 * (70 < n < 92) + rng.uniform(-0.05, 0.05))
        )
        slots.append(
            {
                "ago": 5.0 * n - (2 * tick) % 5,
                "seconds": 5.0,
                "prompt_tokens": prompt,
                "hit_tokens": hit,
                "lru_hit_tokens": lru,
            }
        )
    return slots


def _evictions(rng: Random, agents: list[dict[str, Any]], tick: int) -> dict[str, Any]:
    kinds = ("output", "history", "prompt", "anchor", "other")
    recent = [
        {
            "ago": round(0.4 + 3.1 * n + rng.random(), 2),
            "kind": rng.choice(kinds[:3]) if n % 9 else "anchor",
            "agent": rng.choice(agents)["id"] if n % 7 else None,
            "tokens": rng.randint(16, 4_000),
            "value": round(2 ** -rng.uniform(5, 10), 5),
        }
        for n in range(48 if agents else 0)
    ]
    by_kind = {
        kind: {"nodes": 900 * (5 - n) + tick, "tokens": 1_600_000 // (n + 1) + 900 * tick}
        for n, kind in enumerate(kinds)
    }
    return {
        "by_kind": by_kind,
        "tokens_by_reason": {"value": 4_100_000, "blend": 600_000, "recency": 170_000},
        "recent": recent,
    }


def _cache(rng: Random, agents: list[dict[str, Any]], capacity: int) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = []
    for agent in agents:
        cells.append(_cell("anchor", agent["id"], agent["anchor_tokens"] * 3, agent["value"]))
        for _ in range(max(1, 200 // max(1, len(agents)))):
            value = round(2 ** -rng.uniform(0.3, 9.5), 5)
            cells.append(_cell("history", agent["id"], rng.randint(100, 3_600), value))
    cells.append(_cell("anchor", None, 6_000, 0.97))
    cells.append(_cell("other", None, 5_400, None))
    held = sum(cell["tokens"] for cell in cells)
    scale = 0.92 * capacity / held if held else 0
    for cell in cells:
        cell["tokens"] = int(cell["tokens"] * scale)
    return sorted(cells, key=lambda cell: -cell["tokens"])[:256] if agents else []


def _cell(kind: str, agent: int | None, tokens: int, value: float | None) -> dict[str, Any]:
    return {"kind": kind, "agent": agent, "tokens": tokens, "value": value}
