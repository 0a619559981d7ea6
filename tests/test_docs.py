from __future__ import annotations

import doctest
from pathlib import Path

DOCS = Path(__file__).parent.parent / "docs"


def test_the_worked_example_of_the_policy_page_runs_as_printed() -> None:
    outcome = doctest.testfile(str(DOCS / "policy.md"), module_relative=False)
    assert outcome.attempted > 10
    assert outcome.failed == 0
