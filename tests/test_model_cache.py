"""Model folders are built once, completely or not at all."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from scout_sglang import embedded
from scout_sglang.embedded import EmbeddedModelError, embedded_model_path
from scout_sglang.model_cache import build_once


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "scout-sglang"


class Builder:
    """Writes one file and counts how often it was asked to."""

    def __init__(self) -> None:
        self.builds = 0

    def __call__(self, folder: Path) -> None:
        self.builds += 1
        (folder / "weights").write_bytes(b"x" * 1000)


def test_a_folder_is_built_once_and_then_reused(empty_cache: Path) -> None:
    build = Builder()
    assert build_once("model", build) == build_once("model", build) == empty_cache / "model"
    assert build.builds == 1


def test_two_builders_at_once_build_once() -> None:
    build = Builder()
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(lambda _: build_once("model", build), range(8)))
    assert len(folders) == 1
    assert build.builds == 1


def test_a_truncated_file_is_built_again() -> None:
    build = Builder()
    weights = build_once("model", build) / "weights"
    weights.write_bytes(b"x" * 10)
    build_once("model", build)
    assert weights.stat().st_size == 1000


def test_an_interrupted_build_is_not_mistaken_for_a_model(empty_cache: Path) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "weights").write_bytes(b"x")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_once("model", interrupted)
    assert not (empty_cache / "model").exists()

    build_once("model", Builder())
    assert (empty_cache / "model" / "weights").stat().st_size == 1000


def test_a_missing_package_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(embedded.NEEDED, "no_such_module", "no-such-package")
    with pytest.raises(EmbeddedModelError, match=r"needs no-such-package.*launch/cpu/setup\.sh"):
        embedded_model_path()


def test_a_cache_that_cannot_be_written_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    with pytest.raises(EmbeddedModelError, match=r"/dev/null/scout-sglang.*Set XDG_CACHE_HOME"):
        embedded_model_path()
