"""A real server with everything to look at switched on, and with keys."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest

from radix_policy.config import ScoutConfig
from radix_policy.scout import Scout
from scout_sglang.metrics import DEFINITIONS, PREFIX
from tests.server import figures, support
from tests.test_grafana import QUERIES
from tests.tiny_model import tiny_model_path

pytestmark = pytest.mark.server

KEY, ADMIN = "a-key", "an-admin-key"
# No token of it is in a prompt of another test, nor in any number of a report.
SECRET = "xylophone-quartz-8841"
CALLS = 60


def ask(server, path, body=None, key=KEY):
    """Status and text of an answer; ``body`` makes it a POST."""
    headers = {"Content-Type": "application/json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def rank(server):
    status, text = ask(server, "/scout")
    assert status == 200, text
    [only] = json.loads(text)["ranks"]
    return only


def generate(server, number, text=None):
    sampling = {"max_new_tokens": 3, "temperature": 0, "ignore_eos": True}
    agent = number % 4
    prompt = [*range(300 * agent, 300 * agent + 200), *range(5000 + number, 5100 + number)]
    label = {"agent": f"agent {agent}"} if agent else {}
    body = {
        "sampling_params": {**sampling, "custom_params": {"scout": label}},
        "session_id": f"{SECRET}-session" if text else f"session {number % 9}",
        **({"text": text} if text else {"input_ids": prompt}),
    }
    status, answer = ask(server, "/generate", body)
    assert status == 200, answer
    return json.loads(answer)["meta_info"]


def metrics(server):
    """Value by name and labels of every metric of ours; no key is needed, as for SGLang's own."""
    status, text = ask(server, "/metrics", key=None)
    assert status == 200
    found = {}
    for line in text.splitlines():
        if line.startswith(PREFIX) and "_created" not in line:
            series, _, value = line.rpartition(" ")
            found[series] = float(value)
    return found


def total(found, name):
    return sum(v for series, v in found.items() if series.partition("{")[0] == PREFIX + name)


@pytest.fixture(scope="module")
def watched(logs):
    """The server; its state file is another model's when it starts."""
    path = logs / "learned"
    path.write_bytes(Scout(ScoutConfig(), 1000).snapshot("another model"))
    config = {"state_path": str(path), "state_seconds": 5}
    more = ["--enable-metrics", "--api-key", KEY, "--admin-api-key", ADMIN]
    more += ["--radix-eviction-policy-config", json.dumps(config)]
    with support.server("scout", logs / "watched.log", *more) as server:
        yield server, path


@pytest.fixture(scope="module")
def server(watched):
    return watched[0]


@pytest.mark.parametrize("key", [None, "wrong", KEY, ADMIN])
def test_keys_are_asked_for_as_by_sglangs_own_routes(server, key):
    def allowed(path, body=None):
        return ask(server, path, body, key)[0] != 401

    shown = allowed("/server_info")
    changed = allowed("/set_internal_state", {"server_args": {}})
    assert [allowed("/scout"), allowed("/scout/ui")] == [shown, shown]
    assert allowed("/scout/config", {}) == allowed("/scout/snapshot", {}) == changed
    assert (shown, changed) == (key == KEY, key == ADMIN)


def test_sums_agree_while_calls_run_and_nothing_decreases_that_must_not(server):
    stop, seen = threading.Event(), []

    def watch():
        while not stop.is_set():
            seen.append((rank(server), metrics(server)))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        with ThreadPoolExecutor(4) as pool:
            replies = list(pool.map(lambda n: generate(server, n), range(CALLS)))
    finally:
        stop.set()
        watcher.join()
    seen.append((rank(server), metrics(server)))
    last = seen[-1][0]["totals"]
    assert last["calls"] == CALLS
    assert last["prompt_tokens"] == sum(reply["prompt_tokens"] for reply in replies)
    assert last["hit_tokens"] == sum(reply["cached_tokens"] for reply in replies)
    assert last["evicted_tokens"] > 0
    assert {agent["label"] for agent in seen[-1][0]["agents"]} >= {"agent 1", "agent 2", "agent 3"}
    for shown, found in seen:
        figures.check(shown)
        assert all(v >= 0 for k, v in found.items() if "regret" not in k and "file_age" not in k)
    # A scrape may fall between two of the additions that bring the metrics up to date.
    assert sum(not metrics_agree(found) for _, found in seen) <= 1
    assert metrics_agree(seen[-1][1])
    for (before, old), (after, new) in pairwise(seen):
        figures.check_growth(before, after)
        grown = {d.name for d in DEFINITIONS if d.kind != "gauge"}
        for series, value in old.items():
            name = re.sub(r"_(bucket|sum|count)$", "", series.partition("{")[0])
            if name.removeprefix(PREFIX) in grown:
                assert new[series] >= value, series


def metrics_agree(found):
    parts = total(found, "hit_tokens_total") + total(found, "recomputed_tokens_total")
    return parts == total(found, "prompt_tokens_total")


def test_metrics_come_to_the_same_as_the_json(server):
    generate(server, 1)
    deadline = 50
    while True:  # they are brought up to date once a second
        shown, found = rank(server), metrics(server)
        if total(found, "calls_total") == shown["totals"]["calls"] or not deadline:
            break
        deadline -= 1
        threading.Event().wait(0.2)
    for field in ("calls", "prompt_tokens", "hit_tokens", "recomputed_tokens"):
        assert total(found, f"{field}_total") == shown["totals"][field]
    assert total(found, "evicted_tokens_total") == shown["totals"]["evicted_tokens"]
    exported = {series.partition("{")[0] for series in found}
    missing = [d.name for d in DEFINITIONS if not any(PREFIX + d.name in e for e in exported)]
    of_shadow_alone = {d.name for d in DEFINITIONS if d.name.startswith("shadow_")}
    assert set(missing) <= of_shadow_alone | {"faults_total"}
    asked = {name for _, query in QUERIES for name in re.findall(r"[a-z_]+:[a-z_]+", query)}
    known = exported | {PREFIX + name for name in of_shadow_alone | {"faults_total"}}
    assert asked <= known, asked - known


