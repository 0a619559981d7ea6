"""The dashboard asks for metrics that exist; the compose file mounts files that do."""

import json
import re
from pathlib import Path

import pytest
import yaml

from scout_sglang.metrics import DEFINITIONS, PREFIX, WARMUP_COUNTERS

LAUNCH = Path(__file__).parents[1] / "launch"
DASHBOARD = json.loads((LAUNCH / "grafana" / "scout.json").read_text())
QUERIES = [(p["title"], t["expr"]) for p in DASHBOARD["panels"] for t in p["targets"]]
EXPORTED = {
    PREFIX + d.name + end: {*d.labels, *({"le"} if end == "_bucket" else ())}
    for d in DEFINITIONS
    for end in (("_bucket", "_sum", "_count") if d.kind == "histogram" else ("",))
} | {f"{PREFIX}warmup_{key}_total": set() for key in WARMUP_COUNTERS}


@pytest.mark.parametrize(("title", "query"), QUERIES)
def test_every_query_names_metrics_and_labels_that_exist(title, query):
    names = re.findall(r"[a-z_]+:[a-z_]+", query)
    assert names and set(names) <= EXPORTED.keys()
    for labels in re.findall(r"by \(([a-z_, ]+)\)", query):
        assert set(labels.split(", ")) <= set.union(*(EXPORTED[name] for name in names))


def test_every_metric_has_a_place_on_the_dashboard():
    asked = {name for _, query in QUERIES for name in re.findall(r"[a-z_]+:[a-z_]+", query)}
    missing = [
        d.name for d in DEFINITIONS if not any(name.startswith(PREFIX + d.name) for name in asked)
    ]
    assert missing == []


def test_every_file_that_compose_mounts_is_there():
    services = yaml.safe_load((LAUNCH / "compose.yaml").read_text())["services"]
    assert services.keys() == {"sglang", "prometheus", "grafana"}
    mounts = [v for s in services.values() for v in s["volumes"] if v.startswith(".")]
    assert mounts
    assert all((LAUNCH / mount.split(":")[0]).exists() for mount in mounts)
