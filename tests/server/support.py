"""What the tests on real servers share: one workload, one way to start and to look inside.

They serve a tiny random model; `SCOUT_TEST_MODEL=embedded` serves SmolLM2 instead, minutes slower.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from evals import demo
from evals.app.client import Run, Settings, drive, request_body
from evals.app.team import load_team
from evals.app.workload import Message, Workload, build_workload
from evals.server import Server
from tests.tiny_model import tiny_model_path

ROOT = Path(__file__).parents[2]
PLUGINS = Path(__file__).parent / "plugins"
IN_FLIGHT = 2
MAX_TOKENS = 6
NO_WARMUP = ["--radix-eviction-policy-config", '{"warmup": false}']
WORKLOAD = build_workload(load_team(), seed=1, routing="pipeline", sessions=4, sessions_live=3)


@functools.cache
def capacity(model: str) -> int:
    """Tokens of cache: just enough for the longest calls that run at once, so it must evict."""
    prompts = demo.dry_prompts(WORKLOAD, demo.Tokenizer(model), MAX_TOKENS)
    return (max(map(len, prompts)) + MAX_TOKENS + 1) * IN_FLIGHT


def server(policy: str, log_path: Path, *more: str, model: str = "", **env: str) -> Server:
    """A server in float32 whose ranks load the test plugin; ``env`` goes to the plugin."""
    model = model or os.environ.get("SCOUT_TEST_MODEL") or tiny_model_path()
    args = [
        *("--model-path", model, "--dtype", "float32"),
        *("--radix-eviction-policy", policy),
        *("--max-total-tokens", str(capacity(model))),
        # Without the warm-up the tests' own calls are the only ones.
        *("--enable-cache-report", "--sleep-on-idle", "--skip-server-warmup"),
        *more,
    ]
    path = f"{PLUGINS}:{ROOT}"
    return Server(args, log_path=log_path, env={"PYTHONPATH": path, **env})


def send_workload(
    url: str, replay: list[list[Message]] | None = None, workload: Workload = WORKLOAD
) -> Run:
    """The demo's calls, with the two best tokens of every step beside each answer."""
    settings = Settings(max_tokens=MAX_TOKENS, in_flight=IN_FLIGHT, logprobs=2)
    return asyncio.run(drive(url, workload, settings, replay=replay))


def post(url: str, path: str, body: dict[str, Any] | None = None, timeout: float = 60) -> Any:
    """POST a JSON body; the JSON answer, or its text; raises urllib's errors."""
    data = json.dumps(body or {}).encode()
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url + path, data=data, headers=headers)
    with urllib.request.urlopen(request, timeout=timeout) as answer:
        content = answer.read()
    try:
        return json.loads(content)
    except ValueError:
        return content.decode()


def generate(url: str, ids: list[int], tokens: int = 4, **fields: Any) -> dict[str, Any]:
    """A native request with a prompt of token ids at temperature 0."""
    sampling = {"max_new_tokens": tokens, "temperature": 0, "ignore_eos": True}
    return post(url, "/generate", {"input_ids": ids, "sampling_params": sampling, **fields})


class Stream:
    """A streaming native request under way; ``text`` is what has come so far.

    ``label``: who calls, as ``custom_params`` tell it.
    """

    def __init__(
        self,
        url: str,
        ids: list[int],
        tokens: int,
        label: dict[str, str] | None = None,
        **fields: Any,
    ) -> None:
        sampling: dict[str, Any] = {
            "max_new_tokens": tokens,
            "temperature": 0,
            "ignore_eos": True,
        }
        if label is not None:
            sampling["custom_params"] = {"scout": label}
        body = {"input_ids": ids, "sampling_params": sampling, "stream": True, **fields}
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(
            url + "/generate", data=json.dumps(body).encode(), headers=headers
        )
        self.text = ""
        self._answer = urllib.request.urlopen(request, timeout=60)

    def read(self, events: int) -> dict[str, Any]:
        """Wait for so many events; the ``meta_info`` of the last one that came."""
        meta: dict[str, Any] = {}
        for line in self._answer:
            if line.startswith(b"data: [DONE]"):
                break
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                self.text, meta = event["text"], event["meta_info"]
                events -= 1
            if events == 0:
                break
        return meta

    def rest(self) -> dict[str, Any]:
        """Wait for the end; the ``meta_info`` of the last event."""
        meta = self.read(-1)
        self.close()
        return meta

    def close(self) -> None:
        """Hang up."""
        self._answer.close()


def abort_in_queue(url: str) -> str:
    """Abort a request that waits for memory, then the one it waits for; how the first ended."""
    size = inside(url)["testing"]["capacity"]
    runs = Stream(url, list(range(size * 2 // 3)), size // 4, rid="runs")
    runs.read(1)
    waits = list(range(5000, 5000 + size * 2 // 3))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(generate, url, waits, rid="waits")
        deadline = time.monotonic() + 60
        while inside(url)["scout"]["underway"] < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        post(url, "/abort_request", {"rid": "waits"})
        ended = waiting.result()["meta_info"]["finish_reason"]["type"]
    post(url, "/abort_request", {"rid": "runs"})
    runs.rest()
    return ended


def chat(url: str, index: int, messages: list[Message]) -> str:
    """The text that answers one call of the workload."""
    settings = Settings(max_tokens=MAX_TOKENS)
    body = request_body(WORKLOAD, WORKLOAD.calls[index], messages, settings)
    del body["stream_options"]
    answer = post(url, "/v1/chat/completions", {**body, "stream": False})
    return answer["choices"][0]["message"]["content"]


def generate_all(url: str, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All native requests at once."""
    with ThreadPoolExecutor(len(bodies)) as pool:
        return list(pool.map(lambda body: generate(url, **body), bodies))


def inside(url: str) -> dict[str, Any]:
    """The internal state of the first rank: ``scout`` is ours, ``testing`` the test plugin's."""
    with urllib.request.urlopen(url + "/server_info", timeout=60) as answer:
        return json.load(answer)["internal_states"][0]


def at_rest(url: str, seconds: float = 60) -> dict[str, Any]:
    """The internal state once no slot is held by a call and none waits for another step."""
    deadline = time.monotonic() + seconds
    while True:
        state = inside(url)
        idle = state.get("scout", {}).get("underway", 0) == 0
        if (idle and state["testing"]["protected"] == 0) or time.monotonic() > deadline:
            return state
        time.sleep(0.1)


def assert_books_balance(state: dict[str, Any]) -> None:
    """Nothing is under way, the tree is sound, and every slot is free or evictable."""
    books = state["testing"]
    assert books["sanity"] == "sound"
    assert books["protected"] == 0
    assert books["available"] + books["evictable"] == books["capacity"], books
    if "scout" in state:
        assert state["scout"]["underway"] == 0
