"""Who speaks next: four seeded ways to route a task through the team.

The orchestrator decides, not the model: a model of 135M parameters cannot, and equal routes are
what makes two policies comparable. Each function returns the roles of one session in order.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from evals.app.team import ROLES

# Weights of the next speaker; "" ends the session. Kinds of task differ in where they lead.
_NEXT = {
    "planner": {"researcher": 6, "coder": 3, "writer": 1},
    "researcher": {"coder": 5, "planner": 2, "writer": 2, "tester": 1},
    "coder": {"tester": 7, "reviewer": 2, "researcher": 1},
    "tester": {"coder": 4, "reviewer": 5, "planner": 1},
    "reviewer": {"coder": 3, "writer": 5, "planner": 1, "tester": 1},
    "writer": {"": 7, "reviewer": 2, "researcher": 1},
}
_FAVOURED = {
    "repair": {"coder", "tester"},
    "build": {"coder", "reviewer"},
    "find out": {"researcher", "planner"},
    "explain": {"writer", "researcher"},
}
_LONGEST = 14


def pipeline(rng: Random, kind: str) -> list[str]:
    """A fixed order with loops: failed tests and refused reviews send the work back."""
    if kind in ("find out", "explain"):
        route = ["planner", "researcher"] + ["researcher"] * (rng.random() < 0.4)
        route += ["writer", "reviewer"]
        return route + ["writer"] * (rng.random() < 0.5)
    route = ["planner", "researcher", "coder", "tester"]
    while rng.random() < 0.4 and len(route) < _LONGEST - 4:
        route += ["coder", "tester"]
    route.append("reviewer")
    if rng.random() < 0.4:
        route += ["coder", "reviewer"]
    return [*route, "writer"]


def debate(rng: Random, kind: str) -> list[str]:
    """The planner opens, three roles argue for two to four rounds, the writer closes."""
    third = "researcher" if kind in ("find out", "explain") else "tester"
    return ["planner", *(["coder", "reviewer", third] * rng.randint(2, 4)), "writer"]


def selector(rng: Random, kind: str) -> list[str]:
    """A selector picks the next role by what was said last and by the kind of the task."""
    route = ["planner"]
    while len(route) < _LONGEST:
        weights = dict(_NEXT[route[-1]])
        for role in _FAVOURED[kind] & weights.keys():
            weights[role] *= 2
        chosen = rng.choices(list(weights), list(weights.values()))[0]
        if not chosen:
            break
        route.append(chosen)
    return route


def random(rng: Random, kind: str) -> list[str]:
    """Anybody but the last speaker, four to ten turns: nothing to predict, by design."""
    route = [rng.choice(ROLES)]
    for _ in range(rng.randint(3, 9)):
        route.append(rng.choice([role for role in ROLES if role != route[-1]]))
    return route


ROUTINGS: dict[str, Callable[[Random, str], list[str]]] = {
    "pipeline": pipeline,
    "debate": debate,
    "selector": selector,
    "random": random,
}
