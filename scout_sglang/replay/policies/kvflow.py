"""Steps to execution, with the true workflow declared.

Pages that two or more sessions use belong to agents; they are kept by how many calls lie between
now and the next call of one of their agents in any session under way. Pages of one session go
first, the oldest first. It is told what a user of KVFlow would declare, the coming agents of every
session, and so shows what declaring workflows can bring to shared context. Source: "KVFlow:
Efficient prefix caching for accelerating LLM-based multi-agent workflows", arXiv 2507.07400.
"""

from __future__ import annotations

import numpy as np

from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.by_page import PagePolicy, PageScore
from scout_sglang.replay.policies.oracle import Ids, Oracle
from scout_sglang.replay.timing import Job

FAR = 1_000


def build(setting: Setting) -> PagePolicy:
    oracle = Oracle(setting.events(), setting.page_size)
    return PagePolicy(oracle, StepsToExecution(oracle.n_pages), setting)


class StepsToExecution(PageScore):
    """Worth: minus the least number of calls until an agent of the page runs."""

    def __init__(self, n_pages: int):
        self.session = np.full(n_pages, -1, dtype=np.int64)
        self.agents: dict[int, set[str]] = {}
        self.coming: dict[int, list[str]] = {}
        self._steps: dict[str, int] = {}

    def arrived(self, job: Job, pages: Ids) -> None:
        following = [call.agent or "" for call in job.session.calls[job.call_index + 1 :]]
        self.coming[job.session_index] = following
        self._steps.clear()
        before = self.session[pages]
        for page in pages[(before >= 0) & (before != job.session_index)].tolist():
            self.agents.setdefault(page, set())
        self.session[pages] = job.session_index
        for page in pages.tolist():
            if page not in self.agents:
                break
            self.agents[page].add(job.call.agent or "")

    def finished(self, job: Job, pages: Ids) -> None:
        if job.is_last:
            self.coming.pop(job.session_index, None)
            self._steps.clear()

    def score(self, page: int) -> float:
        agents = self.agents.get(page)
        if agents is None:
            return -float(FAR + 1)
        return -float(min(self._until(agent) for agent in agents))

    def _until(self, agent: str) -> int:
        if agent not in self._steps:
            found = (c.index(agent) for c in self.coming.values() if agent in c)
            self._steps[agent] = min(found, default=FAR)
        return self._steps[agent]
