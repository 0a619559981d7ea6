"""The counts of :mod:`scout_sglang.counters` as Prometheus metrics, beside SGLang's own.

They carry SGLang's labels and are brought up to date once a second while ``--enable-metrics`` is
on. The number of series is bounded: an agent gets a series of its own once it makes a fair part of
the calls, at most :data:`MOST_SERIES` do, and all others are counted as ``other``. What an agent
did before it got its series stays with ``other``, so that sums over agents are totals.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from radix_policy import report
from scout_sglang.counters import Agent, Counters
from scout_sglang.dispatch import Calls
from scout_sglang.overview import label_of
from scout_sglang.server_state import describe

PREFIX = "sglang:scout_"
MOST_SERIES = 32
OTHER = "other"
_FEW_CALLS = 3
_FAIR_SHARE = 0.005
_AGES = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200)
_MOST_KEYS = 64


class Definition(NamedTuple):
    """``kind``: counter, gauge or histogram. ``labels``: beside those that SGLang's metrics have.

    A counter's name ends in ``_total``.
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


DEFINITIONS: tuple[Definition, ...] = (
    Definition("calls_total", "counter", "Calls whose prefill ran.", ("agent",)),
    Definition("prompt_tokens_total", "counter", "Their prompt tokens.", ("agent",)),
    Definition("hit_tokens_total", "counter", "Prompt tokens found cached.", ("agent",)),
    Definition("recomputed_tokens_total", "counter", "Prompt tokens computed.", ("agent",)),
    Definition("calls_with_session_id_total", "counter", "Calls that named their session."),
    Definition("calls_with_agent_id_total", "counter", "Calls that named their agent."),
    Definition("lru_hit_tokens_total", "counter", "Prompt tokens that LRU would have hit."),
    Definition("evicted_tokens_total", "counter", "Tokens evicted.", ("kind", "reason")),
    Definition("evicted_nodes_total", "counter", "Evictions of a node.", ("kind", "reason")),
    Definition("kv_age_at_hit_seconds", "histogram", "Since the last use of what a call hit."),
    Definition("kv_age_at_eviction_seconds", "histogram", "Since the last use of what went."),
    Definition("predictions_total", "counter", "Predictions of the next agent judged."),
    Definition("predictions_correct_total", "counter", "Those that were right."),
    Definition("predictability", "gauge", "R: how far the agent before tells the next one."),
    Definition("agents", "gauge", "Agents known."),
    Definition("live_sessions", "gauge", "Sessions that go on."),
    Definition("sessions_total", "counter", "Sessions begun."),
    Definition("resident_tokens", "gauge", "Cached tokens, as last surveyed.", ("kind",)),
    Definition("guard_beta", "gauge", "Weight of recency in eviction; 1: plain LRU."),
    Definition("guard_regret_tokens", "gauge", "Tokens LRU would have hit beyond those we hit."),
    Definition("guard_forgiven_tokens_total", "counter", "Regret beyond the guard's floor."),
    Definition("guard_switches_total", "counter", "Times the guard took hold or let go."),
    Definition("shadow_mode", "gauge", "1 while the policy runs as a shadow and lru serves."),
    Definition("shadow_prompt_tokens_total", "counter", "Prompt tokens that the shadow follows."),
    Definition("shadow_hit_tokens_total", "counter", "Of them, what the policy would have hit."),
    Definition("shadow_lru_hit_tokens_total", "counter", "Of them, what lru did hit."),
    Definition("cpu_seconds_total", "counter", "Scheduler CPU time of our steps.", ("step",)),
    Definition("cpu_steps_total", "counter", "How often they ran.", ("step",)),
    Definition("state_bytes", "gauge", "Memory of what was learned."),
    Definition("state_file_writes_total", "counter", "State files written."),
    Definition("state_file_failures_total", "counter", "State files that could not be written."),
    Definition("state_file_age_seconds", "gauge", "Since the last state file; -1 before it."),
    Definition("faults_total", "counter", "Faults of ours that serving survived.", ("kind",)),
)

