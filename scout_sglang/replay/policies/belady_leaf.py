"""Bélády's rule on SGLang's own leaves: the best that whole-leaf eviction can do by next use.

Source: Bélády, "A study of replacement algorithms for a virtual-storage computer", IBM Systems
Journal 5(2), 1966.
"""

from __future__ import annotations

import numpy as np

from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.by_page import PagePolicy, PageScore
from scout_sglang.replay.policies.oracle import Ids, Oracle
from scout_sglang.replay.timing import Job


def build(setting: Setting) -> PagePolicy:
    oracle = Oracle(setting.events(), setting.page_size)
    return PagePolicy(oracle, NextUse(oracle), setting)


class NextUse(PageScore):
    """The further ahead the next use, the less a page is worth."""

    def __init__(self, oracle: Oracle):
        self.oracle = oracle
        self.now = -1
        self.known = np.full(oracle.n_pages, -1, dtype=np.int64)

    def arrived(self, job: Job, pages: Ids) -> None:
        self.now = job.number

    def score(self, page: int) -> float:
        if self.known[page] <= self.now:
            self.known[page] = self.oracle.next_use(np.array([page]), self.now)[0]
        return -float(self.known[page])
