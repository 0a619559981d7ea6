"""Entry point of group ``sglang.srt.plugins``: the policy names, every hook, the check at start.

SGLang calls :func:`register` in each of its processes. It adds the policy names to
``--radix-eviction-policy`` and puts the check in front of argument resolution; nothing else
happens until that check has accepted one of our policies. It then names the policy in the
environment, which the ranks inherit, and there the remaining hooks are put in place. Under any
other policy SGLang runs unhooked.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from radix_policy.config import POLICIES, ConfigError, parse_config
from scout_sglang import compat

logger = logging.getLogger(__name__)

ACTIVE_ENV = "SCOUT_SGLANG_POLICY"
# Imported before register() runs in a rank and in the DP controller, but not in the
# detokenizer, which would only grow by what the hooks import.
RANK_MODULE = "sglang.srt.managers.scheduler"


@dataclass(frozen=True)
class Hook:
    """One patch: ``function`` ("module:name", imported when applied) on SGLang's ``target``.

    ``kind`` is SGLang's: "around" (called with the original first), "before", "after"
    (called with the result first) or "replace". ``always`` marks the few that are in place
    under every policy, ``serves`` those for the process of the HTTP server alone.
    """

    target: str
    function: str
    kind: str
    always: bool = False
    serves: bool = False

    def load(self) -> Callable[..., Any]:
        module, _, name = self.function.partition(":")
        return getattr(importlib.import_module(module), name)


ARGS = "sglang.srt.server_args.ServerArgs"
CACHE = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache"
SCHEDULER = "sglang.srt.managers.scheduler.Scheduler"
HTTP = "sglang.srt.entrypoints.http_server"
PARTS = "sglang.srt.managers.scheduler_components"
STATE = f"{PARTS}.internal_state.SchedulerInternalStateController"
RECEIVER = f"{PARTS}.request_receiver.SchedulerRequestReceiver"
STREAMER = f"{PARTS}.output_streamer.SchedulerOutputStreamer"
REPORTER = f"{PARTS}.metrics_reporter.SchedulerMetricsReporter"

HOOKS: tuple[Hook, ...] = (
    Hook(f"{ARGS}.from_cli_args", "scout_sglang.plugin:mark_command_line", "after", always=True),
    Hook(f"{ARGS}.resolve_once", "scout_sglang.plugin:check_start", "around", always=True),
    Hook(f"{CACHE}.__init__", "scout_sglang.tree_core:on_cache_init", "around"),
    Hook(f"{CACHE}.checkpoint_into_tree", "scout_sglang.tree_core:on_checkpoint", "around"),
    Hook(f"{CACHE}.evict_for_alloc", "scout_sglang.tree_core:on_evict_for_alloc", "around"),
    Hook(f"{CACHE}.on_release", "scout_sglang.dispatch:on_release", "around"),
    Hook(f"{SCHEDULER}._add_request_to_queue", "scout_sglang.dispatch:on_queue", "around"),
    Hook(f"{SCHEDULER}._release_aborted_request", "scout_sglang.dispatch:on_queue_abort", "around"),
    Hook(f"{SCHEDULER}.ingest_requests", "scout_sglang.upkeep:on_loop", "before"),
    Hook(f"{SCHEDULER}.handle_shutdown", "scout_sglang.upkeep:on_shutdown", "before"),
    Hook(f"{SCHEDULER}.handle_dumper_control", "scout_sglang.control:on_control", "around"),
    Hook(f"{SCHEDULER}.init_request_receiver", "scout_sglang.warmup:on_receiver", "after"),
    Hook(f"{RECEIVER}._pull_raw_reqs", "scout_sglang.warmup:on_pull", "around"),
    Hook(f"{SCHEDULER}.maybe_sleep_on_idle", "scout_sglang.warmup:on_sleep", "around"),
    Hook(f"{SCHEDULER}._create_generation_req", "scout_sglang.warmup_request:on_create", "around"),
    Hook(f"{SCHEDULER}.send_abort_output", "scout_sglang.warmup_request:on_abort_output", "around"),
    Hook(f"{STREAMER}.stream_output", "scout_sglang.warmup_request:on_stream", "around"),
    Hook(
        f"{REPORTER}.report_prefill_stats", "scout_sglang.warmup_request:on_prefill_stats", "around"
    ),
    Hook(f"{STATE}.get_internal_state", "scout_sglang.server_state:on_internal_state", "after"),
    Hook(f"{HTTP}.launch_server", "scout_sglang.http:on_launch", "around", serves=True),
)

_declared: set[Hook] = set()
_policy_is_ours_by_default = False


def register() -> None:
    """Called by SGLang in every process, before arguments are parsed."""
    from sglang.srt.arg_groups import choices
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    names = [name for name in POLICIES if name not in choices.RADIX_EVICTION_POLICY_CHOICES]
    choices.add_radix_eviction_policy_choices(names)
    in_active_rank = active_policy() is not None and RANK_MODULE in sys.modules
    for hook in HOOKS:
        ours = hook.always or (in_active_rank and not hook.serves)
        if ours and hook not in _declared:
            # SGLang applies them when every plugin has registered, so that they combine.
            HookRegistry.register(hook.target, hook.load(), HookType(hook.kind))
            _declared.add(hook)


def apply(hooks: Iterable[Hook]) -> None:
    """Put hooks in place now, after SGLang has applied those of all plugins.

    SGLang logs a target that cannot be resolved and goes on: call :func:`verify` next.
    """
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for hook in hooks:
        if hook in _declared:
            continue
        kind, function = HookType(hook.kind), hook.load()
        if hook.target in HookRegistry._patched:
            # Another plugin's hook is there; apply_hooks() passes over a patched target.
            HookRegistry._apply_target(hook.target, [(kind, function, None)])
        else:
            HookRegistry.register(hook.target, function, kind)
            HookRegistry.apply_hooks()
        _declared.add(hook)


def verify(hooks: Iterable[Hook] | None = None) -> None:
    """Raise :class:`compat.UnsupportedError` unless every target was found and patched."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    missing = [h.target for h in hooks or HOOKS if h.target not in HookRegistry._patched]
    if missing:
        raise compat.UnsupportedError(
            f"SGLang {compat.installed_sglang()} lacks {', '.join(missing)}, which scout-sglang "
            f"hooks into; install sglang=={compat.TESTED_SGLANG[-1]}."
        )


