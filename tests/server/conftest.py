"""Servers and recorded runs that several files use; each is started once, when first asked for."""

from __future__ import annotations

import pytest

from tests.server import support


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="session")
def scout_server(logs):
    """A running server under scout. Whoever uses it leaves nothing under way."""
    with support.server("scout", logs / "scout.log") as server:
        yield server


@pytest.fixture(scope="session")
def lru_run(logs):
    """The workload under SGLang's lru: its requests are replayed to every other server."""
    with support.server("lru", logs / "lru.log") as server:
        run = support.send_workload(server.url)
        assert support.at_rest(server.url)["testing"]["evicted_tokens"] > 0
        return run
