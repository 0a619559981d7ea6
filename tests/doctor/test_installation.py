"""The doctor's checks of the install and of a command line: each failure says the way out."""

import json

import pytest

from radix_policy.config import POLICIES
from scout_sglang import compat, plugin
from scout_sglang.doctor.__main__ import main
from tests.test_compat import FLAGS, SLIDING, SMALL, UNTRIED


@pytest.fixture
def doctor(capsys, sglang_start):
    """Run it with flags: exit status and checks. ``sglang_start`` puts the environment back."""

    def run(*flags):
        status = main(["--json", *flags])
        checks = json.loads(capsys.readouterr().out)["checks"]
        return status, {(check["check"], check["level"]): check["text"] for check in checks}

    return run


@pytest.fixture
def model(tmp_path):
    def write(**config):
        (tmp_path / "config.json").write_text(json.dumps(SMALL | config))
        return [
            "--model-path",
            str(tmp_path),
            "--device",
            "cpu",
            "--attention-backend=torch_native",
        ]

    return write


def test_a_sound_install_passes_every_check(doctor):
    status, checks = doctor()
    assert status == 0
    assert not any(level == "failed" for _, level in checks)
    assert checks["hooks", "ok"] == f"all {len(plugin.HOOKS)} hooks resolve"


def test_another_sglang_fails_and_nothing_of_it_is_touched(doctor, monkeypatch):
    monkeypatch.setattr(compat, "installed_sglang", lambda: "0.6.0")
    monkeypatch.setattr(plugin, "HOOKS", None)
    status, checks = doctor("--model-path", "m")
    assert status == 1
    assert "install sglang==0.5.23" in checks["sglang", "failed"]


@pytest.mark.parametrize(
    ("target", "function"),
    [
        ("sglang.srt.managers.scheduler.Scheduler.gone", plugin.HOOKS[-1].function),
        ("sglang.no_such_module.f", plugin.HOOKS[-1].function),
        (plugin.HOOKS[-1].target, "scout_sglang.dispatch:gone"),
    ],
)
def test_a_hook_that_does_not_resolve_is_named(target, function, doctor, monkeypatch):
    monkeypatch.setattr(plugin, "HOOKS", (*plugin.HOOKS, plugin.Hook(target, function, "after")))
    status, checks = doctor()
    assert status == 1
    assert target in checks["hooks", "failed"] and "install sglang==" in checks["hooks", "failed"]


def test_a_plugin_that_the_environment_leaves_out_is_named(doctor, monkeypatch):
    monkeypatch.setenv("SGLANG_PLUGINS", "another")
    status, checks = doctor()
    assert status == 1
    assert "add it or unset it" in checks["plugin", "failed"]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_command_line_that_works_passes_with_its_model(policy, doctor, model):
    status, checks = doctor(*model(), "--radix-eviction-policy", policy)
    assert status == 0
    assert f"{policy} works with the model" in checks["model", "ok"]


def test_the_flags_that_the_launcher_would_add_need_not_be_given(doctor, model):
    status, checks = doctor(*model()[:2])
    assert status == 0
    assert "scout works with the model" in checks["model", "ok"]


def test_every_flag_that_speaks_against_the_policy_is_named_at_once(capsys, sglang_start):
    flags = [word for words in FLAGS.values() for word in words]
    assert main(["--model-path", "m", *flags]) == 1
    shown = capsys.readouterr().out
    for flag in FLAGS:
        rule = next(rule for rule in compat.REFUSED if rule.flag == flag)
        assert f"{flag}: {rule.why}; {rule.instead}" in shown


@pytest.mark.parametrize(
    ("flags", "warning"),
    [
        (UNTRIED["--pp-size"], "--pp-size is untested"),
        (["--tokenizer-worker-num", "2"], "with --tokenizer-worker-num above 1 GET /scout"),
    ],
)
def test_flags_that_are_untested_or_cost_a_part_are_warnings(doctor, flags, warning):
    status, checks = doctor("--model-path", "m", *flags)
    assert status == 0
    assert warning in checks["flags", "warning"]


def test_a_model_that_the_policy_cannot_serve_fails_by_its_config(doctor, model):
    status, checks = doctor(*model(**SLIDING))
    assert status == 1
    assert "--disable-hybrid-swa-memory" in checks["model", "failed"]


def test_a_model_that_is_not_here_is_said_to_be_unchecked(doctor):
    status, checks = doctor("--model-path", "somebody/some-model")
    assert status == 0
    assert "name a local copy" in checks["model", "warning"]


@pytest.mark.parametrize(
    ("flags", "check", "named"),
    [
        (["--no-such-flag"], "flags", "--model-path"),
        (["--model-path", "m", "--no-such-flag"], "flags", "--no-such-flag"),
        (
            ["--model-path", "m", "--radix-eviction-policy-config", '{"refresh": 0}'],
            "configuration",
            "from 1 to 10000",
        ),
    ],
)
def test_flags_that_cannot_be_read_fail_with_the_complaint(flags, check, named, doctor):
    status, checks = doctor(*flags)
    assert status == 1
    assert named in checks[check, "failed"]


def test_a_stock_policy_is_noted_and_its_flags_are_let_be(doctor):
    flags = ["--model-path", "m", "--radix-eviction-policy", "lru", "--disable-radix-cache"]
    status, checks = doctor(*flags)
    assert status == 0
    assert "SGLang's own" in checks["policy", "warning"]
