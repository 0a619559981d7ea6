"""A GGUF file as a Hugging Face folder: weights in bfloat16, tokenizer, chat template.

``python -m scout_sglang.gguf_conversion FILE.gguf FOLDER``
"""

from __future__ import annotations

import sys
from pathlib import Path


def convert(gguf: Path, folder: Path) -> None:
    """Write the model of ``gguf`` into ``folder``. Needs gguf, accelerate and transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    source, file = gguf.parent, gguf.name
    model = AutoModelForCausalLM.from_pretrained(
        source,
        gguf_file=file,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=file)
    if not tokenizer.chat_template:
        raise ValueError(f"{file} carries no chat template, so no chat model can be made of it")
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
