"""What an operator asks of a running rank: its state, another setting, a snapshot.

SGLang's HTTP process sends such a request as one of SGLang's own control messages, so that every
rank carries it out at the same place in its stream of work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from radix_policy.config import ConfigError, checked
from scout_sglang.dispatch import calls_of
from scout_sglang.faults import FAULTS
from scout_sglang.overview import overview

logger = logging.getLogger(__name__)

METHOD = "scout"


@dataclass(frozen=True)
class Setting:
    """A field of the configuration that can be changed at run time.

    ``apply`` gets the scheduler and an accepted value, and returns what the value was before.
    """

    name: str
    apply: Callable[[Any, Any], Any]


def _set_mode(scheduler: Any, value: str) -> str:
    from scout_sglang.tree_core import set_mode

    return set_mode(scheduler.tree_cache, value)


def _set_keep(scheduler: Any, value: Sequence[str]) -> list[str]:
    warmup = _warmup(scheduler)
    before = list(warmup.keep_list.entries)
    try:
        warmup.set_keep(value)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return before


def _set_limit(name: str, scheduler: Any, value: Any) -> Any:
    warmup = _warmup(scheduler)
    before = getattr(warmup.scout.config, name)
    try:
        warmup.set_limit(name, value)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return before


def _warmup(scheduler: Any) -> Any:
    warmup = getattr(scheduler, "scout_warmup", None)
    if warmup is None:
        raise ConfigError("this rank has no warm-up, which its log explains")
    return warmup


LIMITS = (
    "warmup",
    "warmup_idle_share",
    "warmup_per_minute",
    "warmup_piece",
    "warmup_piece_ms",
    "warmup_cost",
    "warmup_history_cost",
    "warmup_r_min",
    "keep_share",
)
"""Budgets that can be changed at run time."""
SETTINGS: tuple[Setting, ...] = (
    Setting("keep", _set_keep),
    *(Setting(name, partial(_set_limit, name)) for name in LIMITS),
    Setting("mode", _set_mode),
)
"""In the order in which they are changed: those first that a rank may still refuse."""


def check(wanted: Any) -> dict[str, Any]:
    """The values to set, as the configuration holds them.

    Raises:
        ConfigError: ``wanted`` does not map settable fields to accepted values.
    """
    known = [setting.name for setting in SETTINGS]
    if not isinstance(wanted, Mapping) or not wanted:
        raise ConfigError(f"a JSON object with one or more of {', '.join(known)} is expected")
    for name in wanted:
        if name not in known:
            raise ConfigError(
                f"{name!r} cannot be changed at run time; accepted: {', '.join(known)}"
            )
    return {name: checked(name, value) for name, value in wanted.items()}


def change(scheduler: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Change all fields or, if one is refused, none; what each was and is.

    Raises:
        ConfigError: a value is not accepted, or cannot be had on this rank.
    """
    values = check(wanted)
    calls = calls_of(scheduler.tree_cache)
    assert calls is not None
    changed: dict[str, Any] = {}
    chosen = [setting for setting in SETTINGS if setting.name in values]
    try:
        for setting in chosen:
            new = values[setting.name]
            new = list(new) if isinstance(new, tuple) else new
            old = setting.apply(scheduler, new)
            changed[setting.name] = {"from": old, "to": new}
    except ConfigError:
        for setting in chosen:
            if setting.name in changed:
                setting.apply(scheduler, changed[setting.name]["from"])
        raise
    calls.scout.config = replace(calls.scout.config, **values)
    for name, step in changed.items():
        calls.counters.changed(name, step["from"], step["to"])
        logger.info("scout: %s changed from %r to %r by request", name, step["from"], step["to"])
    return changed


def answer(scheduler: Any, body: Mapping[str, Any]) -> dict[str, Any]:
    """Carry out ``{"do": "state" | "config" | "snapshot", ...}`` on this rank."""
    cache = scheduler.tree_cache
    match body.get("do"):
        case "state":
            result = overview(cache, warmup_state(scheduler)) or {}
        case "config":
            result = {"changed": change(scheduler, body["set"])}
        case "snapshot":
            result = _write_state(calls_of(cache))
        case other:
            raise ConfigError(f"unknown request {other!r}")
    return {"dp_rank": dp_rank(), **result}


def _write_state(calls: Any) -> dict[str, Any]:
    file = None if calls.upkeep is None else calls.upkeep.state_file
    if file is None:
        raise ConfigError("no state_path is configured; --radix-eviction-policy-config takes one")
    begun = file.write(calls.scout)
    return {"begun": begun, "state": file.state()}


def warmup_state(scheduler: Any) -> dict[str, float] | None:
    """What the warm-up says of itself, None without one."""
    warmup = getattr(scheduler, "scout_warmup", None)
    return None if warmup is None else warmup.state()


def dp_rank() -> int:
    """This rank's place among the data-parallel ones, 0 without data parallelism."""
    from sglang.srt.runtime_context import get_parallel

    return int(get_parallel().dp_rank or 0)


def on_control(handle: Callable[..., None], scheduler: Any, request: Any) -> None:
    """AROUND Scheduler.handle_dumper_control: our requests come as its ``method`` "scout"."""
    if request.method != METHOD or calls_of(scheduler.tree_cache) is None:
        handle(scheduler, request)
        return
    from sglang.srt.managers.io_struct import DumperControlReqOutput

    try:
        reply = DumperControlReqOutput(success=True, response=[answer(scheduler, request.body)])
    except ConfigError as error:
        reply = DumperControlReqOutput(success=False, response=[], error=str(error))
    except Exception as error:
        FAULTS.record("control")
        failed = f"{type(error).__name__} in this rank; see its log"
        reply = DumperControlReqOutput(success=False, response=[], error=failed)
    scheduler.ipc_channels.send_to_tokenizer.send_output(reply, request)