WARMUP_COUNTERS = {
    "pieces_sent", "pieces_yielded", "pieces_lost", "plans", "tokens_prefilled", "tokens_loaded",
    "tokens_used", "tokens_wasted", "seconds", "foreground_delayed", "foreground_delay_ms",
}  # fmt: skip
"""Numbers of the warm-up that only grow; every other one is a gauge."""


class Metrics:
    """The metrics of one rank; needs ``PROMETHEUS_MULTIPROC_DIR`` set where SGLang sets it."""

    def __init__(self, labels: dict[str, str]) -> None:
        self._labels = labels
        self._metrics: dict[str, Any] = {}
        self._last: dict[tuple[str, ...], float] = {}
        self._agents: dict[Agent, tuple[int, int, int]] = {}
        self._series: dict[Agent, str] = {}
        for definition in DEFINITIONS:
            self._make(definition)

    @classmethod
    def of(cls, scheduler: Any) -> Metrics | None:
        """For a rank whose metrics SGLang exports, else None."""
        context = scheduler.metrics_collector_context
        if not context.current_scheduler_metrics_enabled or context.collector is None:
            return None
        return cls({name: str(value) for name, value in context.collector.labels.items()})

    def update(self, calls: Calls, tree_cache: Any, warmup: dict[str, float] | None = None) -> None:
        """Bring everything up to date; ``warmup``: what the warm-up says of itself."""
        counters, described = calls.counters, describe(tree_cache) or {}
        self._serve(calls)
        for name, labels, value in _numbers(calls, tree_cache, described):
            self._set(name, labels, value)
        for name, value in (warmup or {}).items():
            self._warmup(name, value)
        for ages, name in (
            (counters.hit_ages, "kv_age_at_hit_seconds"),
            (counters.eviction_ages, "kv_age_at_eviction_seconds"),
        ):
            while ages:
                self._of(name, {}).observe(ages.popleft())

    def _make(self, definition: Definition) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        name = PREFIX + definition.name
        names = [*self._labels, *definition.labels]
        if definition.kind == "counter":
            self._metrics[definition.name] = Counter(name, definition.help, names)
        elif definition.kind == "gauge":
            made = Gauge(name, definition.help, names, multiprocess_mode="mostrecent")
            self._metrics[definition.name] = made
        else:
            buckets = Histogram(name, definition.help, names, buckets=_AGES)
            self._metrics[definition.name] = buckets

    def _of(self, name: str, labels: dict[str, str]) -> Any:
        return self._metrics[name].labels(**self._labels, **labels)

    def _set(self, name: str, labels: dict[str, str], value: float) -> None:
        """A gauge's value, or what a counter has come to."""
        if not name.endswith("_total"):
            self._of(name, labels).set(value)
            return
        key = (name, *labels.values())
        before = self._last.get(key, 0.0)
        begun_anew = value < before and name.startswith("shadow_")  # another shadow was cast
        more = value if begun_anew else max(0.0, value - before)
        if more or key not in self._last:
            self._of(name, labels).inc(more)
        self._last[key] = value if begun_anew else max(value, before)

    # -- agents ------------------------------------------------------------------------

    def _serve(self, calls: Calls) -> None:
        counters = calls.counters
        for agent in counters.take_changed():
            served = counters.by_agent.get(agent) if agent is not None else counters.other
            assert served is not None
            name = OTHER if agent is None else self._name(agent, calls)
            key = (-1, -1) if agent is None else agent
            now = (served.calls, served.prompt, served.hit)
            before = self._agents.get(key, (0, 0, 0))
            self._agents[key] = now
            more, prompt, hit = (a - b for a, b in zip(now, before, strict=True))
            for metric, amount in (
                ("calls_total", more),
                ("prompt_tokens_total", prompt),
                ("hit_tokens_total", hit),
                ("recomputed_tokens_total", prompt - hit),
            ):
                self._of(metric, {"agent": name}).inc(amount)

    def _name(self, agent: Agent, calls: Calls) -> str:
        known = self._series.get(agent)
        if known is not None:
            return known
        served, total = calls.counters.by_agent[agent].calls, calls.counters.total.calls
        if len(self._series) >= MOST_SERIES or served < max(_FEW_CALLS, _FAIR_SHARE * total):
            return OTHER
        label = label_of(report.agents(calls.scout).get(agent))
        name = f"agent-{calls.counters.number(agent)}" if label is None else label
        self._series[agent] = name
        return name

    # -- warm-up -----------------------------------------------------------------------

    def _warmup(self, key: str, value: Any) -> None:
        if isinstance(value, bool) or not isinstance(value, int | float):
            value = int(value) if isinstance(value, bool) else None
        if value is None:
            return
        counts = key in WARMUP_COUNTERS
        name = f"warmup_{key}_total" if counts else f"warmup_{key}"
        if name not in self._metrics:
            if len(self._metrics) > len(DEFINITIONS) + _MOST_KEYS:
                return
            kind = "counter" if counts else "gauge"
            self._make(Definition(name, kind, f"Warm-up: {key.replace('_', ' ')}."))
        self._set(name, {}, value)


