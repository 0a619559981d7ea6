"""``python -m scout_sglang.launch``: SGLang's server, ready for scout.

A drop-in for ``python -m sglang.launch_server``: the arguments are SGLang's, and SGLang's own
command runs with them. Where the user left something open, flags are added, one printed line
each; nothing given on the command line or in a ``--config`` file is ever overridden.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import runpy
import sys
from argparse import Namespace
from dataclasses import dataclass
from importlib import metadata
from typing import NoReturn

from radix_policy.config import POLICIES
from scout_sglang import compat, manual, plugin

SERVER = "sglang.launch_server"
EMBEDDED = "embedded"
EXPOSE = "--scout-expose-prompts"


@dataclass(frozen=True)
class Flag:
    """A flag to append, and why; a switch has no value."""

    name: str
    value: str
    why: str

    @property
    def words(self) -> list[str]:
        return [self.name, self.value] if self.value else [self.name]


def main(argv: list[str]) -> None:
    """Run the server; returns or raises SystemExit exactly as SGLang's own command does."""
    if problem := compat.version_problem():
        fail(problem)
    if {"-h", "--help"} & set(argv):
        print(manual.text(), end="", flush=True)
        return serve(argv)
    load_plugin()
    if EXPOSE in argv:
        argv = exposing([word for word in argv if word != EXPOSE])
    for flag in (flags := additions(argv)):
        print(f"scout: added {' '.join(flag.words)} ({flag.why})", file=sys.stderr)
    serve([*argv, *(word for flag in flags for word in flag.words)])


def serve(argv: list[str]) -> None:
    sys.argv[1:] = argv
    runpy.run_module(SERVER, run_name="__main__", alter_sys=True)


def fail(sentence: str) -> NoReturn:
    """Stop as argparse does: one line, status 2."""
    print(f"scout-sglang: error: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def load_plugin() -> None:
    """Load SGLang's plugins and make sure that ours is among them."""
    from sglang.srt.plugins import load_plugins
    from sglang.srt.utils.common import suppress_noisy_warnings

    suppress_noisy_warnings()
    load_plugins()
    try:
        plugin.verify(hook for hook in plugin.HOOKS if hook.always)
    except compat.UnsupportedError as error:
        if chosen := os.environ.get("SGLANG_PLUGINS"):
            fail(f"SGLANG_PLUGINS={chosen} leaves out the plugin 'scout'; add it or unset it.")
        fail(str(error))


def additions(argv: list[str]) -> list[Flag]:
    """What to append to ``argv``; appended last, so that argparse lets it win."""
    parsed = parse(argv)
    if parsed is None:  # SGLang says best what is wrong with these arguments
        return []
    given, values = parsed
    return [*embedded_model(given), *cpu_flags(given), *policy_flag(given, values)]


def parse(argv: list[str]) -> tuple[Namespace, Namespace] | None:
    """Read ``argv`` and its ``--config`` file as SGLang does.

    Returns:
        What the user gave, and the same with SGLang's defaults below it; None where SGLang
        would refuse these arguments.
    """
    from sglang.srt.server_args import ServerArgs

    parser = _Parser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    defaults = {action.dest: action.default for action in parser._actions}
    for action in parser._actions:
        action.default = argparse.SUPPRESS
    # SGLang parses once more and reports; deprecation warnings are not to appear twice.
    logging.disable(logging.WARNING)
    try:
        if "--config" in argv:
            from sglang.srt.utils.server_args_config_parser import ConfigArgumentMerger

            argv = ConfigArgumentMerger(parser).merge_config_with_args(argv)
        given = parser.parse_args(argv)
    except Exception:
        return None
    finally:
        logging.disable(logging.NOTSET)
    return given, Namespace(**{**defaults, **vars(given)})


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def embedded_model(given: Namespace) -> list[Flag]:
    """The folder behind ``--model-path embedded``, converted on first use."""
    if getattr(given, "model_path", None) != EMBEDDED:
        return []
    from scout_sglang.embedded import embedded_model_path

    try:
        path = str(embedded_model_path())
    except (ImportError, OSError, RuntimeError) as error:
        fail(f"--model-path embedded could not be prepared: {error}")
    flags = [Flag("--model-path", path, f"{EMBEDDED} stands for it")]
    if "served_model_name" not in given:
        flags.append(Flag("--served-model-name", EMBEDDED, "instead of that path"))
    return flags


def cpu_flags(given: Namespace) -> list[Flag]:
    """What a machine without an accelerator needs; nothing where the user chose a device.

    The sampling and grammar backends are not among them: SGLang picks working ones for
    ``--device cpu`` by itself.
    """
    cpu_engine = os.environ.get("SGLANG_USE_CPU_ENGINE", "0") == "1"
    if getattr(given, "device", "cpu") != "cpu" or cpu_engine or has_accelerator():
        return []
    if not metadata.entry_points(group="sglang.srt.platforms"):
        print(
            "scout: no platform plugin for plain CPUs is installed; without one "
            "(pip install ./launch/cpu) the server stops while it builds the model",
            file=sys.stderr,
        )
    why = "no accelerator found"
    candidates = (
        ({"device"}, Flag("--device", "cpu", why)),
        (
            {"attention_backend", "prefill_attention_backend", "decode_attention_backend"},
            Flag("--attention-backend", "torch_native", why),
        ),
        (
            {"mem_fraction_static", "max_total_tokens"},
            Flag("--mem-fraction-static", "0.2", f"{why}; of the free main memory"),
        ),
        ({"sleep_on_idle"}, Flag("--sleep-on-idle", "", f"{why}; else an idle server spins")),
    )
    return [flag for dests, flag in candidates if not dests & vars(given).keys()]


def has_accelerator() -> bool:
    import torch

    return bool(torch.cuda.is_available() or torch.accelerator.is_available())


def exposing(argv: list[str]) -> list[str]:
    """``argv`` with the policy's configuration allowing prompts to be shown."""
    parsed = parse(argv)
    if parsed is None:
        return argv
    given, values = parsed
    policy = getattr(given, "radix_eviction_policy", next(iter(POLICIES)))
    if policy not in POLICIES:
        fail(f"{EXPOSE} does not work with --radix-eviction-policy {policy}; drop one of them.")
    config = values.radix_eviction_policy_config or {}
    config = json.loads(config) if isinstance(config, str) else dict(config)
    shown = json.dumps({**config, "expose_prompts": True})
    return [*argv, "--radix-eviction-policy", policy, "--radix-eviction-policy-config", shown]


def policy_flag(given: Namespace, values: Namespace) -> list[Flag]:
    """scout where the user named no policy, unless its flags speak against it."""
    if "radix_eviction_policy" in given:
        return []
    policy = next(iter(POLICIES))
    tuned = bool(getattr(given, "radix_eviction_policy_config", None))
    problem = compat.flag_problem(policy, values)
    if problem and not tuned:
        print(f"scout: keeping SGLang's own eviction policy: {problem}", file=sys.stderr)
        return []
    if not tuned:  # a configuration is ours or nobody's: then a refusal must stop the server
        plugin.fall_back_to_stock()
    return [Flag("--radix-eviction-policy", policy, "no policy was named")]


if __name__ == "__main__":
    main(sys.argv[1:])
