"""The converted embedded model is a chat model that works."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from scout_sglang.embedded import NEEDED, embedded_model_path

missing = [module for module in NEEDED if find_spec(module) is None]


@pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")
def test_the_chat_template_renders_and_the_answer_makes_sense() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    path = embedded_model_path()
    tokenizer = AutoTokenizer.from_pretrained(path)
    question = [
        {"role": "system", "content": "You answer in one short sentence."},
        {"role": "user", "content": "What is the capital of France?"},
    ]
    prompt = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    text = tokenizer.decode(prompt["input_ids"][0])
    assert text == (
        "<|im_start|>system\nYou answer in one short sentence.<|im_end|>\n"
        "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    )

    model = AutoModelForCausalLM.from_pretrained(path)
    output = model.generate(**prompt, max_new_tokens=24, do_sample=False)
    answer = tokenizer.decode(output[0, prompt["input_ids"].shape[1] :])
    assert "Paris" in answer
    assert answer.endswith("<|im_end|>")
