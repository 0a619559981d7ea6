"""Agent frameworks as their users run them, against one live server, all at once."""

from __future__ import annotations

import re

import pytest

from evals import serve_bench
from evals.clients import together
from evals.clients.plan import ROLES
from evals.serving.workloads import CLIENTS_PYTHON
from scout_sglang.replay.formats import token_trace
from scout_sglang.replay.formats.fields import Options
from tests.server import support

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not CLIENTS_PYTHON.exists(),
        reason="the agent frameworks are not installed: run `make clients`",
    ),
]

SESSIONS = 2
CAPACITY = 16_000  # Less than half of what the clients send, so that the server evicts.
COMPLAINT = re.compile(r"Traceback|\berror\b|exception", re.IGNORECASE)
HARMLESS = re.compile(r"Ignore import error|Responses API .* disabled|server_args=")


@pytest.fixture(scope="module")
def clients_server(logs):
    more = ["--chat-template", str(serve_bench.TEMPLATE), "--max-total-tokens", str(CAPACITY)]
    with support.server("scout", logs / "clients.log", *more) as server:
        yield server


def run_clients(url, out, *more):
    options = ["--url", url, "--sessions", str(SESSIONS), "--max-tokens", "4", *more]
    return together.run_all(out, together.FRAMEWORKS, options, str(CLIENTS_PYTHON))


def read(path):
    return list(token_trace.read(path, Options()))


def test_every_framework_runs_to_its_end_with_streams_and_tools(clients_server, tmp_path):
    # SGLang complains of its own start where a machine is slow.
    started = len(clients_server.log_path.read_text())
    summaries = run_clients(clients_server.url, tmp_path)
    state = support.at_rest(clients_server.url)
    support.assert_books_balance(state)
    assert state["testing"]["evicted_tokens"] > 0
    assert state["scout"]["faults"] == {}
    for name, summary in summaries.items():
        assert summary["finished"] == SESSIONS, name
        assert summary["errors"] == 0, name
        assert summary["tools_run"] > SESSIONS, name
        assert summary["recomputed_tokens"] < summary["prompt_tokens"], name
    log = clients_server.log_path.read_text()[started:]
    complaints = [line for line in log.splitlines() if COMPLAINT.search(line)]
    assert [line[:300] for line in complaints if not HARMLESS.search(line)] == []


def test_what_a_client_records_is_a_trace_with_true_agents_and_the_ids_it_sent(
    clients_server, tmp_path
):
    summaries = run_clients(clients_server.url, tmp_path, "--session-ids", "--routing", "pipeline")
    for name, summary in summaries.items():
        sessions = read(tmp_path / f"{name}.jsonl.zst")
        calls = [call for session in sessions for call in session.calls]
        assert len(calls) == summary["calls"], name
        assert all(call.has_session for call in calls), name
        assert {call.agent for call in calls} <= set(ROLES), name
        prompts = sum(len(s.prompt(call)) for s in sessions for call in s.calls)
        assert prompts == summary["prompt_tokens"], name
