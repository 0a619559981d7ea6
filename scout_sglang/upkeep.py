"""What a rank does now and then beside serving: its state file, its metrics, its survey.

Called at every turn of the scheduler's loop, where it looks at the clock and mostly returns. No
decision of the policy depends on what is done here.
"""

from __future__ import annotations

import time
from typing import Any

from scout_sglang import interrupt
from scout_sglang.control import dp_rank, warmup_state
from scout_sglang.dispatch import Calls, calls_of
from scout_sglang.faults import FAULTS, guarded
from scout_sglang.metrics import Metrics
from scout_sglang.state_file import StateFile

TURN_SECONDS = 0.1
METRICS_SECONDS = 1.0
SURVEY_SECONDS = 15.0
EXIT_SECONDS = 10.0


class Upkeep:
    """The chores of one rank."""

    def __init__(self, scheduler: Any, calls: Calls) -> None:
        self.state_file = _state_file(calls)
        self.metrics = Metrics.of(scheduler)
        self._scheduler = scheduler
        self._metrics_due = self._survey_due = 0.0
        if self.state_file is not None:
            self.state_file.restore(calls.scout)
            interrupt.survive(lambda: on_shutdown(scheduler), self.state_file.hurry)

    def turn(self, calls: Calls, tree_cache: Any, now: float) -> None:
        """Whatever is due."""
        file, survey = self.state_file, tree_cache.tree_core.survey
        if file is not None and file.due(now):
            file.write(calls.scout)
        if survey.under_way:
            survey.go_on()
        if self.metrics is not None and now >= self._metrics_due:
            self._metrics_due = now + METRICS_SECONDS
            self.metrics.update(calls, tree_cache, warmup_state(self._scheduler))
            if now >= self._survey_due:
                self._survey_due = now + SURVEY_SECONDS
                survey.begin()


def on_loop(scheduler: Any, *args: Any, **kwargs: Any) -> None:
    """BEFORE Scheduler.ingest_requests, at every turn of its loop."""
    calls = calls_of(scheduler.tree_cache)
    if calls is None or (now := time.monotonic()) < calls.upkeep_due:
        return
    calls.upkeep_due = now + TURN_SECONDS
    _turn(calls, scheduler, now)


@guarded("upkeep")
def _turn(calls: Calls, scheduler: Any, now: float) -> None:
    if calls.upkeep is None:
        calls.upkeep = Upkeep(scheduler, calls)
    calls.upkeep.turn(calls, scheduler.tree_cache, now)


def on_shutdown(scheduler: Any, *args: Any, **kwargs: Any) -> None:
    """BEFORE Scheduler.handle_shutdown: the last state is on disk before the rank is gone."""
    calls = calls_of(scheduler.tree_cache)
    file = None if calls is None or calls.upkeep is None else calls.upkeep.state_file
    if calls is None or file is None:
        return
    try:
        file.write(calls.scout, wait=EXIT_SECONDS)
    except Exception:
        FAULTS.record("state file")


def _state_file(calls: Calls) -> StateFile | None:
    from sglang.srt.runtime_context import get_model, get_parallel

    config, parallel = calls.scout.config, get_parallel()
    if config.state_path is None:
        return None
    first = parallel.attn_tp_rank == 0 and parallel.attn_cp_rank == 0 and parallel.pp_rank == 0
    model = str(get_model().model_path)
    return StateFile(config.state_path, dp_rank(), config.state_seconds, model, first)
