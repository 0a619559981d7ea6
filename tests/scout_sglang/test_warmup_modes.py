"""Where warm-up is off. With LoRA no server starts on a CPU: SGLang wants pinned memory."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from sglang.srt import runtime_context
from sglang.srt.disaggregation.utils import DisaggregationMode

from radix_policy.config import ScoutConfig
from scout_sglang.warmup_modes import why_off


@pytest.mark.parametrize(("lora", "why"), [(None, None), (False, None), (True, "LoRA adapters")])
def test_warm_up_is_off_where_lora_adapters_are_enabled(lora, why, monkeypatch):
    ranks = SimpleNamespace(pp_size=1, attn_dp_enabled=False, attn_cp_size=1)
    moe = SimpleNamespace(elastic_ep_backend=None)
    monkeypatch.setattr(runtime_context, "get_parallel", lambda: ranks)
    monkeypatch.setattr(runtime_context, "get_exec", lambda: SimpleNamespace(moe=moe))
    scheduler = SimpleNamespace(
        disable_radix_cache=False,
        disaggregation_mode=DisaggregationMode.NULL,
        is_generation=True,
        spec_algorithm=SimpleNamespace(is_none=lambda: True),
        dllm_config=None,
        enable_lora=lora,
    )
    assert why_off(scheduler, ScoutConfig()) == why
