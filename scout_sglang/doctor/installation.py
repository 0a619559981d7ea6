"""Checks of the installed SGLang, of the plugin in it, and of a command line for it.

Each check is one sentence; a failed one says the way out. Nothing is started and no weights are
read. The rules themselves stand in ``scout_sglang.compat``, which the server's start obeys too.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import pkgutil
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from radix_policy.config import POLICIES, ConfigError, parse_config
from scout_sglang import compat, launch, plugin

OK, WARNING, FAILED = "ok", "warning", "failed"


class Check(NamedTuple):
    """``level`` is ok, warning or failed; ``text`` a sentence, with the way out if not ok."""

    name: str
    level: str
    text: str

    def as_json(self) -> dict[str, str]:
        return {"check": self.name, "level": self.level, "text": self.text}


def check_all(argv: Sequence[str]) -> list[Check]:
    """All checks; those of the command line only if it is not empty and SGLang can read it."""
    checks = [*check_install()]
    if all(check.level != FAILED for check in checks if check.name == "sglang"):
        checks += check_hooks()
        checks += check_machine()
        if argv:
            checks += check_command(list(argv))
    return checks


def check_install() -> Iterator[Check]:
    """Python, SGLang's version, and whether SGLang finds the plugin."""
    version = sys.version_info
    supported = (3, 10) <= version[:2] <= (3, 13)
    name = f"Python {version.major}.{version.minor}"
    yield Check(
        "python",
        OK if supported else WARNING,
        name if supported else f"{name} is untested; use Python 3.10 to 3.13.",
    )
    problem = compat.version_problem()
    yield Check("sglang", FAILED if problem else OK, problem or f"SGLang {installed()}")
    if not any(metadata.entry_points(group="sglang.srt.plugins", name="scout")):
        yield Check(
            "plugin",
            FAILED,
            "SGLang would not find the plugin: scout-sglang is not installed as a distribution "
            "in this Python; pip install it (in a checkout: pip install -e .).",
        )
        return
    chosen = os.environ.get("SGLANG_PLUGINS")
    if chosen and "scout" not in (name.strip() for name in chosen.split(",")):
        yield Check(
            "plugin",
            FAILED,
            f"SGLANG_PLUGINS={chosen} leaves out the plugin 'scout'; add it or unset it.",
        )
        return
    yield Check("plugin", OK, "SGLang finds the plugin 'scout'")


def installed() -> str:
    return compat.installed_sglang() or "none"


def check_hooks() -> Iterator[Check]:
    """Every place in SGLang that is hooked, and every function of ours that goes there."""
    broken = []
    for hook in plugin.HOOKS:
        try:
            owner, _, name = hook.target.rpartition(".")
            if not callable(getattr(_quietly(pkgutil.resolve_name, owner), name)):
                raise TypeError(f"{hook.target} cannot be called")
            hook.load()
        except Exception as error:
            broken.append(Check("hooks", FAILED, _hook_problem(hook, error)))
    yield from broken or [Check("hooks", OK, f"all {len(plugin.HOOKS)} hooks resolve")]


def _hook_problem(hook: plugin.Hook, error: Exception) -> str:
    return (
        f"the hook on {hook.target} does not resolve ({type(error).__name__}: {error}); install "
        f"sglang=={compat.TESTED_SGLANG[-1]} and the scout-sglang made for it."
    )


def check_machine() -> Iterator[Check]:
    """Which tree core SGLang can use, and whether there is something to compute on."""
    chosen = os.environ.get(compat.TREE_CORE_ENV, "")
    if problem := _quietly(_rust_problem):
        text = f"SGLang cannot use its Rust tree core ({problem}); scout runs on the Python one."
        yield Check("tree core", WARNING, text)
    elif chosen == "python":
        text = f"{compat.TREE_CORE_ENV}=python asks for the slower tree core; unset it."
        yield Check("tree core", WARNING, text)
    else:
        yield Check("tree core", OK, "SGLang's Rust tree core can be used")
    if _quietly(launch.has_accelerator):
        yield Check("device", OK, "an accelerator is there")
    elif any(metadata.entry_points(group="sglang.srt.platforms")):
        yield Check("device", OK, "no accelerator, and a platform plugin for plain CPUs is there")
    else:
        text = "no accelerator, and no platform plugin for plain CPUs; pip install ./launch/cpu."
        yield Check("device", WARNING, text)


