"""SGLang on a plain CPU: a platform plugin, and stand-ins for packages built for GPUs.

SGLang 0.5.23 picks its kernels by platform. On a machine without an accelerator none is
detected and the server fails while it builds the model; the platform named here answers with
PyTorch's own operators instead.
"""

from __future__ import annotations

import os

PLATFORM = "scout_sglang_cpu.platform.PlainCpuPlatform"


def activate() -> str | None:
    """Dotted path of the platform class, or None where SGLang should choose by itself.

    Entry point of group ``sglang.srt.platforms``. SGLang refuses to start with two active
    platforms, so this one steps aside for any accelerator PyTorch can reach and for
    ``SGLANG_USE_CPU_ENGINE=1``, the wish for SGLang's own CPU kernels.
    """
    if os.environ.get("SGLANG_USE_CPU_ENGINE", "0") == "1" or _accelerator_present():
        return None
    # Tensor parallelism compiles a function of the embedding, which takes Triton's version and a
    # C++ compiler. Ranks inherit the environment.
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    return PLATFORM


def _accelerator_present() -> bool:
    import torch

    return torch.cuda.is_available() or torch.accelerator.is_available()
