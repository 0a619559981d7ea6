"""Retention around tool gaps: a session that waits for a tool keeps its pages for a while.

When a call ends in a tool call, its pages are retained for ``ttl`` seconds; other pages go first,
the least recently used ahead. Nothing is pinned for good: when only retained pages are left, they
go by recency too. Source: Continuum, "Efficient and robust multi-turn LLM agent scheduling with KV
cache time-to-live", arXiv 2511.02230.
"""

from __future__ import annotations

import numpy as np

from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.by_page import PagePolicy, PageScore
from scout_sglang.replay.policies.oracle import Ids, Oracle
from scout_sglang.replay.timing import Job

DEFAULT_TTL = 6.0
"""Seconds; twice the mean of a tool run in the timing model."""


def build(setting: Setting) -> PagePolicy:
    oracle = Oracle(setting.events(), setting.page_size)
    mind = ToolRetention(oracle.n_pages, float(setting.config.get("ttl", DEFAULT_TTL)))
    return PagePolicy(oracle, mind, setting)


class ToolRetention(PageScore):
    """Worth: 1 while retained, else 0."""

    def __init__(self, n_pages: int, ttl: float):
        self.ttl = ttl
        self.now = 0.0
        self.until = np.zeros(n_pages)

    def arrived(self, job: Job, pages: Ids) -> None:
        self.now = max(self.now, job.arrival)

    def finished(self, job: Job, pages: Ids) -> None:
        following = job.session.calls[job.call_index + 1 : job.call_index + 2]
        if following and following[0].gap == "tool":
            # The clock of arrivals lags behind the end of a call by less than a gap.
            self.until[pages] = np.maximum(self.until[pages], self.now + self.ttl)

    def score(self, page: int) -> float:
        return float(self.until[page] > self.now)