def _rust_problem() -> str | None:
    try:
        from sglang.srt.mem_cache.rust_tree_core import adapter
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None if hasattr(adapter, "RustUnifiedTreeCore") else "its class is missing"


def check_command(argv: list[str]) -> Iterator[Check]:
    """What the start-up check would say of these flags: every refusal, not only the first."""
    try:
        _quietly(launch.load_plugin)
    except SystemExit:
        yield Check("plugin", FAILED, "SGLang's plugins cannot be loaded; see the checks above.")
        return
    parsed = _quietly(launch.parse, argv)
    if parsed is None:
        yield Check("flags", FAILED, f"SGLang cannot read these flags: {_complaint(argv)}")
        return
    given, values = parsed
    policy = getattr(given, "radix_eviction_policy", None) or next(iter(POLICIES))
    if policy not in POLICIES:
        text = f"--radix-eviction-policy {policy} is SGLang's own, ours stay inert: {_ours()}."
        yield Check("policy", WARNING, text)
        return
    refused = list(_refusals(policy, values))
    yield from refused
    warnings = [*compat.untested(values), *compat.limited(values)]
    yield from (Check("flags", WARNING, text) for text in warnings)
    if refused:
        return
    yield Check("flags", OK, f"no flag speaks against --radix-eviction-policy {policy}")
    yield _check_model(policy, argv, given)


def _ours() -> str:
    return ", ".join(POLICIES)


def _refusals(policy: str, values: Namespace) -> Iterator[Check]:
    for rule in compat.REFUSED:
        if rule.applies(values):
            text = f"{policy} does not work with {rule.flag}: {rule.why}; {rule.instead}."
            yield Check("flags", FAILED, text)
    try:
        parse_config(policy, values.radix_eviction_policy_config)
    except ConfigError as error:
        yield Check("configuration", FAILED, str(error))


def _check_model(policy: str, argv: list[str], given: Namespace) -> Check:
    """Resolve the arguments as the server does, which reads the model's ``config.json``."""
    path = getattr(given, "model_path", None)
    if path == launch.EMBEDDED:
        return Check("model", OK, f"{policy} works with the embedded model")
    if path is None or not (Path(path) / "config.json").is_file():
        text = f"the model {path or ''} is not a folder here, so its family was not looked at; "
        return Check("model", WARNING, f"{text}name a local copy to have it checked.")
    try:
        _quietly(_resolve, policy, argv)
    except (compat.UnsupportedError, ConfigError) as error:
        return Check("model", FAILED, str(error))
    except (Exception, SystemExit) as error:
        return Check("model", WARNING, f"SGLang itself stops at these flags: {_one_line(error)}.")
    return Check("model", OK, f"{policy} works with the model in {path}")


def _resolve(policy: str, argv: list[str]) -> None:
    from sglang.srt.server_args import prepare_server_args

    # Named, so that the launcher does not fall back to SGLang's own where ours is refused.
    argv = [*argv, "--radix-eviction-policy", policy]
    added = [word for flag in launch.additions(argv) for word in flag.words]
    server_args: Any = prepare_server_args([*argv, *added])
    server_args._scout_command_line = False  # a refusal is to be an exception
    server_args.resolve_once()


def _complaint(argv: list[str]) -> str:
    """What SGLang's own parser says: its last line."""
    from sglang.srt.server_args import ServerArgs

    parser = launch._Parser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    try:
        _quietly(parser.parse_args, argv)
    except (Exception, SystemExit) as error:
        return f"{_one_line(error)}."
    return "the --config file cannot be read."


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _quietly(function: Callable[..., Any], *args: Any) -> Any:
    """Call it with SGLang's own chatter kept from the report."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return function(*args)
    finally:
        logging.disable(logging.NOTSET)
