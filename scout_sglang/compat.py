"""Closed at start: the SGLang versions, flags and models under which the policies work.

Everything here answers with a sentence (what, why, what to do instead) or None; who asks decides
how to stop. The checks read flags and the model's ``config.json``, never weights.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

TESTED_SGLANG = ("0.5.23",)
TREE_CORE_ENV = "SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"


class UnsupportedError(ValueError):
    """A policy of ours was asked for where it would be ignored or is not supported."""


@dataclass(frozen=True)
class Rule:
    """One flag: when it applies, why it cannot (or was not seen to) work, the way out."""

    flag: str
    applies: Callable[[Any], bool]
    why: str
    instead: str = ""


# What each of these selects is decided in SGLang's mem_cache/registry.py (which cache class) and
# unified_cache/tree_core_registry.py (which tree core).
REFUSED = (
    Rule(
        "--disable-radix-cache",
        lambda a: a.disable_radix_cache,
        "nothing is kept between requests, so there is nothing to evict",
        "drop --disable-radix-cache",
    ),
    Rule(
        "--radix-cache-backend",
        lambda a: a.radix_cache_backend is not None,
        "that backend brings its own cache class, which would ignore the policy",
        "drop --radix-cache-backend",
    ),
    Rule(
        "--enable-lmcache",
        lambda a: a.enable_lmcache,
        "LMCache brings its own cache class, which would ignore the policy",
        "drop --enable-lmcache",
    ),
    Rule(
        "--enable-flexkv",
        lambda a: a.enable_flexkv,
        "FlexKV brings its own cache class, which would ignore the policy",
        "drop --enable-flexkv",
    ),
    Rule(
        "--enable-session-radix-cache",
        lambda a: a.enable_session_radix_cache,
        "SGLang would order eviction by session references before it asks the policy",
        "drop --enable-session-radix-cache, the policy values sessions by itself",
    ),
    Rule(
        "--enable-hisparse",
        lambda a: a.enable_hisparse,
        "hierarchical sparse attention runs without a radix cache",
        "drop --enable-hisparse",
    ),
    Rule(
        "--disaggregation-mode prefill or decode",
        lambda a: a.disaggregation_mode not in (None, "null"),
        "a server of a disaggregated pair sees only half of each call",
        "serve prefill and decode in one server (--disaggregation-mode null)",
    ),
    Rule(
        "--encoder-only",
        lambda a: a.encoder_only,
        "an encoder server keeps no KV cache",
        "set the policy on the language server",
    ),
    Rule(
        "--use-ray",
        lambda a: a.use_ray,
        "Ray actors do not inherit the environment that activates the policy in each rank",
        "drop --use-ray",
    ),
    Rule(
        TREE_CORE_ENV,
        lambda a: os.environ.get(TREE_CORE_ENV, "") not in ("", "rust", "python"),
        "the policy chooses the tree core itself and would replace that one",
        f"unset {TREE_CORE_ENV}",
    ),
)

# Nothing in SGLang's code sets the policy aside here, but nobody has seen it work either.
UNTESTED = (
    Rule(
        "--enable-hierarchical-cache",
        lambda a: a.enable_hierarchical_cache,
        "host memory as a second tier needs a GPU to try",
    ),
    Rule(
        "--speculative-algorithm",
        lambda a: a.speculative_algorithm is not None,
        "with EAGLE the tree's keys are pairs of tokens",
    ),
    Rule("--pp-size", lambda a: a.pp_size > 1, "pipeline ranks must evict alike"),
    Rule(
        "DP attention",
        lambda a: a.enable_dp_attention or (a.attn_dp_size or 1) > 1,
        "each attention group learns on its own",
    ),
    Rule("--attn-cp-size", lambda a: a.attn_cp_size > 1, "context-parallel ranks split each page"),
    Rule("--dcp-size", lambda a: a.dcp_size > 1, "decode context parallelism widens the page"),
    Rule("--nnodes", lambda a: a.nnodes > 1, "every node needs the plugin installed"),
    Rule(
        "--enable-lora",
        lambda a: bool(a.enable_lora or a.lora_paths),
        "each adapter is a namespace of its own",
    ),
    Rule(
        "--enable-streaming-session",
        lambda a: a.enable_streaming_session,
        "streaming sessions keep their KV outside the tree",
    ),
    Rule(
        "--enable-unified-cache-external-linker",
        lambda a: a.enable_unified_cache_external_linker,
        "an external store copies KV in and out of the tree",
    ),
    Rule(
        "--dllm-algorithm",
        lambda a: a.dllm_algorithm is not None,
        "a diffusion model decodes whole blocks",
    ),
    Rule(
        "--enable-unified-memory",
        lambda a: a.enable_unified_memory,
        "it targets models with several kinds of KV",
    ),
)

# It works, but not all of it.
LIMITED = (
    Rule(
        "--tokenizer-worker-num above 1",
        lambda a: a.tokenizer_worker_num > 1,
        "GET /scout, its page and POST /scout/config and /scout/snapshot are not served",
        "use /server_info and /metrics, or one tokenizer worker",
    ),
)


def installed_sglang() -> str | None:
    """Version of the installed SGLang, or None."""
    try:
        return metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return None


def version_problem() -> str | None:
    """Why the installed SGLang cannot be used, or None."""
    found = installed_sglang()
    if found in TESTED_SGLANG:
        return None
    wanted = f"install sglang=={TESTED_SGLANG[-1]}"
    if found is None:
        return f"SGLang is not installed; {wanted}."
    tested = ", ".join(TESTED_SGLANG)
    return f"scout-sglang is tested with SGLang {tested}, but {found} is installed; {wanted}."


def flag_problem(policy: str, args: Any) -> str | None:
    """Why ``policy`` cannot work under these flags, or None.

    Args:
        args: anything that carries SGLang's flags as attributes: ``ServerArgs``, one of its
            resolved views, or an argparse namespace.
    """
    for rule in REFUSED:
        if rule.applies(args):
            return _sentence(policy, rule.flag, rule.why, rule.instead)
    return None


def resolved_problem(policy: str, server_args: Any) -> str | None:
    """Why ``policy`` cannot work under what SGLang made of the flags and of the model, or None.

    Args:
        server_args: a ``ServerArgs`` whose ``resolve_once`` has run. SGLang may have turned the
            radix cache off by itself, and the model's ``config.json`` is known by now.
    """
    from sglang.srt.arg_groups.model_override_base import model_config_of
    from sglang.srt.arg_groups.overrides import resolving_view

    cfg = resolving_view(server_args)
    if cfg.disable_radix_cache:
        step = _who_declared(server_args, "disable_radix_cache")
        return _sentence(
            policy,
            "this model or these flags",
            f"SGLang turned the radix cache off in {step}",
            "its line above says why",
        )
    if problem := flag_problem(policy, cfg):
        return problem
    if cfg.model_path.lower() in ("none", "dummy"):
        return None
    return model_problem(policy, model_config_of(server_args), cfg.disable_hybrid_swa_memory)


def model_problem(policy: str, model_config: Any, full_kv: bool = False) -> str | None:
    """Why ``policy`` cannot work for this model family, or None.

    Args:
        model_config: SGLang's ``ModelConfig``, built from ``config.json``.
        full_kv: sliding-window layers keep their whole KV. Resolution may decide that after
            ``model_config`` was built, which then does not say so.
    """
    from sglang.srt.mem_cache.kv_cache_builder import uses_ssm_state

    name = (model_config.hf_config.architectures or ["this model"])[0]
    if model_config.is_hybrid_swa and not full_kv:
        return _sentence(
            policy,
            name,
            "its sliding-window layers keep KV that is evicted by rules of their own",
            "add --disable-hybrid-swa-memory if the model's memory allows it",
        )
    if uses_ssm_state(model_config):
        return _sentence(
            policy,
            name,
            "its Mamba or linear-attention layers keep state that is evicted by rules of its own",
            "serve a model with full attention only",
        )
    if model_config.is_multimodal and _runs_on_transformers(model_config):
        return _sentence(
            policy,
            f"{name} on the Transformers backend",
            "SGLang runs multimodal models there without a radix cache",
            "use a model that SGLang implements itself",
        )
    return None


def untested(args: Any) -> list[str]:
    """One sentence for each flag in use under which the policies were never tried."""
    return [f"{rule.flag} is untested: {rule.why}." for rule in UNTESTED if rule.applies(args)]


def limited(args: Any) -> list[str]:
    """One sentence for each flag in use under which a part of scout is not there."""
    return [
        f"with {rule.flag} {rule.why}; {rule.instead}." for rule in LIMITED if rule.applies(args)
    ]


def _sentence(policy: str, what: str, why: str, instead: str) -> str:
    return (
        f"--radix-eviction-policy {policy} does not work with {what}: {why}; "
        f"{instead}, or choose another --radix-eviction-policy."
    )


def _who_declared(server_args: Any, field: str) -> str:
    for source, fields in reversed(server_args._resolved_overrides):
        if field in fields:
            return str(source).lstrip("_")
    return "resolution"


def _runs_on_transformers(model_config: Any) -> bool:
    from sglang.srt.configs.model_config import ModelImpl
    from sglang.srt.model_loader.utils import get_resolved_model_impl

    return bool(get_resolved_model_impl(model_config) == ModelImpl.TRANSFORMERS)
