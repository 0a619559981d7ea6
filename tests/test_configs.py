"""The recipes of launch/ are read by SGLang's own merger and resolve."""

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from scout_sglang import compat, embedded, launch, plugin

RECIPES = Path(__file__).parents[1] / "launch"
CONFIGS = sorted(path for path in RECIPES.glob("*.yaml") if path.stem != "compose")

MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
}


def test_the_recipes_are_all_there():
    names = {path.stem for path in CONFIGS}
    assert names >= {"cpu", "gpu", "tensor_parallel", "data_parallel"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_recipe_resolves_and_activates_scout(path, sglang_start, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(MODEL))
    resolved = sglang_start(["--config", str(path), "--model-path", str(tmp_path)])
    assert plugin.active_policy() == "scout"
    for key, value in yaml.safe_load(path.read_text()).items():
        if key != "model-path":
            assert getattr(resolved, key.replace("-", "_")) == value, key


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_recipe_uses_nothing_refused_or_untested(path):
    _, values = launch.parse(["--config", str(path)])
    assert compat.flag_problem("scout", values) is None
    assert compat.untested(values) == []


def test_the_launcher_adds_nothing_to_the_cpu_recipe_but_the_model(sglang_start, monkeypatch):
    monkeypatch.setattr(launch, "has_accelerator", lambda: False)
    monkeypatch.setattr(embedded, "embedded_model_path", lambda: "/cache/smollm2")
    flags = launch.additions(["--config", str(RECIPES / "cpu.yaml")])
    assert [flag.name for flag in flags] == ["--model-path"]


def test_the_router_script_reports_a_worker_that_does_not_start():
    done = subprocess.run(
        [RECIPES / "router.sh", "--no-such-flag"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**plugin.os.environ, "WORKERS": "1", "WORKER_PORT": "31180"},
    )
    assert done.returncode == 1
    assert "worker 0 ended before it was up" in done.stderr
