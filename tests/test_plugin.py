"""The plugin inside SGLang: registered, complete, and inert under other policies."""

import os
import pkgutil
import subprocess
import sys
from importlib import metadata

import pytest
from sglang.srt.plugins.hook_registry import HookRegistry

from radix_policy.config import POLICIES
from scout_sglang import compat, plugin

DUMMY = ["--model-path", "dummy", "--device", "cpu"]


def after_spy(result, *args, **kwargs):
    seen.append(result)


def around_spy(original, *args, **kwargs):
    seen.append("around")
    return original(*args, **kwargs)


seen: list = []


def row(target, function=f"{__name__}:after_spy", kind="after"):
    return plugin.Hook(target, function, kind)


def test_sglang_finds_the_plugin_by_its_entry_point():
    entries = metadata.entry_points(group="sglang.srt.plugins", name="scout")
    assert next(iter(entries)).load() is plugin.register


def test_importing_it_brings_in_neither_torch_nor_numpy():
    code = (
        "import sys, scout_sglang.plugin;"
        "sys.exit(len({'torch', 'numpy', 'sglang'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0


@pytest.mark.parametrize("hook", plugin.HOOKS, ids=lambda hook: hook.target)
def test_every_hook_target_resolves_in_the_installed_sglang(hook):
    owner, _, name = hook.target.rpartition(".")
    assert callable(getattr(pkgutil.resolve_name(owner), name))
    assert callable(hook.load())


@pytest.mark.parametrize("policy", POLICIES)
def test_an_accepted_policy_is_named_to_the_ranks_with_all_hooks_in_place(policy, sglang_start):
    sglang_start([*DUMMY, "--radix-eviction-policy", policy])
    assert plugin.active_policy() == policy
    plugin.verify()


@pytest.mark.parametrize("policy", ["lru", "lfu", "slru"])
def test_under_a_stock_policy_nothing_is_activated(policy, sglang_start, monkeypatch):
    monkeypatch.setenv(plugin.ACTIVE_ENV, "scout")
    monkeypatch.setattr(plugin, "apply", lambda hooks: pytest.fail("hooks were applied"))
    sglang_start([*DUMMY, "--radix-eviction-policy", policy])
    assert plugin.active_policy() is None


def test_the_configuration_of_a_stock_policy_is_left_to_sglang(sglang_start):
    config = '{"protected_threshold": 4, "unknown": 1}'
    args = ["--radix-eviction-policy", "slru", "--radix-eviction-policy-config", config]
    resolved = sglang_start([*DUMMY, *args])
    assert resolved.radix_eviction_policy_config == {"protected_threshold": 4, "unknown": 1}


@pytest.mark.parametrize(
    ("policy", "config", "named"),
    [
        ("scout", '{"horizon": 3}', ["unknown field 'horizon'", "prior_weight"]),
        ("scout", '{"refresh": 0}', ["scout.refresh", "from 1 to 10000"]),
        ("cachescout", '{"variant": "global"}', ["cachescout.variant", "per-session, literal"]),
        ("cachescout", "[1]", ["JSON object"]),
    ],
)
def test_a_wrong_configuration_stops_the_command_and_names_the_field(
    policy, config, named, sglang_start, capsys
):
    with pytest.raises(SystemExit) as stopped:
        sglang_start(
            [*DUMMY, "--radix-eviction-policy", policy, "--radix-eviction-policy-config", config]
        )
    assert stopped.value.code == 2
    error = capsys.readouterr().err
    assert all(part in error for part in named)


def test_without_a_command_line_a_refusal_is_an_exception(sglang_start):
    from sglang.srt.server_args import ServerArgs

    args = ServerArgs(model_path="dummy", radix_eviction_policy="scout", disable_radix_cache=True)
    with pytest.raises(compat.UnsupportedError, match="drop --disable-radix-cache"):
        args.resolve_once()


def test_a_hook_target_that_sglang_lacks_stops_the_command(sglang_start, monkeypatch, capsys):
    gone = "sglang.srt.mem_cache.unified_radix_cache.UnifiedRadixCache.no_such_method"
    monkeypatch.setattr(plugin, "HOOKS", (*plugin.HOOKS, row(gone)))
    with pytest.raises(SystemExit) as stopped:
        sglang_start([*DUMMY, "--radix-eviction-policy", "scout"])
    HookRegistry._hooks.pop(gone)
    assert stopped.value.code == 2
    assert f"lacks {gone}" in capsys.readouterr().err
    assert plugin.ACTIVE_ENV not in os.environ


def test_a_hook_reaches_a_target_that_another_plugin_has_patched(sglang_start, monkeypatch):
    target = "sglang.srt.server_args.compute_world_size"
    original = pkgutil.resolve_name(target)
    HookRegistry.register(target, around_spy, plugin_kind("around"))
    HookRegistry.apply_hooks()
    try:
        plugin.apply([row(target)])
        seen.clear()
        assert pkgutil.resolve_name(target)(dp_size=1, tp_size=2, pp_size=3) == 6
        assert seen == ["around", 6]
    finally:
        HookRegistry._hooks.pop(target)
        HookRegistry._patched.discard(target)
        monkeypatch.setattr(target, original)


def plugin_kind(name):
    from sglang.srt.plugins.hook_registry import HookType

    return HookType(name)
