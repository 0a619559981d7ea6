"""The CPU platform and its stand-ins help where something is missing and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

platform = pytest.importorskip("scout_sglang_cpu", reason="not the CPU install")
standins = pytest.importorskip("scout_sglang_cpu.standins")


def run_python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints; it has read the distribution's .pth file."""
    command = [sys.executable, "-c", code]
    env = {**os.environ, **environment}
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def test_sglang_is_given_a_platform_class_it_accepts(monkeypatch: pytest.MonkeyPatch) -> None:
    from sglang.srt.platforms import _load_platform_class

    monkeypatch.delenv("SGLANG_USE_CPU_ENGINE", raising=False)
    monkeypatch.setattr(platform, "_accelerator_present", lambda: False)
    chosen = _load_platform_class(platform.activate())()
    assert chosen.is_out_of_tree()
    assert chosen.get_default_attention_backend() == "torch_native"


@pytest.mark.parametrize(("set_by_user", "then"), [(None, "1"), ("0", "0")])
def test_nothing_is_compiled_on_the_platform_unless_the_user_says_so(
    set_by_user: str | None, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "_accelerator_present", lambda: False)
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", set_by_user or "")
    if set_by_user is None:
        monkeypatch.delenv("TORCHDYNAMO_DISABLE")
    platform.activate()
    assert os.environ["TORCHDYNAMO_DISABLE"] == then


def test_the_platform_steps_aside_for_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "_accelerator_present", lambda: True)
    assert platform.activate() is None


def test_the_platform_steps_aside_for_sglangs_cpu_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SGLANG_USE_CPU_ENGINE", "1")
    assert platform.activate() is None


def test_a_real_package_is_never_shadowed(tmp_path: Path) -> None:
    (tmp_path / "triton").mkdir()
    (tmp_path / "triton" / "__init__.py").write_text("real = True\n")
    code = """
import importlib.util, triton
print(triton.real, hasattr(triton, "jit"), importlib.util.find_spec("triton.language"))
"""
    assert run_python(code, PYTHONPATH=str(tmp_path)).strip() == "True False None"


@pytest.mark.parametrize("package", standins.PACKAGES)
def test_nothing_but_the_two_packages_is_answered_for(package: str) -> None:
    finder = standins.StandInFinder()
    assert finder.find_spec(package) is not None
    assert finder.find_spec(f"{package}_kernels") is None


def test_pytorchs_compiler_finds_no_backend_of_triton() -> None:
    code = """
from torch.utils._triton import has_triton
import triton.backends
print("cpu" in triton.backends.backends, has_triton())
"""
    assert run_python(code).strip() == "False False"


def test_kernels_can_be_defined_and_refuse_to_run() -> None:
    module = standins.StandIn("triton")
    standins.StandInFinder().exec_module(module)

    @module.autotune(configs=[module.Config({"BLOCK": 16}, num_warps=4)], key=["n"])
    @module.jit
    def kernel(n: int) -> None: ...

    with pytest.raises(RuntimeError, match=r"kernel.*triton is not installed.*setup\.sh --full"):
        kernel[(1,)](16)
