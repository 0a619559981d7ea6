"""What the counts mean: discounted first passage, in closed form.

Pure functions. ``gamma`` discounts one call of a session by the chance that the cache turns over
before it: a value is E[gamma^T], T the number of calls until an agent runs next. Notation and
formulas are those of ``docs/policy.md``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_FAR = float(1 << 20)


def transition_matrix(follows: Floats, marginal: Floats, prior: float) -> Floats:
    """P_ij = (C_ij + kappa m_j) / (N_i + kappa); every row sums to one. O(n^2)."""
    row = follows.sum(axis=1, keepdims=True)
    return (follows + prior * marginal) / (row + prior)


def end_probability(ends: Floats, goes: Floats, mean: float, prior: float) -> Floats:
    """q_i = (E_i + kappa q) / (N_i + E_i + kappa): the session is over after a call of i."""
    return (ends + prior * mean) / (goes + ends + prior)


def combine_ends(agent: Floats, turn: Floats, mean: float) -> Floats:
    """odds(q_s) = odds(q_i) odds(q_n) / odds(q): agent and turn as independent evidence."""
    odds = agent / (1 - agent) * (turn / (1 - turn)) * ((1 - mean) / mean)
    return odds / (1 + odds)


def first_passage(P: Floats, q: Floats, gamma: float) -> Floats:
    """G_ia = E[gamma^T; a runs before the session ends], from a call of i. O(n^3).

    M = (I - gamma diag(1-q) P)^-1 counts discounted visits, and G_ia = (M - I)_ia / M_aa, since
    every visit to a is a first one followed by M_aa - 1 more.
    """
    n = len(q)
    M = np.linalg.inv(np.eye(n) - gamma * (1 - q)[:, None] * P)
    return np.clip((M - np.eye(n)) / np.diag(M), 0.0, 1.0)


def from_start(starts: Floats, G: Floats) -> Floats:
    """G0_a = pi0_a + sum over i != a of pi0_i G_ia: the same, from the birth of a session."""
    return starts + starts @ G - starts * np.diag(G)


def liveness(q: Floats, tail: Floats) -> Floats:
    """A = (1-q) S(t) / (q + (1-q) S(t)): the session is alive, given its silence."""
    alive = (1 - q) * tail
    return alive / np.maximum(q + alive, 1e-12)


class GapBins(NamedTuple):
    """Bins of gaps in dispatches: ``edges`` (B + 1,), the first at or above 0; of each bin its
    geometric centre and 1 / its width."""

    edges: Floats
    centres: Floats
    scales: Floats

    @classmethod
    def of(cls, edges: Floats) -> GapBins:
        return cls(edges, np.sqrt(edges[:-1] * edges[1:]), 1 / np.diff(edges))


def gap_tail(
    weights: Floats, lines: Ints, gaps: GapBins, age: Floats, horizon: float
) -> tuple[Floats, Floats]:
    """S(t) = P(g > t) and phi(t) = E[exp(-(g - t) / H) given g > t].

    ``weights`` (u, B): a gap histogram a line, of the first B of the bins ``gaps``. ``lines``
    (k,): which of them each t looks at. ``age`` (k,): the t; what is below the first edge counts
    as there. The bin that holds t counts by its part above t.
    """
    bins = weights.shape[1]
    edges = gaps.edges
    age = np.maximum(age, edges[0])
    where = edges[1:bins].searchsorted(age, side="right")
    below = (age - edges[where]) * gaps.scales[where]
    np.minimum(below, 1.0, out=below)
    spread = np.exp(gaps.centres[:bins] * (-1 / horizon))
    # Both sums in one pass.
    both = np.empty(weights.shape, dtype=np.complex128)
    both.real = weights
    np.multiply(weights, spread, out=both.imag)
    above = both[:, ::-1].cumsum(axis=1).ravel()
    at = lines * bins
    mass = above[at + (bins - 1) - where]
    lost = weights.ravel()[at + where] * below
    left = np.maximum(mass.real - lost, 0.0)
    later = np.maximum(mass.imag - lost * spread[where], 0.0)
    tail = left / np.maximum(above[at + (bins - 1)].real, 1e-12)
    phi = np.exp(np.minimum(age * (1 / horizon), 50.0)) * later / np.maximum(left, 1e-12)
    return tail, np.minimum(phi, 1.0)


def rank_passage(p: Floats, gamma: float) -> Floats:
    """F_r = gamma (p_r + P_>r F_{r+1}) / (1 - gamma P_<r): first passage under move-to-front.

    ``p`` (..., R + 1): chance that the next agent stands at rank r of the session's
    move-to-front list. An agent at r is called (p_r), stays (a better rank is called) or sinks by
    one (a worse one is). The last rank stands for all agents not listed and never sinks.
    Returns the same shape. O(R).
    """
    below = np.cumsum(p, axis=-1) - p
    above = 1.0 - below - p
    left = 1 - gamma * below
    F = np.zeros_like(p)
    nxt = np.zeros(p.shape[:-1])
    for r in range(p.shape[-1] - 1, -1, -1):
        nxt = gamma * (p[..., r] + above[..., r] * nxt) / left[..., r]
        F[..., r] = nxt
    return F


def rank_line(p: list[float], gamma: float) -> list[float]:
    """``rank_passage`` of one line, faster than numpy's calls on a handful of numbers."""
    F = p.copy()
    nxt = above = 0.0
    for r in range(len(p) - 1, -1, -1):
        here = p[r]
        F[r] = nxt = gamma * (here + above * nxt) / (1 - gamma * (1 - above - here))
        above += here
    return F


