"""What was learned, kept across restarts in the file that ``state_path`` names.

Read before the first request; written every ``state_seconds``, on request, and when SGLang is told
to end. A file is replaced whole or not at all (``radix_policy.snapshot.write``); one that cannot be
used is put aside under a name of its own, and the log says why. The scheduler's thread copies what
was learned and another one packs and writes it.
"""

from __future__ import annotations

import contextlib
import glob
import logging
import os
import threading
import time
from pathlib import Path
from typing import Any

from radix_policy import snapshot
from radix_policy.snapshot import SnapshotError
from scout_sglang.faults import FAULTS

logger = logging.getLogger(__name__)

ASIDE = ".unused"


class StateFile:
    """One data-parallel rank's file. ``writes``: whether this rank is the one to write it.

    ``model``: whose token ids the state is about. ``writes_done``, ``failures``: since the start.
    """

    def __init__(self, path: str, dp_rank: int, every: float, model: str, writes: bool) -> None:
        self.path = Path(path if dp_rank == 0 else f"{path}.{dp_rank}")
        self.every = every
        self.model = model
        self.writes = writes
        self.restored = False
        self.writes_done = 0
        self.failures = 0
        self.bytes = 0
        self.written_at: float | None = None
        self._clock = 0
        self._next = time.monotonic() + every
        self._thread: threading.Thread | None = None

    def restore(self, scout: Any) -> None:
        """Take up what the file holds, if it can be used."""
        self._sweep()
        try:
            data = snapshot.read(self.path)
        except SnapshotError as error:
            logger.info("scout: starting with nothing learned: %s: %s", self.path, error)
            return
        try:
            scout.restore(data, self.model)
            self.restored, self.bytes = True, len(data)
            logger.info("scout: learned state of %d calls read from %s", scout.clock, self.path)
        except SnapshotError as error:
            aside = self._put_aside()
            logger.warning(
                "scout: starting with nothing learned: %s: %s; the file is kept as %s",
                self.path,
                error,
                aside,
            )
        self._clock = scout.clock

    def _sweep(self) -> None:
        """Remove what a writer that was killed has left half-written."""
        if not self.writes:
            return
        for left in self.path.parent.glob(f"{glob.escape(self.path.name)}.{snapshot.TEMPORARY}"):
            with contextlib.suppress(OSError):
                left.unlink()
                logger.info("scout: removed %s, which was not written to its end", left)

    def _put_aside(self) -> Path:
        aside = self.path.with_name(self.path.name + ASIDE)
        if self.writes:
            try:
                os.replace(self.path, aside)
            except OSError as error:
                logger.warning("scout: %s could not be put aside: %s", self.path, error.strerror)
        return aside

    def due(self, now: float) -> bool:
        """Whether it is time to write again."""
        return self.writes and now >= self._next

    def hurry(self) -> None:
        """Write at the next turn."""
        self._next = 0.0

    def write(self, scout: Any, wait: float = 0.0) -> bool:
        """Start to write what was learned; False if nothing was since, or a write is under way.

        ``wait``: seconds to wait for the end of it, and before that for the end of one under way.
        """
        self._next = time.monotonic() + self.every
        if self._busy(wait) or scout.clock == self._clock or not self.writes:
            return False
        frozen, self._clock = scout.freeze(self.model), scout.clock
        self._thread = threading.Thread(
            target=self._pack_and_write, args=(frozen,), name="scout-state", daemon=True
        )
        self._thread.start()
        self._busy(wait)
        return True

    def _busy(self, wait: float) -> bool:
        if self._thread is not None and wait:
            self._thread.join(wait)
        return self._thread is not None and self._thread.is_alive()

    def _pack_and_write(self, frozen: snapshot.Frozen) -> None:
        try:
            data = frozen.pack()
            snapshot.write(self.path, data)
            self.bytes, self.written_at = len(data), time.monotonic()
            self.writes_done += 1
        except OSError as error:
            self.failures += 1
            if self.failures == 1:
                logger.warning(
                    "scout: %s could not be written (%s); what is there stays, serving goes on",
                    self.path,
                    error.strerror,
                )
        except Exception:
            self.failures += 1
            FAULTS.record("state file")

    def state(self) -> dict[str, Any]:
        """What became of it, for people; the path is not told."""
        age = None if self.written_at is None else round(time.monotonic() - self.written_at, 1)
        return {
            "restored": self.restored,
            "writes": self.writes_done,
            "failures": self.failures,
            "bytes": self.bytes,
            "written_ago": age,
        }
