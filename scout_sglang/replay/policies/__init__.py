"""What can be replayed: SGLang's own policies, ours, rivals from the literature, and bounds.

Every module has one ``build(setting) -> Policy``; :data:`BUILDERS` maps the names of the command
line to them. Modules are imported when first used, so that listing names needs no SGLang.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from radix_policy.config import POLICIES
from scout_sglang.replay.timing import Event

if TYPE_CHECKING:
    from scout_sglang.replay.engine import Policy


@dataclass(frozen=True)
class Setting:
    """What a policy is built from.

    ``capacity``: token slots. ``max_tokens``: the longest prompt plus output. ``footprint``:
    token slots that hold every call of the trace. ``events``: a fresh copy of the schedule, which
    only bounds may look into. ``ids``: the policy sees the trace's agents and sessions.
    ``end_labels``: it is told of a session's last call. ``config``: the policy's own knobs.
    ``idle_share``: of the calls after which the scheduler is idle; ``warmup``: ours use that.
    ``seed``: says which.
    """

    policy: str
    capacity: int
    page_size: int
    max_tokens: int
    footprint: int
    events: Callable[[], Iterator[Event]]
    max_running: int = 128
    ids: bool = True
    end_labels: bool = False
    config: dict[str, Any] = field(default_factory=dict)
    idle_share: float = 0.0
    warmup: bool = True
    seed: int = 0


BUILDERS = {
    "lru": "stock",
    "lfu": "stock",
    "fifo": "stock",
    "mru": "stock",
    "filo": "stock",
    "slru": "stock",
    "tlru": "stock",
    **dict.fromkeys(POLICIES, "ours"),
    "anchor-protect": "ours",
    "no-prediction": "ours",
    "infinite": "infinite",
    "belady": "belady",
    "belady-leaf": "belady_leaf",
    "lfu-da": "lfu_da",
    "lhd": "lhd",
    "kvflow": "kvflow",
    "ttl": "ttl",
}


def build(setting: Setting) -> Policy:
    """The policy that ``setting`` names, with an empty cache.

    Raises:
        ValueError: the name is unknown.
    """
    if setting.policy not in BUILDERS:
        raise ValueError(
            f"unknown policy {setting.policy!r}; accepted: {', '.join(sorted(BUILDERS))}"
        )
    module = importlib.import_module(f"{__name__}.{BUILDERS[setting.policy]}")
    return module.build(setting)
