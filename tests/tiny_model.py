"""A random Llama, small enough to start in seconds, with the embedded model's tokenizer."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from scout_sglang.embedded import embedded_model_path
from scout_sglang.model_cache import build_once

VOCAB = 49152  # of the tokenizer
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def tiny_model_path(
    *,
    layers: int = 2,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 16,
    seed: int = 0,
    words: bool = False,
) -> str:
    """Folder of a float32 Llama with random weights, built once per set of arguments.

    Its defaults divide over two tensor-parallel ranks. The text it writes is noise, but the
    same noise for the same prompt: logits are spread enough that greedy decoding rarely ties.
    With ``words`` it writes whole words alone, greedily: text that has been read back has the same
    tokens again, as a trained model's has, while other noise is cut up anew.
    """
    name = f"tiny-llama-{layers}l-{heads}h-{kv_heads}kv-{head_dim}d-seed{seed}"
    name += "-words" if words else ""
    hidden = heads * head_dim

    def build(folder: Path) -> None:
        config = _config(layers=layers, heads=heads, kv_heads=kv_heads, hidden=hidden)
        (folder / "config.json").write_text(json.dumps(config, indent=2))
        weights = _weights(np.random.default_rng(seed), layers, hidden, kv_heads * head_dim)
        if words:
            # Of so many logits around zero the greatest is never a zero.
            weights["lm_head.weight"][~whole_words()] = 0
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        for file in TOKENIZER_FILES:
            shutil.copy(Path(embedded_model_path()) / file, folder)

    return str(build_once(name, build))


def whole_words() -> np.ndarray:
    """Which tokens are a space and a word in ASCII letters, shape (VOCAB,)."""
    tokenizer = json.loads((Path(embedded_model_path()) / "tokenizer.json").read_text())
    mask = np.zeros(VOCAB, dtype=bool)
    for token, number in tokenizer["model"]["vocab"].items():
        mask[number] = token[0] == "Ġ" and token[1:].isascii() and token[1:].isalpha()
    return mask


def _config(*, layers: int, heads: int, kv_heads: int, hidden: int) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": VOCAB,
        "hidden_size": hidden,
        "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "max_position_embeddings": 8192,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }


def _weights(
    rng: np.random.Generator, layers: int, hidden: int, kv_width: int
) -> dict[str, np.ndarray]:
    def matrix(rows: int, columns: int) -> np.ndarray:
        scale = 2 / np.sqrt(columns)
        return (rng.standard_normal((rows, columns)) * scale).astype(np.float32)

    ones = np.ones(hidden, dtype=np.float32)
    weights = {
        "model.embed_tokens.weight": matrix(VOCAB, hidden),
        "model.norm.weight": ones,
        "lm_head.weight": matrix(VOCAB, hidden),
    }
    for layer in range(layers):
        at = f"model.layers.{layer}"
        weights |= {
            f"{at}.input_layernorm.weight": ones,
            f"{at}.post_attention_layernorm.weight": ones,
            f"{at}.self_attn.q_proj.weight": matrix(hidden, hidden),
            f"{at}.self_attn.k_proj.weight": matrix(kv_width, hidden),
            f"{at}.self_attn.v_proj.weight": matrix(kv_width, hidden),
            f"{at}.self_attn.o_proj.weight": matrix(hidden, hidden),
            f"{at}.mlp.gate_proj.weight": matrix(2 * hidden, hidden),
            f"{at}.mlp.up_proj.weight": matrix(2 * hidden, hidden),
            f"{at}.mlp.down_proj.weight": matrix(hidden, 2 * hidden),
        }
    return weights


if __name__ == "__main__":
    cli = argparse.ArgumentParser(description="Build a random Llama and print its folder.")
    for name, default in (("layers", 2), ("heads", 4), ("kv-heads", 2), ("head-dim", 16)):
        cli.add_argument(f"--{name}", type=int, default=default)
    cli.add_argument("--words", action="store_true", help="write nothing but whole words")
    print(tiny_model_path(**vars(cli.parse_args())))
