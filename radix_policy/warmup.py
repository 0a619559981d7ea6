"""What to bring back into the cache while nothing runs: one anchor, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Residency(NamedTuple):
    """Of one agent's anchor: tokens in the cache, tokens in all."""

    resident: int
    anchor: int


class WarmupPiece(NamedTuple):
    """Prefill the anchor of ``agent`` from token ``start`` to token ``stop``."""

    tenant: int
    agent: int
    start: int
    stop: int


def choose(
    tenant: int,
    expected: Mapping[int, float],
    residency: Mapping[int, Residency],
    displaced: float,
) -> WarmupPiece | None:
    """The anchor with the greatest expected saving, value x missing tokens.

    ``expected``: value of each agent's anchor in [0, 1]. ``displaced``: the highest value of what
    would have to be evicted for it; an anchor that is not worth more stays out. Ties go to the
    lowest agent id. O(agents).
    """
    best: WarmupPiece | None = None
    best_saving = 0.0
    for agent in sorted(residency):
        have, anchor = residency[agent]
        value = expected.get(agent, 0.0)
        if have >= anchor or value <= displaced:
            continue
        saving = value * (anchor - have)
        if saving > best_saving:
            best, best_saving = WarmupPiece(tenant, agent, have, anchor), saving
    return best
