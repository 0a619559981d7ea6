"""The policies of this package, through the hooks and the adapter that a live server uses."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from scout_sglang import plugin
from scout_sglang.dispatch import calls_of, on_queue
from scout_sglang.faults import FAULTS
from scout_sglang.replay.idle import LabWarmup
from scout_sglang.replay.policies import Setting
from scout_sglang.replay.policies.radix import RadixPolicy
from scout_sglang.replay.policies.stock import cache_for
from scout_sglang.replay.request import LabRequest
from scout_sglang.replay.timing import Job


def build(setting: Setting) -> OurPolicy:
    cache_hooks = [hook for hook in plugin.HOOKS if hook.target.startswith(plugin.CACHE)]
    plugin.apply(cache_hooks)
    plugin.verify(cache_hooks)
    policy = OurPolicy(cache_for(setting), ids=setting.ids, end_labels=setting.end_labels)
    if setting.warmup and setting.idle_share and policy.calls.scout.config.warmup:
        policy.warmup = LabWarmup(policy, setting.idle_share, setting.seed)
    return policy


class OurPolicy(RadixPolicy):
    """Announces arrivals and aborts as the scheduler does; the cache's hooks do the rest."""

    def __init__(self, cache: Any, ids: bool, end_labels: bool):
        super().__init__(cache)
        self.ids = ids
        self.end_labels = end_labels
        self.scheduler = SimpleNamespace(tree_cache=cache)
        calls = calls_of(cache)
        assert calls is not None, "the plugin's hooks did not take hold of the cache"
        self.calls = calls
        self.warmup: LabWarmup | None = None
        self.faults_before = FAULTS.total

    @property
    def guard_switches(self) -> int:  # type: ignore[override]
        return getattr(self.calls.scout.guard, "switches", 0)

    @property
    def warmed_tokens(self) -> int:  # type: ignore[override]
        """Tokens prefilled by warm-ups so far."""
        return self.calls.scout.ledger.sent

    def make_request(self, job: Job) -> LabRequest:
        req = super().make_request(job)
        label: dict[str, Any] = {}
        if self.ids:
            req.session_id = job.session.name if job.call.has_session else None
            req.routing_key = job.call.routing_key
            if job.call.agent is not None:
                label["agent"] = job.call.agent
        if self.end_labels and job.is_last:
            label["end_of_session"] = True
        req.sampling_params.custom_params = {"scout": label} if label else None
        return req

    def on_arrival(self, job: Job, req: LabRequest) -> None:
        on_queue(lambda *_: None, self.scheduler, req)

    def on_finish(self, job: Job, req: LabRequest) -> None:
        if self.warmup is not None:
            self.warmup.after(job)

    def on_abort(self, job: Job, req: LabRequest) -> None:
        self.calls.abandon(req.rid)

    def close(self) -> None:
        super().close()
        # A server would fall back to LRU and go on; a measurement must not.
        if FAULTS.total > self.faults_before:
            raise RuntimeError(f"the policy failed during the replay: {FAULTS.counts}")
        ledger = self.calls.scout.ledger
        assert ledger.sent == ledger.used + ledger.wasted + ledger.resident
