"""Closed at start: what would make SGLang ignore the policy stops the server, in one sentence."""

import json
import os
import re
from pathlib import Path

import pytest

from scout_sglang import compat, launch
from scout_sglang.plugin import ACTIVE_ENV

DOCS = (Path(__file__).parents[1] / "docs" / "compatibility.md").read_text()

SMALL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
SLIDING = {"is_hybrid_swa": True, "hybrid_layer_pattern": [1, 1, 1, 0], "sliding_window": 128}
STATE_SPACE = {
    "architectures": ["Lfm2ForCausalLM"],
    "model_type": "lfm2",
    "layer_types": ["conv", "full_attention"] * 2,
}
HRM_TEXT = {"architectures": ["HrmTextForCausalLM"]}

FLAGS = {
    "--disable-radix-cache": ["--disable-radix-cache"],
    "--radix-cache-backend": ["--radix-cache-backend", "flexkv"],
    "--enable-lmcache": ["--enable-lmcache"],
    "--enable-flexkv": ["--enable-flexkv"],
    "--enable-session-radix-cache": ["--enable-session-radix-cache"],
    "--enable-hisparse": ["--enable-hisparse"],
    "--disaggregation-mode prefill or decode": ["--disaggregation-mode", "decode"],
    "--encoder-only": ["--encoder-only"],
    "--use-ray": ["--use-ray"],
}
UNTRIED = {
    "--enable-hierarchical-cache": ["--enable-hierarchical-cache"],
    "--speculative-algorithm": ["--speculative-algorithm", "EAGLE"],
    "--pp-size": ["--pp-size", "2"],
    "DP attention": ["--attn-dp-size", "2"],
    "--attn-cp-size": ["--attn-cp-size", "2"],
    "--dcp-size": ["--dcp-size", "2"],
    "--nnodes": ["--nnodes", "2"],
    "--enable-lora": ["--enable-lora"],
    "--enable-streaming-session": ["--enable-streaming-session"],
    "--enable-unified-cache-external-linker": ["--enable-unified-cache-external-linker"],
    "--dllm-algorithm": ["--dllm-algorithm", "LowConfidence"],
    "--enable-unified-memory": ["--enable-unified-memory"],
}


@pytest.fixture
def start(sglang_start, tmp_path):
    """Resolve arguments as the server does, up to the point where it would load the model."""

    def resolve(*flags, policy="scout", **config):
        (tmp_path / "config.json").write_text(json.dumps(SMALL | config))
        device = ["--device", "cpu", "--attention-backend", "torch_native"]
        policy = ["--radix-eviction-policy", policy]
        return sglang_start(["--model-path", str(tmp_path), *device, *policy, *flags])

    return resolve


def refusal(capsys):
    return next(
        line for line in capsys.readouterr().err.splitlines() if line.startswith("scout-sglang")
    )


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_that_sets_the_policy_aside_ends_the_command_with_status_2(flag, start, capsys):
    with pytest.raises(SystemExit) as stopped:
        start(*FLAGS[flag])
    assert stopped.value.code == 2
    rule = next(rule for rule in compat.REFUSED if rule.flag == flag)
    sentence = refusal(capsys)
    assert flag in sentence and rule.why in sentence and rule.instead in sentence


def test_every_refused_flag_has_a_case_here():
    assert {rule.flag for rule in compat.REFUSED} == {*FLAGS, compat.TREE_CORE_ENV}


def test_a_foreign_tree_core_is_refused(start, capsys, monkeypatch):
    monkeypatch.setenv(compat.TREE_CORE_ENV, "somebody-elses")
    with pytest.raises(SystemExit):
        start()
    assert f"unset {compat.TREE_CORE_ENV}" in refusal(capsys)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (SLIDING, "sliding-window layers"),
        (STATE_SPACE, "Mamba or linear-attention layers"),
        (HRM_TEXT, "SGLang turned the radix cache off in handle_model_capability_adjustments"),
    ],
)
def test_a_model_that_sets_the_policy_aside_is_refused_by_its_config(config, reason, start, capsys):
    with pytest.raises(SystemExit) as stopped:
        start(**config)
    assert stopped.value.code == 2
    assert reason in refusal(capsys)


def test_a_sliding_window_model_that_keeps_its_whole_kv_is_accepted(start):
    start("--disable-hybrid-swa-memory", **SLIDING)
    assert os.environ[ACTIVE_ENV] == "scout"


def test_what_is_refused_with_ours_starts_under_a_stock_policy(start):
    start("--disable-radix-cache", policy="lru", **SLIDING)
    assert ACTIVE_ENV not in os.environ


@pytest.mark.parametrize("flag", UNTRIED)
def test_an_untested_flag_is_named(flag):
    _, values = launch.parse(["--model-path", "m", *UNTRIED[flag]])
    assert [s.startswith(f"{flag} is untested") for s in compat.untested(values)] == [True]


def test_every_untested_flag_has_a_case_here():
    assert {rule.flag for rule in compat.UNTESTED} == set(UNTRIED)


def test_a_flag_that_takes_a_part_away_is_named_with_the_way_out():
    _, values = launch.parse(["--model-path", "m", "--tokenizer-worker-num", "2"])
    [sentence] = compat.limited(values)
    assert sentence.startswith("with --tokenizer-worker-num above 1 GET /scout")
    assert "or one tokenizer worker" in sentence
    _, values = launch.parse(["--model-path", "m"])
    assert compat.limited(values) == []


def test_the_installed_sglang_is_a_tested_one():
    assert compat.version_problem() is None


@pytest.mark.parametrize("found", ["0.5.22", "0.6.0", None])
def test_another_sglang_is_refused_and_the_tested_one_named(found, monkeypatch, start, capsys):
    monkeypatch.setattr(compat, "installed_sglang", lambda: found)
    with pytest.raises(SystemExit):
        start()
    sentence = refusal(capsys)
    assert "install sglang==0.5.23" in sentence and (found or "not installed") in sentence


RULES = [*compat.REFUSED, *compat.LIMITED, *compat.UNTESTED]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.flag)
def test_the_documentation_has_a_row_for_each_rule(rule):
    row = next(
        line for line in DOCS.splitlines() if re.match(rf"\| `?{re.escape(rule.flag)}\b", line)
    )
    assert rule.why in row and rule.instead in row
