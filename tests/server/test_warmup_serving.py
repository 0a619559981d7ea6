"""Warm-ups on a real server: what the next call begins with is there, and nobody sees how."""

from __future__ import annotations

import json
import os
import statistics
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from evals.server import Server
from tests.server import support
from tests.server.pair import ANCHOR, TURNS, Pair, settle, warmup
from tests.server.plugins import scout_testing
from tests.tiny_model import tiny_model_path

pytestmark = pytest.mark.server

CAPACITY = 1000  # one agent's anchor and history, not two
CONFIG = {"max_namespaces": 3, "warmup_per_minute": 1 << 20, "warmup_idle_share": 1.0}


@pytest.fixture(scope="module")
def order(tmp_path_factory):
    """What the server's warm-ups are told: see the test plugin."""
    path = tmp_path_factory.mktemp("warmup") / "order"
    path.write_text("")
    return path


@pytest.fixture(scope="module")
def failing(tmp_path_factory):
    path = tmp_path_factory.mktemp("faults") / "failing"
    path.write_text("")
    return path


@pytest.fixture(scope="module")
def server(logs, order, failing):
    args = [
        *("--model-path", os.environ.get("SCOUT_TEST_MODEL") or tiny_model_path()),
        *("--dtype", "float32", "--radix-eviction-policy", "scout"),
        *("--radix-eviction-policy-config", json.dumps(CONFIG)),
        *("--max-total-tokens", str(CAPACITY), "--enable-cache-report", "--sleep-on-idle"),
        *("--skip-server-warmup", "--enable-metrics"),
    ]
    env = {
        "PYTHONPATH": f"{support.PLUGINS}:{support.ROOT}",
        scout_testing.WARMUP: str(order),
        scout_testing.FAULTS: str(failing),
    }
    with Server(args, log_path=logs / "warmup.log", env=env) as server:
        yield server


def sound(url: str) -> None:
    support.assert_books_balance(support.at_rest(url))
    warmup(url)


@pytest.fixture(scope="module")
def taught(server, order):
    """A server that has learned who follows whom, and what calls found with warm-ups off and on."""
    found = {}
    order.write_text("rest")
    Pair(server.url).calls(3 * TURNS)
    for what in ("rest", ""):
        order.write_text(what)
        pair = Pair(server.url, start=100 + len(what))
        pair.call()
        settle(server.url)
        pair.calls(2 * TURNS)
        found[what or "warm"] = pair
    return found


def test_every_call_of_the_next_agent_finds_its_whole_anchor_and_without_warm_ups_none_does(
    taught, record_property
):
    for what, pair in taught.items():
        middle = statistics.median(pair.ttft["B"])
        found = f"warm-ups {what}: B finds {pair.cached['B']}, TTFT median {middle:.1f} ms"
        record_property("measured", found)
    assert min(taught["warm"].cached["B"]) >= ANCHOR
    assert max(taught["rest"].cached["B"]) < ANCHOR


def test_what_was_prefilled_was_used(taught, server):
    state = settle(server.url)
    assert state["tokens_used"] > 0.9 * (state["tokens_prefilled"] - state["tokens_resident"])
    assert support.inside(server.url)["scout"]["faults"] == {}


def test_no_client_sees_a_warm_up(taught, server, order):
    pair = Pair(server.url, start=200)
    order.write_text("rest")
    pair.call()
    before, counters, sent = loads(server.url), metrics(server.url), warmup(server.url)
    batches = server.log_path.read_text(errors="replace").count("Prefill batch")
    order.write_text("")
    after = settle(server.url)
    assert after["pieces_sent"] > sent["pieces_sent"]
    assert metrics(server.url) == counters
    assert loads(server.url) == before
    log = server.log_path.read_text(errors="replace")
    assert "scout-warmup" not in log
    assert log.count("Prefill batch") == batches


