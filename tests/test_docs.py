from __future__ import annotations

import doctest
from pathlib import Path

from scout_sglang.control import SETTINGS
from scout_sglang.metrics import DEFINITIONS

DOCS = Path(__file__).parent.parent / "docs"


def test_the_worked_example_of_the_policy_page_runs_as_printed() -> None:
    outcome = doctest.testfile(str(DOCS / "policy.md"), module_relative=False)
    assert outcome.attempted > 10
    assert outcome.failed == 0


def test_every_metric_and_every_setting_is_on_the_operators_page() -> None:
    page = (DOCS / "operating.md").read_text()
    for definition in DEFINITIONS:
        assert f"`{definition.name}`" in page, definition.name
    for setting in SETTINGS:
        assert f"`{setting.name}`" in page, setting.name
