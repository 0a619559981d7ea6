"""What an operator asks of a running rank: its state, another setting, a snapshot.

SGLang's HTTP process sends such a request as one of SGLang's own control messages, so that every
rank carries it out at the same place in its stream of work.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from radix_policy.config import ConfigError
from scout_sglang.dispatch import calls_of
from scout_sglang.faults import FAULTS
from scout_sglang.overview import overview

logger = logging.getLogger(__name__)

METHOD = "scout"
MODES = ("on", "shadow")


@dataclass(frozen=True)
class Setting:
    """A field that can be changed at run time.

    ``check`` raises :class:`ConfigError` for a value that is not accepted; ``apply`` gets the
    scheduler and the value, and returns what the value was before.
    """

    name: str
    check: Callable[[Any], None]
    apply: Callable[[Any, Any], Any]


def _check_mode(value: Any) -> None:
    if value not in MODES:
        raise ConfigError(f"mode must be one of {', '.join(MODES)}, got {value!r}")


def _set_mode(scheduler: Any, value: str) -> str:
    from scout_sglang.tree_core import set_mode

    return set_mode(scheduler.tree_cache, value)


def _check_keep(value: Any) -> None:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise ConfigError(f"keep must be a list of texts, got {value!r}")


def _set_keep(scheduler: Any, value: list[str]) -> list[str]:
    warmup = getattr(scheduler, "scout_warmup", None)
    if warmup is None:
        raise ConfigError("keep cannot be changed: this server has no warm-up")
    before = list(warmup.keep_list.entries)
    try:
        warmup.set_keep(value)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    return before


SETTINGS: tuple[Setting, ...] = (
    Setting("mode", _check_mode, _set_mode),
    Setting("keep", _check_keep, _set_keep),
)


def check(wanted: Any) -> None:
    """Raise :class:`ConfigError` unless ``wanted`` maps settable fields to accepted values."""
    known = {setting.name: setting for setting in SETTINGS}
    if not isinstance(wanted, Mapping) or not wanted:
        raise ConfigError(f"a JSON object with one or more of {', '.join(known)} is expected")
    for name, value in wanted.items():
        if name not in known:
            raise ConfigError(
                f"{name!r} cannot be changed at run time; accepted: {', '.join(known)}"
            )
        known[name].check(value)


def change(scheduler: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Check all fields, then change them; what each was and is."""
    check(wanted)
    calls = calls_of(scheduler.tree_cache)
    assert calls is not None
    changed = {}
    for setting in SETTINGS:
        if setting.name in wanted:
            new = wanted[setting.name]
            old = setting.apply(scheduler, new)
            calls.counters.changed(setting.name, old, new)
            logger.info("scout: %s changed from %r to %r by request", setting.name, old, new)
            changed[setting.name] = {"from": old, "to": new}
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
