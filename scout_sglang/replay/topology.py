"""Who follows whom in a generated application, with a chosen predictability."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

TARGET_R = {"pipeline": 1.0, "debate": 0.78, "selector": 0.57, "random": 0.12}
"""Predictability R = 1 - H(next | current) / H(next) that each topology is solved for; the four
values are those of CacheScout's evaluation (arXiv 2608.14624)."""


def transition_matrix(topology: str, n_agents: int, rng: np.random.Generator) -> Matrix:
    """Rows of next-agent probabilities, shape (n_agents, n_agents), with R as in TARGET_R.

    Every agent has one usual successor; what deviates depends on the topology: in a debate the
    other camp answers, a selector favours popular agents, at random everyone may come next.

    Raises:
        ValueError: the topology is unknown, or cannot reach its R with so few agents.
    """
    if topology not in TARGET_R:
        raise ValueError(f"unknown topology {topology!r}; accepted: {', '.join(TARGET_R)}")
    usual = np.zeros((n_agents, n_agents))
    usual[np.arange(n_agents), (np.arange(n_agents) + 1) % n_agents] = 1.0
    if topology == "pipeline":
        return usual
    other = _deviation(topology, n_agents, rng)
    target = TARGET_R[topology]
    low, high = 0.0, 1.0
    if matrix_predictability(other) > target:
        raise ValueError(f"{topology} cannot reach R = {target} with {n_agents} agents")
    for _ in range(60):
        middle = (low + high) / 2
        blended = (1 - middle) * usual + middle * other
        low, high = (middle, high) if matrix_predictability(blended) > target else (low, middle)
    return (1 - low) * usual + low * other


def _deviation(topology: str, n: int, rng: np.random.Generator) -> Matrix:
    weights = np.ones((n, n))
    if topology == "debate":
        camp = np.arange(n) % 2
        weights = (camp[:, None] != camp[None, :]).astype(float)
    elif topology == "selector":
        weights = np.tile(rng.permutation(1.0 / np.arange(1, n + 1)), (n, 1))
    np.fill_diagonal(weights, 0.0)
    return weights / weights.sum(axis=1, keepdims=True)


def matrix_predictability(matrix: Matrix) -> float:
    """R of a chain in its stationary distribution."""
    stationary = stationary_distribution(matrix)
    conditional = float(stationary @ _row_entropies(matrix))
    marginal = float(_row_entropies((stationary @ matrix)[None, :])[0])
    return 1.0 - conditional / marginal


def stationary_distribution(matrix: Matrix) -> NDArray[np.float64]:
    """The distribution that the chain leaves unchanged, shape (n,)."""
    n = len(matrix)
    system = np.vstack([matrix.T - np.eye(n), np.ones(n)])
    solution, *_ = np.linalg.lstsq(system, np.append(np.zeros(n), 1.0), rcond=None)
    return np.clip(solution, 0.0, None) / np.clip(solution, 0.0, None).sum()


def _row_entropies(matrix: Matrix) -> NDArray[np.float64]:
    logs = np.log2(np.where(matrix > 0, matrix, 1.0))
    return -(matrix * logs).sum(axis=1)
