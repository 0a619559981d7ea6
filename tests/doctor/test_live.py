"""``doctor --url``: what a running server's ``GET /scout`` tells of prefixes."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from scout_sglang.doctor.__main__ import main

KEY = "open sesame"


def agent(label, calls, prompt, hit, **fields):
    known = {"calls": calls, "prompt_tokens": prompt, "hit_tokens": hit}
    rate = {"recomputed_tokens": prompt - hit, "hit_rate": hit / prompt}
    return {"id": 1, "label": label, **known, **rate, "anchor_tokens": 900, **fields}


STATE = {
    "schema": 1,
    "ranks": [
        {
            "dp_rank": 0,
            "agents": [
                agent("steady", 10, 10_000, 9_000, first_divergence=950),
                agent("evicted", 10, 9_000, 2_000, first_divergence=900),
                agent("drifting", 10, 20_000, 500, first_divergence=12),
                agent(None, 10, 3_000, 100, first_divergence=None),
            ],
        }
    ],
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        given = self.headers.get("Authorization")
        status = 404 if self.path != "/scout" else 401 if given != f"Bearer {KEY}" else 200
        body = json.dumps(STATE if status == 200 else {}).encode()
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def url():
    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_agents_whose_prompts_part_early_are_marked_the_dearest_first(url, capsys):
    assert main(["--url", url, "--api-key", KEY]) == 1
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[0]: line for line in lines[1:5]}
    assert next(iter(rows)) == "drifting"
    assert [name for name, line in rows.items() if "<- early" in line] == ["drifting"]
    assert any("--log-requests-level 3" in line for line in lines)


def test_the_key_may_come_from_the_environment(url, capsys, monkeypatch):
    monkeypatch.setenv("SCOUT_API_KEY", KEY)
    assert main(["--url", url, "--json"]) == 1
    agents = json.loads(capsys.readouterr().out)["agents"]
    assert [(a["agent"], a["suspect"]) for a in agents] == [
        ("drifting", True),
        ("evicted", False),
        ("agent 1", False),
        ("steady", False),
    ]


@pytest.mark.parametrize(
    ("path", "key", "complaint"),
    [("", "wrong", "asks for a key"), ("/prefix", KEY, "does not run one of scout's policies")],
)
def test_a_server_that_does_not_answer_is_an_error_that_says_why(path, key, complaint, url, capsys):
    assert main(["--url", url + path, "--api-key", key]) == 2
    assert complaint in capsys.readouterr().err


def test_a_server_that_is_gone_is_an_error(capsys):
    assert main(["--url", "http://127.0.0.1:9"]) == 2
    assert "is the server up?" in capsys.readouterr().err


def test_only_one_source_can_be_asked(url, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--url", url, "--prefixes", "log"])
    assert stopped.value.code == 2
