"""The live page from a real server, in a real browser."""

import json
import urllib.request

import pytest

from tests.server import support
from tests.ui.browser import Browser, program

# Runs where the server has the route.
pytest.importorskip("scout_sglang.http")
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        program() is None, reason="no Chromium (Debian: apt-get install chromium-headless-shell)"
    ),
]


def test_a_servers_own_figures_are_drawn_from_its_own_route(scout_server, tmp_path):
    support.send_workload(scout_server.url)
    with Browser(tmp_path / "chromium") as browser:
        browser.view()
        browser.open(f"{scout_server.url}/scout/ui")
        browser.wait("document.querySelectorAll('#graph .node').length > 0")
        browser.wait("document.querySelectorAll('#map .cell').length > 1")
        text = browser.run("document.body.innerText")
        assert "NaN" not in text and "undefined" not in text
        assert "scout-rust" in text
        with urllib.request.urlopen(f"{scout_server.url}/scout", timeout=60) as answer:
            state = json.load(answer)["ranks"][0]
        assert browser.run("document.querySelectorAll('#agents tbody tr').length") == len(
            state["agents"]
        )
        assert browser.errors == []
        assert len(browser.photograph("#map").getcolors(1 << 24)) > 30