def rank_first_step(p: Floats, F: Floats) -> Floats:
    """f_r = p_r + P_>r F_{r+1} + P_<r F_r: as ``rank_passage``, the next call being certain."""
    below = np.cumsum(p, axis=-1) - p
    above = 1.0 - below - p
    sunk = np.concatenate([F[..., 1:], F[..., -1:]], axis=-1)
    return p + above * sunk + below * F


def rank_line_first_step(p: list[float], F: list[float]) -> list[float]:
    """``rank_first_step`` of one line."""
    f: list[float] = []
    below, last = 0.0, len(p) - 1
    for r, here in enumerate(p):
        f.append(here + (1 - below - here) * F[min(r + 1, last)] + below * F[r])
        below += here
    return f


def turns_ahead(q_turn: Floats) -> tuple[Floats, Floats]:
    """Turn numbers and the log-chance that a session outlives them: what ``ends_by_turn`` takes.

    ``q_turn`` (T,): end probabilities; the last one holds for all later turns.
    """
    turns = np.append(np.arange(float(len(q_turn))), _FAR)
    going = np.log1p(-np.append(q_turn, 0.0)).cumsum()
    going[-1] += (_FAR - len(q_turn) + 1) * np.log1p(-q_turn[-1])
    return turns, going


def ends_by_turn(
    D: Floats, turn: Ints, ahead: tuple[Floats, Floats], gamma: float, mean: float
) -> Floats:
    """Values D with the end rates of the turns ahead in place of the mean one.

    D = (gamma (1 - q))^x says that the agent runs x calls after the session's next one, q being
    the ``mean`` end probability. Of a session after ``turn`` calls (k,), those x calls are turns
    turn + 1, ..., each with its own rate (``turns_ahead``): meetings of fixed length end when
    they do. ``D`` is (k, n), and so is what is returned.
    """
    turns, going = ahead
    x = np.maximum(D, 1e-12)
    np.log(x, out=x)
    x *= 1 / (math.log(gamma) + math.log1p(-mean))
    later = _interpolated(x + turn[:, None], turns, going)
    x *= math.log(gamma)
    x += later
    x -= going[turn][:, None]
    return np.asarray(np.exp(x, out=x))


def _interpolated(x: Floats, turns: Floats, going: Floats) -> Floats:
    """np.interp of x >= 0 over turns 0, 1, ... and one far off, without a search; reuses x."""
    last = len(turns) - 2
    at = np.minimum(x, last).astype(np.intp)
    slopes = np.diff(going) / np.diff(turns)
    x -= turns[at]
    x *= slopes[at]
    x += going[at]
    return x


def odds(value: Floats, out: Floats | None = None) -> Floats:
    """v / (1 - v), written to ``out`` where given."""
    return np.divide(value, np.subtract(1.0, value, out=out), out=out)


def evident_predictability(follows: Floats, prior: float) -> float:
    """R as far as the evidence goes: chance alone makes a few observations look predictable.

    Rows are shrunk to the marginal with weight ``prior``, and what independent rows of this
    support would show by chance is taken off (Miller, "Note on the bias of information
    estimates", 1955).
    """
    before, after, total = follows.sum(axis=1), follows.sum(axis=0), follows.sum()
    if total <= 0:
        return 0.0
    shrunk = follows + (before > 0)[:, None] * prior * after / total
    cells = [int(np.count_nonzero(x)) for x in (follows, before, after)]
    surplus = max(0, cells[0] - cells[1] - cells[2] + 1) / (2 * math.log(2) * total)
    share = after[after > 0] / total
    entropy = float(-(share * np.log2(share)).sum())
    return predictability(shrunk) - float(surplus) / entropy if entropy > 0 else 0.0


def predictability(follows: Floats) -> float:
    """R = 1 - H(A_{t+1} | A_t) / H(A_{t+1}) (CacheScout, Eq. 2); 0 if nothing varies."""
    total = follows.sum()
    if total <= 0:
        return 0.0
    joint, after = follows / total, follows.sum(axis=0) / total
    before = joint.sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        conditional = -np.nansum(joint * np.log2(joint / before))
        marginal = -np.nansum(after * np.log2(after))
    return float(1 - conditional / marginal) if marginal > 0 else 0.0
