"""Model folders built on this machine, kept in the user's cache folder."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

# Written last, inside the folder: names and sizes of all files beside it.
MANIFEST = "scout-manifest.json"


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/scout-sglang``, by default ``~/.cache/scout-sglang``."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "scout-sglang"


def build_once(name: str, build: Callable[[Path], None]) -> Path:
    """The folder ``name`` in the cache, made by ``build`` unless it is there and complete.

    ``build`` fills an empty folder that is moved into place when it returns, so nobody sees
    half of it. A second process that wants the same folder waits for the first one; a lock
    held by a process that died is free. Raises OSError where the cache cannot be written.
    """
    folder = cache_folder() / name
    if is_complete(folder):
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_name(f"{name}.lock")):
        if not is_complete(folder):
            _build(folder, build)
    return folder


def is_complete(folder: Path) -> bool:
    """Whether every file of the manifest is present at its full size."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text())
        return all((folder / file).stat().st_size == size for file, size in sizes.items())
    except (OSError, ValueError, AttributeError):
        return False


def _build(folder: Path, build: Callable[[Path], None]) -> None:
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a build that was interrupted
    partial.mkdir()
    build(partial)
    sizes = {file.name: file.stat().st_size for file in sorted(partial.iterdir())}
    (partial / MANIFEST).write_text(json.dumps(sizes, indent=1) + "\n")
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
