"""Bélády's rule on SGLang's own leaves: the best that whole-leaf eviction can do by next use.

Runs on the real cache with the Python tree core; a leaf's next use is that of its last page,
which is used no sooner than the pages before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sglang.srt.mem_cache import utils
from sglang.srt.mem_cache.evict_policy import EvictionStrategy
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.oracle import Oracle
from scout_sglang.replay.policies.radix import RadixPolicy
from scout_sglang.replay.pools import build_cache
from scout_sglang.replay.request import LabRequest
from scout_sglang.replay.timing import Job

NAME = "replay-belady-leaf"


def build(setting: Setting) -> BeladyLeafPolicy:
    strategy = NextUse(Oracle(setting.events(), setting.page_size), setting)
    utils._EVICTION_POLICY_FACTORIES[NAME] = lambda: strategy
    cache = build_cache(
        policy=NAME,
        policy_config=None,
        capacity=setting.capacity,
        page_size=setting.page_size,
        max_tokens=setting.max_tokens,
        max_running=setting.max_running,
        core="python",
    )
    return BeladyLeafPolicy(cache, strategy)


class NextUse(EvictionStrategy):
    """Leaves ordered by how far ahead their last page is used again."""

    def __init__(self, oracle: Oracle, setting: Setting):
        self.oracle = oracle
        self.page_size = setting.page_size
        self.now = -1
        # Which page a slot holds; a slot's content never changes while the tree owns it.
        self.page_of_slot = np.zeros(setting.capacity // setting.page_size + 2, dtype=np.int64)
        self.known = np.full(oracle.n_pages, -1, dtype=np.int64)

    def get_priority(self, node: Any) -> tuple[int, float]:
        slots = node.component_data[ComponentType.FULL].value
        page = self.page_of_slot[int(slots[-1]) // self.page_size]
        if self.known[page] <= self.now:
            self.known[page] = self.oracle.next_use(np.array([page]), self.now)[0]
        return -int(self.known[page]), node.last_access_time


class BeladyLeafPolicy(RadixPolicy):
    """Tells the strategy which page went into which slot, and what time it is."""

    def __init__(self, cache: Any, strategy: NextUse):
        super().__init__(cache)
        self.strategy = strategy

    def on_arrival(self, job: Job, req: LabRequest) -> None:
        self.strategy.now = job.number
        self.path = self.strategy.oracle.paths[job.number]

    def _write(self, req: LabRequest, start: int, end: int, slots: torch.Tensor) -> None:
        super()._write(req, start, end, slots)
        page = self.page_size
        row = self.cache.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
        ends = np.arange((start // page + 1) * page, end + 1, page)
        held = row[torch.from_numpy(ends - 1)].numpy() // page
        self.strategy.page_of_slot[held] = self.path[ends // page - 1]
