"""The recorded multi-agent runs beside the checkout, for tests that use them where they exist."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(os.environ.get("SCOUT_TRACES", Path(__file__).parents[3] / "shared" / "traces"))


def recorded() -> dict[str, Path]:
    """Recorded sets by name; empty where the folder is missing."""
    return {p.name.removesuffix(".jsonl.zst"): p for p in sorted(FOLDER.glob("*.jsonl.zst"))}
