"""Where warm-up can't work, and when it has to rest."""

from __future__ import annotations

from typing import Any

from radix_policy.config import IdentityConfig
from scout_sglang.dispatch import calls_of


def why_off(scheduler: Any, config: IdentityConfig) -> str | None:
    """Why this scheduler never warms up, or None if it may."""
    from sglang.srt.disaggregation.utils import DisaggregationMode
    from sglang.srt.environ import envs
    from sglang.srt.runtime_context import get_exec, get_parallel

    parallel = get_parallel()
    reasons = {
        "the configuration says so": not config.warmup,
        "the radix cache is disabled": scheduler.disable_radix_cache,
        "prefill and decode run on servers of their own": scheduler.disaggregation_mode
        != DisaggregationMode.NULL,
        "the model generates nothing": not scheduler.is_generation,
        "pipeline stages": parallel.pp_size > 1,
        "attention groups (DP attention)": parallel.attn_dp_enabled,
        "context-parallel ranks": parallel.attn_cp_size > 1,
        # A piece in the namespace of an adapter that was unloaded would load it again, or fail.
        "LoRA adapters": scheduler.enable_lora,
        "speculative decoding": not scheduler.spec_algorithm.is_none(),
        "a diffusion model": scheduler.dllm_config is not None,
        "elastic expert parallelism": get_exec().moe.elastic_ep_backend is not None,
        "the embedded Rust server": bool(envs.SGLANG_RUST_SERVER.get()),
    }
    found = [reason for reason, holds in reasons.items() if holds]
    return found[0] if found else None


def why_not_now(scheduler: Any) -> str | None:
    """What keeps an idle scheduler from warming up, or None."""
    updater, calls = scheduler.weight_updater, calls_of(scheduler.tree_cache)
    if calls is not None and calls.mode == "shadow":
        return "lru serves (shadow mode)"
    if scheduler._engine_paused:
        return "the engine is paused"
    if updater.offload_tags:
        return "its memory is released"
    if updater._session is not None:
        return "weights are being updated"
    if scheduler.gracefully_exit:
        return "the server ends"
    return None
