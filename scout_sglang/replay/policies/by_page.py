"""Policies that score SGLang's leaves by what they know of pages: the frame of bounds and rivals.

They run on the real cache with the Python tree core. A leaf stands for its last page, which is
needed by no call that does not need the pages before it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sglang.srt.mem_cache import utils
from sglang.srt.mem_cache.evict_policy import EvictionStrategy
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType

from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.oracle import Ids, Oracle
from scout_sglang.replay.policies.radix import RadixPolicy
from scout_sglang.replay.pools import build_cache
from scout_sglang.replay.request import LabRequest
from scout_sglang.replay.timing import Job


class PageScore:
    """A rival's mind: told of calls, asked what a page is worth; the least is evicted first."""

    def arrived(self, job: Job, pages: Ids) -> None:
        """A call enters; ``pages`` are those of its prompt and output, shape (n,)."""

    def finished(self, job: Job, pages: Ids) -> None:
        """A call has ended."""

    def evicted(self, pages: Ids) -> None:
        """These pages, neighbours on a path, left the cache."""

    def score(self, page: int) -> float:
        """Worth of keeping a leaf that ends with this page; ties go by last access."""
        raise NotImplementedError


class PageStrategy(EvictionStrategy):
    """SGLang's view of a :class:`PageScore`."""

    def __init__(self, mind: PageScore, setting: Setting):
        self.mind = mind
        self.page_size = setting.page_size
        # Which page a slot holds; a slot's content never changes while the tree owns it.
        self.page_of_slot = np.zeros(setting.capacity // setting.page_size + 2, dtype=np.int64)

    def get_priority(self, node: Any) -> tuple[float, float, int]:
        slots = node.component_data[ComponentType.FULL].value
        page = int(self.page_of_slot[int(slots[-1]) // self.page_size])
        return self.mind.score(page), node.last_access_time, node.id


class PagePolicy(RadixPolicy):
    """Tells a :class:`PageScore` which page went into which slot, and which calls come and go."""

    def __init__(self, oracle: Oracle, mind: PageScore, setting: Setting):
        name = f"replay-{setting.policy}"
        strategy = PageStrategy(mind, setting)
        utils._EVICTION_POLICY_FACTORIES[name] = lambda: strategy
        super().__init__(
            build_cache(
                policy=name,
                policy_config=None,
                capacity=setting.capacity,
                page_size=setting.page_size,
                max_tokens=setting.max_tokens,
                max_running=setting.max_running,
                core="python",
            )
        )
        self.oracle, self.mind, self.strategy = oracle, mind, strategy
        self._announce_evictions()

    def _announce_evictions(self) -> None:
        core = self.cache.tree_core
        evict = core.evict_device_leaf

        def announced(node_id: int, *args: object) -> object:
            slots = core.node_by_id(node_id).component_data[ComponentType.FULL].value
            held = slots.numpy()[:: self.page_size] // self.page_size
            self.mind.evicted(self.strategy.page_of_slot[held])
            return evict(node_id, *args)

        core.evict_device_leaf = announced

    def on_arrival(self, job: Job, req: LabRequest) -> None:
        self.path = self.oracle.paths[job.number]
        self.mind.arrived(job, self.path)

    def on_finish(self, job: Job, req: LabRequest) -> None:
        self.mind.finished(job, self.oracle.paths[job.number])

    def _write(self, req: LabRequest, start: int, end: int, slots: torch.Tensor) -> None:
        super()._write(req, start, end, slots)
        page = self.page_size
        row = self.cache.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
        ends = np.arange((start // page + 1) * page, end + 1, page)
        held = row[torch.from_numpy(ends - 1)].numpy() // page
        self.strategy.page_of_slot[held] = self.path[ends // page - 1]
