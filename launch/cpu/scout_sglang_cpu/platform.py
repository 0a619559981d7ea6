"""The platform SGLang runs on when all it has is PyTorch's CPU operators."""

from __future__ import annotations

from sglang.srt.platforms.cpu import CpuSRTPlatform
from sglang.srt.platforms.device_mixin import PlatformEnum
from sglang.srt.platforms.interface import PlatformCapabilities


class PlainCpuPlatform(CpuSRTPlatform):
    """SGLang's CPU platform without its kernel wheel, Triton or graph capture.

    It announces itself as out of tree: SGLang then takes each layer's ``forward_native``,
    where its in-tree CPU platform would call kernels that PyPI does not carry.
    """

    _enum = PlatformEnum.OOT
    capabilities = PlatformCapabilities()

    def get_default_attention_backend(self) -> str:
        return "torch_native"

    def get_dispatch_key_name(self) -> str:
        return "native"
