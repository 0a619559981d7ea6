"""LFU with dynamic ageing: uses plus the age of the cache at the last use.

The cache's age is the worth of the best page evicted so far, so that what was popular once cannot
stay for ever. Source: Arlitt et al., "Evaluating content management techniques for Web proxy
caches", ACM SIGMETRICS Performance Evaluation Review 27(4), 2000.
"""

from __future__ import annotations

import numpy as np

from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.by_page import PagePolicy, PageScore
from scout_sglang.replay.policies.oracle import Ids, Oracle
from scout_sglang.replay.timing import Job


def build(setting: Setting) -> PagePolicy:
    oracle = Oracle(setting.events(), setting.page_size)
    return PagePolicy(oracle, UsesAndAge(oracle.n_pages), setting)


class UsesAndAge(PageScore):
    """Worth: how often a page was used while cached, plus the cache's age at its last use."""

    def __init__(self, n_pages: int):
        self.age = 0.0
        self.uses = np.zeros(n_pages)
        self.worth = np.zeros(n_pages)

    def arrived(self, job: Job, pages: Ids) -> None:
        self.uses[pages] += 1
        self.worth[pages] = self.uses[pages] + self.age

    def score(self, page: int) -> float:
        return float(self.worth[page])

    def evicted(self, pages: Ids) -> None:
        """These pages left the cache: they start anew, and the cache has aged."""
        self.age = max(self.age, float(self.worth[pages[-1]]))
        self.uses[pages] = 0
