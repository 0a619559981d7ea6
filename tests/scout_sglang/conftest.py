"""Fixtures of the tests that run our code inside SGLang's cache classes."""

from __future__ import annotations

import pytest

from scout_sglang import faults


@pytest.fixture
def counted(monkeypatch):
    """An empty table of faults in place of the process-wide one."""
    counts: dict[str, int] = {}
    monkeypatch.setattr(faults.FAULTS, "counts", counts)
    return counts
