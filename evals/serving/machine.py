"""What other programs took of the processors while a run was measured."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK")


class Meter:
    """From its making to :meth:`share`. Linux only.

    Programs of lower priority (a positive nice value) yield and are not counted, though on few
    cores they slow a run somewhat; the command itself must run at the usual priority.
    """

    def __init__(self, group: int) -> None:
        """``group``: the server's process group, left alone by the measurement."""
        self._group = group
        self._start = self._now()

    def share(self) -> float:
        """Of all processors, between 0 and 1: neither of this process and its children nor of the
        server."""
        seconds, total, own = (
            now - then for now, then in zip(self._now(), self._start, strict=True)
        )
        return max(0.0, (total - own) / (seconds * (os.cpu_count() or 1)))

    def _now(self) -> tuple[float, float, float]:
        user, _, system = _ticks(Path("/proc/stat").read_text().split()[1:4])
        here = os.times()
        mine = here.user + here.system + here.children_user + here.children_system
        return time.monotonic(), user + system, mine + sum(map(_used, _members(self._group)))


def _ticks(fields: Iterable[str]) -> list[float]:
    return [int(field) / _TICK for field in fields]


def _members(group: int) -> list[Path]:
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and os.getpgid(int(folder.name)) == group:
                found.append(folder)
        except ProcessLookupError:
            continue
    return found


def _used(process: Path) -> float:
    """Seconds of a process, its ended children included."""
    try:
        # The name may hold blanks; it ends with the last bracket.
        fields = (process / "stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return sum(_ticks(fields[11:15]))
