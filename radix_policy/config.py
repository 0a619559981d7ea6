"""Every knob of the policies: default, range, meaning, source.

A configuration comes from ``--radix-eviction-policy-config '{...}'``; :func:`parse_config` turns
that mapping into a frozen dataclass or says, in one sentence, which field is wrong and what it
accepts. The defaults are the measured ones; moving a constant of *scout* four-fold either way
costs at most two points of hit rate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

MAX_TABLE = 1 << 20


class ConfigError(ValueError):
    """A field of the policy's configuration is unknown or out of range."""


def _number(default: float, low: float, high: float, meaning: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "meaning": meaning})


def _flag(default: bool, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


def _text(meaning: str) -> Any:
    return field(default=None, metadata={"text": True, "meaning": meaning})


def _texts(meaning: str) -> Any:
    return field(default=(), metadata={"texts": True, "meaning": meaning})


def _choice(default: str, choices: tuple[str, ...], meaning: str) -> Any:
    return field(default=default, metadata={"choices": choices, "meaning": meaning})


@dataclass(frozen=True)
class IdentityConfig:
    """What both policies share: who is calling, and how much state may be kept."""

    infer: bool = _flag(True, "recognise agents and sessions from token ids when none are sent")
    max_agents: int = _number(512, 1, 65536, "agents kept per namespace; the oldest is forgotten")
    max_sessions: int = _number(4096, 1, MAX_TABLE, "sessions kept per namespace")
    max_namespaces: int = _number(256, 1, 65536, "tenants (salt, extra key, LoRA) kept")
    max_anchor_nodes: int = _number(16384, 64, MAX_TABLE, "prefix chunks kept per namespace")
    trim: bool = _flag(True, "free only the tail of a leaf that is larger than the shortfall")
    core: str = _choice(
        "auto",
        ("auto", "rust", "python"),
        "SGLang's tree core below the policy; auto: Rust where SGLang would use it and the policy "
        "can, rust: the same, with a warning where it cannot",
    )
    mode: str = _choice(
        "on", ("on", "shadow"), "shadow: evict as lru does, and estimate what the policy would hit"
    )
    shadow_sample: float = _number(1.0, 0.01, 1.0, "share of sessions that the shadow follows")
    state_path: str | None = _text("file that what was learned is kept in across restarts")
    state_seconds: int = _number(300, 5, 86_400, "seconds between two writes of that file")
    expose_prompts: bool = _flag(False, "show the agents' fixed texts in GET /scout")
    warmup: bool = _flag(True, "bring anchors back while nothing waits or runs")
    warmup_r_min: float = _number(0.25, 0.0, 1.0, "least predictability R for it, Eq. 11")
    warmup_cost: float = _number(
        0.1, 0.0, 1.0, "what a token of an anchor costs while idle, in tokens saved for a call"
    )
    warmup_history_cost: float = _number(
        0.3, 0.0, 1.0, "the same for a session's own history, which one call at most will use"
    )
    warmup_piece: int = _number(128, 1, 65536, "most tokens a piece")
    warmup_piece_ms: float = _number(
        20.0, 1.0, 10_000.0, "what a piece should take at most: a call may have to wait for one"
    )
    warmup_idle_share: float = _number(0.5, 0.0, 1.0, "most of the idle time that it may take")
    warmup_per_minute: int = _number(60_000, 0, 1 << 30, "most tokens a minute that it may prefill")
    warmup_anchors: int = _number(1 << 18, 0, 1 << 26, "tokens of anchors remembered for it")
    warmup_prompts: int = _number(
        1 << 18, 0, 1 << 26, "tokens of sessions' histories remembered for it; 0: anchors alone"
    )
    warm_start: int = _number(
        1 << 16,
        0,
        1 << 26,
        "of these, tokens that a saved state holds, to be there after a restart",
    )
    keep: tuple[str, ...] = _texts(
        "anchors to bring back first and to score as always expected: agent labels, or paths of "
        "text files that their prompts contain"
    )
    keep_share: float = _number(0.25, 0.0, 1.0, "most of the cache that kept anchors may count on")


@dataclass(frozen=True)
class ScoutConfig(IdentityConfig):
    """*scout*: survival x recency x recompute cost as a discounted first passage."""

    prior_weight: float = _number(1.0, 0.01, 100.0, "kappa, pseudo-counts behind every row")
    turn_prior: float = _number(3.0, 0.01, 100.0, "pseudo-counts of the end-by-turn term")
    reuse_prior: float = _number(4.0, 0.01, 100.0, "pseudo-counts behind a reuse ratio")
    reuse_decay: float = _number(0.99, 0.5, 1.0, "what a reuse observation keeps per later one")
    gap_decay: float = _number(0.998, 0.5, 1.0, "what a gap observation keeps per later one")
    gap_shrink: float = _number(20.0, 0.0, 1000.0, "weight of all agents' gaps in one agent's")
    idle_min: int = _number(8, 1, 100_000, "dispatches before a session can be presumed over")
    idle_factor: float = _number(1.5, 1.0, 100.0, "times the 99th percentile gap: presumed over")
    forget_factor: float = _number(8.0, 1.0, 1000.0, "times that age: the session is forgotten")
    rank_weight: float = _number(4.0, 0.01, 100.0, "pseudo-counts of an agent's rank row")
    rank_decay: float = _number(0.99, 0.5, 1.0, "decay of rank counts and mixture weights")
    refresh: int = _number(16, 1, 10_000, "most dispatches between two inversions of the chain")
    prediction: bool = _flag(True, "use who follows whom; off: every agent equally likely")
    guard: bool = _flag(True, "move towards plain LRU while the shadow LRU does better")
    guard_rate: float = _number(0.003, 0.0, 1.0, "regret tokens forgiven per prompt token")


@dataclass(frozen=True)
class CacheScoutConfig(IdentityConfig):
    """*cachescout*: the paper's rule (arXiv 2608.14624, Eq. 2-11)."""

    variant: str = _choice(
        "per-session",
        ("per-session", "literal"),
        "per-session: own current agent per session, shared nodes only; literal: one global "
        "current agent, every node scored",
    )
    epsilon: float = _number(0.05, 1e-6, 10.0, "smoothing of transition counts, Eq. 3")
    tau: float = _number(0.05, 0.0, 1.0, "least probability of an edge of the agent graph, Eq. 7")
    e_max: int = _number(6, 1, 64, "hops at which survival is zero, Eq. 8")
    decay: float = _number(0.01, 0.0, 10.0, "lambda, loss of recency per dispatch, Eq. 9")
    delta: float = _number(0.05, 1e-9, 10.0, "floor of both factors, Eq. 9")
    prediction: bool = _flag(True, "off: every agent survives alike (anchor protection alone)")


@dataclass(frozen=True)
class AnchorProtectConfig(CacheScoutConfig):
    """*anchor-protect*: cachescout with prediction off: anchors survive, whoever runs next."""

    prediction: bool = _flag(False, "on: cachescout")


@dataclass(frozen=True)
class NoPredictionConfig(ScoutConfig):
    """*no-prediction*: scout's formula where every agent is as likely next as it is frequent."""

    prediction: bool = _flag(False, "on: scout")


POLICIES: dict[str, type[IdentityConfig]] = {
    "scout": ScoutConfig,
    "cachescout": CacheScoutConfig,
    "anchor-protect": AnchorProtectConfig,
    "no-prediction": NoPredictionConfig,
}
"""By the name for ``--radix-eviction-policy``; the last two show what each idea adds."""


def parse_config(policy: str, raw: Mapping[str, Any] | None = None) -> IdentityConfig:
    """The configuration of ``policy`` with ``raw`` laid over its defaults.

    Raises:
        ConfigError: the policy or a key is unknown, or a value has the wrong type or range; the
            message names the field and what it accepts.
    """
    if policy not in POLICIES:
        raise ConfigError(f"unknown policy {policy!r}; accepted: {', '.join(POLICIES)}")
    if raw is not None and not isinstance(raw, Mapping):
        raise ConfigError(f"{policy}: the configuration must be a JSON object, got {raw!r}")
    known = {f.name: f for f in fields(POLICIES[policy])}
    values: dict[str, Any] = {}
    for key, value in (raw or {}).items():
        if key not in known:
            raise ConfigError(
                f"{policy}: unknown field {key!r}; accepted fields: {', '.join(sorted(known))}"
            )
        values[key] = _checked(f"{policy}.{key}", known[key], value)
    return POLICIES[policy](**values)


def checked(name: str, value: Any) -> Any:
    """``value`` as the field ``name``, which all policies have, holds it.

    Raises:
        ConfigError: as :func:`parse_config`.
    """
    return _checked(name, IdentityConfig.__dataclass_fields__[name], value)


def _checked(name: str, knob: Any, value: Any) -> Any:
    meta = knob.metadata
    if "choices" in meta:
        if value not in meta["choices"]:
            raise ConfigError(f"{name} must be one of {', '.join(meta['choices'])}, got {value!r}")
        return value
    if "text" in meta:
        if value is not None and not (isinstance(value, str) and value):
            raise ConfigError(f"{name} must be a text that is not empty, or null, got {value!r}")
        return value
    if "texts" in meta:
        if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
            raise ConfigError(f"{name} must be a list of texts, got {value!r}")
        return tuple(value)
    if "low" not in meta:
        if not isinstance(value, bool):
            raise ConfigError(f"{name} must be true or false, got {value!r}")
        return value
    whole = isinstance(knob.default, int)
    right_type = isinstance(value, int) if whole else isinstance(value, int | float)
    if isinstance(value, bool) or not right_type or not meta["low"] <= value <= meta["high"]:
        kind = "a whole number" if whole else "a number"
        raise ConfigError(
            f"{name} must be {kind} from {meta['low']} to {meta['high']}, got {value!r}"
        )
    return value if whole else float(value)
