"""What a trace is like, before any policy: sizes, shared context, who follows whom."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from radix_policy.hashing import Hashes
from scout_sglang.replay.pages import cached_pages, page_hashes
from scout_sglang.replay.timing import Event, Job


@dataclass(frozen=True)
class TraceFacts:
    """Figures of one schedule of a trace, in tokens and shares.

    ``footprint``: token slots that hold every prompt and output once. ``anchor_share``: share of
    prompt tokens in prefixes that two or more sessions use. ``live_sessions``: mean number of
    sessions between first arrival and last end. ``r_session``, ``r_global``: predictability of
    the next agent within a session and over the interleaved stream (None without agents).
    """

    sessions: int
    calls: int
    agents: int
    prompt_tokens: int
    output_tokens: int
    prompt_median: int
    prompt_p90: int
    longest: int
    footprint: int
    anchor_share: float
    live_sessions: float
    id_share: float
    r_session: float | None
    r_global: float | None


def predictability(pairs: Counter[tuple[str, str]]) -> float | None:
    """R = 1 - H(next | current) / H(next) over counted transitions; None if there are none.

    Source: CacheScout, arXiv 2608.14624, Eq. 2. A next agent that never varies gives 1.
    """
    total = sum(pairs.values())
    if not total:
        return None
    rows: dict[str, list[int]] = defaultdict(list)
    columns: Counter[str] = Counter()
    for (current, following), count in pairs.items():
        rows[current].append(count)
        columns[following] += count
    marginal = _entropy(list(columns.values()))
    conditional = sum(sum(row) / total * _entropy(row) for row in rows.values())
    return 1.0 - conditional / marginal if marginal > 0 else 1.0


def _entropy(counts: list[int]) -> float:
    shares = np.asarray(counts, dtype=float) / sum(counts)
    return float(-(shares * np.log2(shares)).sum())


def _quantile(counts: Counter[int], share: float) -> int:
    """The smallest number that at least ``share`` of the counted ones do not exceed, 0 of none."""
    seen = 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= share * counts.total():
            return value
    return 0


def describe(events: Callable[[], Iterator[Event]], page_size: int) -> TraceFacts:
    """Read the schedule twice: once to see which pages are shared, once to weigh them."""
    pages = _Pages(events(), page_size)
    shared = 0
    sizes: Counter[int] = Counter()
    outputs = with_id = longest = 0
    live_time = first = last = 0.0
    sessions = 0
    agents: set[str] = set()
    within: Counter[tuple[str, str]] = Counter()
    across: Counter[tuple[str, str]] = Counter()
    previous: dict[int, str] = {}
    before: str | None = None
    started: dict[int, float] = {}
    for event in events():
        job = event.job
        if not event.starts:
            last = event.time
            if job.is_last:
                live_time += event.time - started.pop(job.session_index)
                previous.pop(job.session_index, None)
            continue
        first = event.time if not sizes else first
        if job.call_index == 0:
            started[job.session_index] = event.time
            sessions += 1
        prompt, output = job.prompt, len(job.output)
        sizes[len(prompt)] += 1
        outputs += output
        longest = max(longest, len(prompt) + output)
        with_id += job.call.has_session
        shared += pages.shared_tokens(job)
        if (agent := job.call.agent) is not None:
            agents.add(agent)
            if job.session_index in previous:
                within[previous[job.session_index], agent] += 1
            if before is not None:
                across[before, agent] += 1
            previous[job.session_index] = before = agent
    calls, prompt_tokens = sizes.total(), sum(size * n for size, n in sizes.items())
    return TraceFacts(
        sessions=sessions,
        calls=calls,
        agents=len(agents),
        prompt_tokens=prompt_tokens,
        output_tokens=outputs,
        prompt_median=_quantile(sizes, 0.5),
        prompt_p90=_quantile(sizes, 0.9),
        longest=longest,
        footprint=pages.footprint,
        anchor_share=shared / prompt_tokens if prompt_tokens else 0.0,
        live_sessions=live_time / (last - first) if last > first else 0.0,
        id_share=with_id / calls if calls else 0.0,
        r_session=predictability(within),
        r_global=predictability(across),
    )


class _Pages:
    """Distinct pages of a trace and which of them two sessions use.

    Beyond ``most`` pages only every second, fourth, ... is kept, chosen by its hash, so that
    memory stays bounded; counts are scaled back (exact below the limit).
    """

    def __init__(self, events: Iterable[Event], page_size: int, most: int = 400_000):
        self.page_size = page_size
        self.skip = 1
        self.owner: dict[int, int] = {}
        self.shared: set[int] = set()
        for event in events:
            if not event.starts:
                continue
            job = event.job
            for page in self._sampled(cached_pages(job, page_size)):
                if self.owner.setdefault(page, job.session_index) != job.session_index:
                    self.shared.add(page)
            if len(self.owner) > most:
                self._thin_out()

    @property
    def footprint(self) -> int:
        return len(self.owner) * self.skip * self.page_size

    def shared_tokens(self, job: Job) -> int:
        pages = self._sampled(page_hashes(job.prompt, self.page_size, job.call.namespace))
        return sum(page in self.shared for page in pages) * self.skip * self.page_size

    def _sampled(self, pages: Hashes) -> list[int]:
        kept = pages if self.skip == 1 else pages[pages % np.uint64(self.skip) == 0]
        return kept.tolist()

    def _thin_out(self) -> None:
        self.skip *= 2
        self.owner = {page: owner for page, owner in self.owner.items() if page % self.skip == 0}
        self.shared = {page for page in self.shared if page % self.skip == 0}
