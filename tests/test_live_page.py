"""The section *Live* of the page of results."""

from __future__ import annotations

import json

from evals.results import page
from evals.serving.page import live, ratio_with_interval
from evals.serving.report import report
from evals.serving.runs import Place, Record
from evals.serving.samples import Run, Sample

SETUP = {"ids": False, "max_total_tokens": 9000}


def record(policy, rate, ttft, cached, repeat=0):
    samples = [
        Sample(f"s{s}", 2.0 * s + turn, ttft + s, ttft + 50, 100, cached, 4)
        for s in range(6)
        for turn in range(2)
    ]
    books = {"faults": 0, "warmup_tokens_prefilled": 1200} if policy == "scout" else {}
    return Record(Place("app:selector", rate, repeat, policy), Run(samples, 0), books)


def committed(folder):
    records = [record("lru", 0.5, 100, 50), record("scout", 0.5, 50, 80)]
    records += [record("lru", 1.0, 900, 50), record("scout", 1.0, 700, 80)]
    found = report(records, ["lru", "scout"], [500, 50])
    written = {"command": "python -m evals.serve_bench", "setup": SETUP, "workloads": found}
    (folder / "app.json").write_text(json.dumps(written))


def test_a_policy_has_a_line_with_its_ratios_and_the_factor_stands_beside_the_papers(tmp_path):
    committed(tmp_path)
    text = "\n".join(live(tmp_path))
    assert "    python -m evals.serve_bench\n" in text
    assert "Cache 9,000 tokens, no ids sent." in text
    [scout] = [line for line in text.splitlines() if "| 0.5 | scout |" in line]
    assert "80.0 | 240<br>**0.400** [0.400, 0.400]" in scout
    assert scout.endswith("| 1,200 |")
    assert "within 500 ms of mean TTFT: lru 0.748, scout 0.844." in text
    assert "scout: 1.13 times" in text
    assert "(the paper: 1.7 to 12 times)" in text
    assert "less than the lowest rate" in text


def test_a_loss_is_marked_whichever_way_a_quantity_counts():
    worse = {"ratio": 1.1, "low": 1.05, "high": 1.2}
    assert ratio_with_interval(worse, "ttft_ms") == "1.100 [1.050, 1.200] *loss*"
    assert ratio_with_interval(worse, "tokens_per_second") == "**1.100** [1.050, 1.200]"
    even = {"ratio": 0.99, "low": 0.9, "high": 1.01}
    assert ratio_with_interval(even, "ttft_ms") == "0.990 [0.900, 1.010]"


def test_the_page_of_results_has_what_is_committed(tmp_path, monkeypatch):
    assert live(tmp_path) == []
    committed(tmp_path)
    monkeypatch.setattr("evals.results.live", lambda: live(tmp_path))
    assert "\n## Live\n" in page(tmp_path / "none", 1, "traces")