def rank_hooks() -> list[Hook]:
    """Those that a rank needs; the rest would make it import SGLang's HTTP server."""
    return [hook for hook in HOOKS if not hook.serves]


def active_policy() -> str | None:
    """The policy of ours that the start-up check accepted for this server, or None."""
    name = os.environ.get(ACTIVE_ENV)
    return name if name in POLICIES else None


def fall_back_to_stock() -> None:
    """Let a refusal by model family mean SGLang's default policy: the user named none."""
    global _policy_is_ours_by_default
    _policy_is_ours_by_default = True


def mark_command_line(server_args: Any, *_: Any) -> None:
    """AFTER ServerArgs.from_cli_args: a refusal ends the command instead of raising."""
    server_args._scout_command_line = True


def check_start(resolve_once: Callable[[Any], None], server_args: Any) -> None:
    """AROUND ServerArgs.resolve_once: refuse before any model is loaded, or activate.

    Raises:
        compat.UnsupportedError: one sentence saying what is wrong and what to do instead. For
            arguments from a command line it is printed and the process exits with status 2.
    """
    if getattr(server_args, "_scout_checked", False):
        resolve_once(server_args)
        return
    server_args._scout_checked = True
    os.environ.pop(ACTIVE_ENV, None)
    policy = server_args.radix_eviction_policy
    if policy not in POLICIES:
        resolve_once(server_args)
        return
    try:
        _check_flags(policy, server_args)
        resolve_once(server_args)
        _activate(policy, server_args)
    except (compat.UnsupportedError, ConfigError) as error:
        _refuse(server_args, error)


def _check_flags(policy: str, server_args: Any) -> None:
    problem = compat.version_problem() or compat.flag_problem(policy, server_args)
    if problem:
        raise compat.UnsupportedError(problem)
    parse_config(policy, server_args.radix_eviction_policy_config)


def _activate(policy: str, server_args: Any) -> None:
    from sglang.srt.arg_groups.overrides import declare_resolution, resolving_view

    if problem := compat.resolved_problem(policy, server_args):
        if not _policy_is_ours_by_default:
            raise compat.UnsupportedError(problem)
        print(f"scout: keeping SGLang's own eviction policy: {problem}", file=sys.stderr)
        declare_resolution(server_args, "scout_sglang", radix_eviction_policy="lru")
        return
    view = resolving_view(server_args)
    for sentence in [*compat.untested(view), *compat.limited(view)]:
        logger.warning("scout: %s", sentence)
    # An Engine has no HTTP server, and need not import it.
    served = getattr(server_args, "_scout_command_line", False)
    hooks = HOOKS if served else rank_hooks()
    apply(hooks)
    verify(hooks)
    os.environ[ACTIVE_ENV] = policy


def _refuse(server_args: Any, error: Exception) -> None:
    if not getattr(server_args, "_scout_command_line", False):
        raise error
    print(f"scout-sglang: error: {error}", file=sys.stderr)
    raise SystemExit(2)