def metrics(url: str) -> dict[str, str]:
    """Counters of requests, prompts and the times they took; evictions and the machine are not."""
    with urllib.request.urlopen(url + "/metrics", timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    own = (
        "sglang:http",
        "sglang:evict",
        "sglang:scheduler",
        "sglang:scout",
        "sglang:process",
        "process_",
    )
    counted = ("_total", "_count", "_sum", "_bucket")
    return {
        name: value
        for name, _, value in (line.rpartition(" ") for line in lines)
        if name.startswith("sglang:") and not name.startswith(own)
        and name.partition("{")[0].endswith(counted)
    }  # fmt: skip


def loads(url: str) -> list[Any]:
    """Requests that the server says it has."""
    with urllib.request.urlopen(url + "/v1/loads", timeout=60) as answer:
        body = json.load(answer)
    return [(load.get("num_running_reqs"), load.get("num_waiting_reqs")) for load in body["loads"]]


def test_no_piece_is_sent_between_the_arrival_and_the_first_token_of_a_call(taught, server):
    pair = Pair(server.url, start=300)
    for turn in range(6 * TURNS):
        pair.call()
        time.sleep(0.013 * (turn % 7))  # calls come in the midst of warm-ups, at many points
    state = settle(server.url)
    assert state["foreground_delayed"] > 0
    assert support.inside(server.url)["testing"]["pieces_amid"] == 0
    sound(server.url)


@pytest.mark.parametrize("what", ["flush", "abort", "pause", "retract"])
def test_what_an_operator_does_amid_warm_ups_succeeds_and_serving_goes_on(what, taught, server):
    pair = Pair(server.url, start=400)
    for _ in range(4):
        pair.call()
        if what == "flush":
            support.post(server.url, "/flush_cache")
            assert warmup(server.url)["tokens_resident"] <= ANCHOR
        elif what == "abort":
            support.post(server.url, "/abort_request", {"abort_all": True})
        else:
            mode = "in_place" if what == "pause" else "retract"
            support.post(server.url, "/pause_generation", {"mode": mode})
            sent = warmup(server.url)["pieces_sent"]
            time.sleep(0.1)
            assert warmup(server.url)["pieces_sent"] == sent
            support.post(server.url, "/continue_generation")
    settle(server.url)
    sound(server.url)


@pytest.mark.parametrize("point", scout_testing.ON_IDLE)
def test_a_failing_function_of_ours_is_counted_and_serving_goes_on(
    point, taught, server, failing: Path
):
    before = faults(server.url)
    failing.write_text(point)
    pair = Pair(server.url, start=700)
    for _ in range(6 * TURNS):  # Until a warm-up was wanted.
        pair.calls(1)
        if faults(server.url) > before:
            break
    failing.write_text("")
    pair.calls(TURNS)
    assert faults(server.url) > before
    sound(server.url)


def faults(url: str) -> int:
    return support.inside(url)["scout"]["faults"].get("warmup", 0)


def test_a_namespace_that_is_forgotten_leaves_no_warm_up_behind(taught, server):
    for tenant in range(6):
        Pair(server.url, start=500 + tenant, cache_salt=f"salt {tenant}").call()
    assert support.inside(server.url)["scout"]["tenants"] == CONFIG["max_namespaces"]
    settle(server.url)
    sound(server.url)


def test_an_anchor_longer_than_the_cache_does_no_harm(taught, server):
    for session in range(4):
        ids = [*range(3000, 3000 + CAPACITY - 40), *range(session, session + 20)]
        label = {"agent": "long", "session": f"long {session}"}
        support.Stream(server.url, ids, 4, label).rest()
        settle(server.url)
    with pytest.raises(urllib.error.HTTPError):
        support.generate(server.url, list(range(2 * CAPACITY)))
    sound(server.url)


def test_a_poisoned_plan_does_no_harm(taught, server, order):
    order.write_text("poison")
    pair = Pair(server.url, start=600)
    for _ in range(6):
        pair.call()
        settle(server.url)
    order.write_text("")
    sound(server.url)


def test_after_all_that_warm_ups_still_work(taught, server):
    Pair(server.url, start=800).calls(4 * TURNS)
    pair = Pair(server.url, start=900)
    pair.call()
    settle(server.url)
    pair.calls(TURNS)
    assert pair.cached["B"][-1] >= ANCHOR