def _numbers(
    calls: Calls, tree_cache: Any, described: dict[str, Any]
) -> Iterator[tuple[str, dict[str, str], float]]:
    """Name, labels and value of everything but agents, ages and warm-up."""
    counters, scout = calls.counters, calls.scout
    yield "calls_with_session_id_total", {}, counters.calls_with_session_id
    yield "calls_with_agent_id_total", {}, counters.calls_with_agent_id
    yield "lru_hit_tokens_total", {}, counters.lru_hit
    for (kind, reason), tokens in counters.evicted_tokens.items():
        labels = {"kind": kind, "reason": reason}
        yield "evicted_tokens_total", labels, tokens
        yield "evicted_nodes_total", labels, counters.evicted_nodes[kind, reason]
    yield "predictions_total", {}, scout.accuracy.predictions
    yield "predictions_correct_total", {}, scout.accuracy.correct
    yield "predictability", {}, report.predictability(scout)
    yield "agents", {}, described["agents"]
    yield "live_sessions", {}, report.live_sessions(scout)
    yield "sessions_total", {}, scout.sessions_begun
    yield from _resident(tree_cache.tree_core.survey)
    yield "state_bytes", {}, described["bytes"]
    if (guard := scout.guard) is not None:
        yield "guard_beta", {}, guard.beta
        yield "guard_regret_tokens", {}, guard.regret
        yield "guard_forgiven_tokens_total", {}, guard.forgiven
        yield "guard_switches_total", {}, guard.switches
    yield "shadow_mode", {}, int(calls.mode == "shadow")
    if calls.shadow is not None:
        yield "shadow_prompt_tokens_total", {}, calls.shadow.followed.prompt
        yield "shadow_hit_tokens_total", {}, calls.shadow.followed.hit
        yield "shadow_lru_hit_tokens_total", {}, calls.shadow.lru_hit
    yield from _costs(counters)
    file = None if calls.upkeep is None else calls.upkeep.state_file
    if file is not None:
        yield "state_file_writes_total", {}, file.writes_done
        yield "state_file_failures_total", {}, file.failures
        age = -1.0 if file.written_at is None else time.monotonic() - file.written_at
        yield "state_file_age_seconds", {}, age
    for kind, count in described["faults"].items():
        yield "faults_total", {"kind": kind}, count


def _resident(survey: Any) -> Iterator[tuple[str, dict[str, str], float]]:
    if survey.at is not None:
        tokens = dict.fromkeys(("anchor", "history", "other"), 0)
        for holding in survey.holdings:
            tokens[holding.kind] += holding.tokens
        for kind, held in tokens.items():
            yield "resident_tokens", {"kind": kind}, held


def _costs(counters: Counters) -> Iterator[tuple[str, dict[str, str], float]]:
    for step, spent in counters.cpu.items():
        yield "cpu_seconds_total", {"step": step}, spent.seconds
        yield "cpu_steps_total", {"step": step}, spent.count
