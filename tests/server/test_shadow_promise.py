"""What shadow mode foretells on a live server comes true when it is switched on."""

from __future__ import annotations

import os

import pytest

from evals import demo, shadow_check
from tests.tiny_model import tiny_model_path

pytestmark = pytest.mark.server


def test_a_saving_foretold_for_the_demos_calls_comes_true_in_size(tmp_path):
    # Forty calls that run side by side fall differently each time; `evals.shadow_check` says by how
    # much the two differ at the demo's own size.
    model = os.environ.get("SCOUT_TEST_MODEL") or tiny_model_path()
    fewer = ["--sessions", "6", "--sessions-live", "4"]
    options = demo.parse(["--model-path", model, "--out", str(tmp_path), *fewer])
    workload, capacity = shadow_check.demo_workload(options)
    shadow, requests = shadow_check.serve("shadow", workload, capacity, options, None)
    on, _ = shadow_check.serve("on", workload, capacity, options, requests)
    saved = shadow["recomputed"] - on["recomputed"]
    assert saved > 0.05 * shadow["recomputed"]
    assert shadow["foretold"]["saved_tokens"] == pytest.approx(saved, rel=0.5)