def test_the_mode_is_changed_at_run_time_with_validation(server):
    for body in ({"mode": "off"}, {"unknown": 1}, {}, ["mode"]):
        status, text = ask(server, "/scout/config", body, ADMIN)
        assert status == 400 and "error" in json.loads(text)
    status, text = ask(server, "/scout/config", {"mode": "shadow"}, ADMIN)
    assert (status, json.loads(text)["ranks"][0]["changed"]["mode"]["from"]) == (200, "on")
    for number in range(40):
        generate(server, number)
    shown = rank(server)
    assert shown["mode"] == "shadow"
    assert shown["shadow"]["policy"] == "scout"
    status, _ = ask(server, "/scout/config", {"mode": "on"}, ADMIN)
    generate(server, 1)
    shown = rank(server)
    assert (status, shown["mode"], shown["shadow"]) == (200, "on", None)
    assert [change["to"] for change in shown["changes"]][-2:] == ["shadow", "on"]
    assert shown["faults"] == {}


def test_budgets_are_changed_at_run_time_with_validation_all_or_none(server):
    def set_to(body):
        status, text = ask(server, "/scout/config", body, ADMIN)
        return status, json.loads(text)

    before = rank(server)["constants"]
    for name, wrong, why in (
        ("warmup_idle_share", 1.5, "a number from 0.0 to 1.0"),
        ("warmup_per_minute", 0.5, "a whole number"),
        ("warmup_piece", 0, "from 1 to 65536"),
        ("warmup", 1, "true or false"),
        ("keep", "coder", "a list of texts"),
        ("trim", False, "cannot be changed at run time; accepted: keep, warmup,"),
    ):
        status, said = set_to({"warmup_cost": 0.7, name: wrong})
        assert status == 400 and name in said["error"] and why in said["error"]
    # A rank alone can tell that this list is too long.
    status, said = set_to({"warmup_cost": 0.7, "keep": ["a"] * 65})
    assert status == 409 and "at most 64 entries" in said["error"]
    assert rank(server)["constants"] == before
    wanted = {"warmup_idle_share": 0.25, "warmup_per_minute": 6000, "warmup_piece": 16}
    wanted |= {"warmup_piece_ms": 5, "warmup": False, "keep": ["agent 1"], "keep_share": 0.5}
    status, said = set_to(wanted)
    changed = said["ranks"][0]["changed"]
    assert status == 200 and {name: step["to"] for name, step in changed.items()} == wanted
    shown = rank(server)
    assert shown["constants"] == before | wanted
    assert shown["warmup"]["on"] == 0 and shown["warmup"]["kept"] == 1
    status, _ = set_to({name: before[name] for name in wanted})
    shown = rank(server)
    assert (status, shown["constants"], shown["warmup"]["on"]) == (200, before, 1)
    assert shown["faults"] == {}


def test_a_prompt_cannot_be_found_in_anything_that_is_shown_or_kept(watched):
    server, path = watched
    for _ in range(3):
        generate(server, 0, f"{SECRET} {SECRET} tells its secret to nobody else {SECRET}")
    status, text = ask(server, "/scout/snapshot", {}, ADMIN)
    assert status == 200, text
    _, secret = ask(server, "/tokenize", {"prompt": SECRET})
    tokens = json.loads(secret)["tokens"][-4:]
    ids = ", ".join(map(str, tokens))
    deadline = time.monotonic() + 30
    while rank(server)["state_file"]["writes"] == 0 and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(1.5)  # the metrics are brought up to date once a second
    shown = {p: ask(server, p)[1] for p in ("/scout", "/metrics", "/server_info", "/scout/ui")}
    shown["answer"] = text
    shown["log"] = server.log_path.read_text(errors="replace")
    files = list(path.parent.glob(f"{path.name}*"))
    assert path in files
    for file in files:
        with np.load(file, allow_pickle=False) as members:  # which unpacks them
            for name in members.files:
                shown[f"{file.name}/{name}"] = members[name].tobytes().decode(errors="replace")
                assert not has_run(members[name], tokens), name
    assert "agent 1" in shown["/scout"] and "scout: policy=scout" in shown["log"]
    for place, content in shown.items():
        assert SECRET not in content and "xylophone" not in content, place
        assert ids not in content and ids.replace(" ", "") not in content, place


def has_run(array, tokens):
    """Whether these ids stand one after the other in an array of whole numbers."""
    flat = array.ravel()
    if flat.dtype.kind not in "iu" or len(flat) < len(tokens):
        return False
    runs = np.lib.stride_tricks.sliding_window_view(flat, len(tokens))
    return bool((runs == np.array(tokens)).all(axis=1).any())


def test_a_state_of_another_model_is_put_aside_and_a_new_one_written_at_the_end(watched):
    server, path = watched
    log = server.log_path.read_text(errors="replace")
    assert "learned on model 'another model'" in log and "the file is kept as" in log
    calls = rank(server)["totals"]["calls"]
    generate(server, 3)
    server.stop()
    model = os.environ.get("SCOUT_TEST_MODEL") or tiny_model_path()
    after = Scout(ScoutConfig(), 1000)
    after.restore(path.read_bytes(), model)
    assert after.clock >= calls + 1
