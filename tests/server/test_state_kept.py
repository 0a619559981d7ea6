"""However a server is told to end, what it learned is there for the next one."""

from __future__ import annotations

import json
import os
import signal
import time

import pytest

from radix_policy.config import ScoutConfig
from radix_policy.scout import Scout
from tests.server import support
from tests.tiny_model import tiny_model_path

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    ("signum", "whom"),
    [
        (signal.SIGTERM, "the launcher"),
        (signal.SIGINT, "the launcher"),
        (signal.SIGINT, "all its processes"),  # Ctrl-C in a terminal
    ],
)
def test_what_was_learned_is_on_disk_when_the_server_was_told_to_end(logs, tmp_path, signum, whom):
    path = tmp_path / "state"
    config = json.dumps({"state_path": str(path)})
    log = logs / f"ended-{signum}-{whom[:3]}.log"
    with support.server("scout", log, "--radix-eviction-policy-config", config) as server:
        for number in range(5):
            support.generate(server.url, list(range(100 * number, 100 * number + 300)))
        assert not path.exists()
        (os.kill if whom == "the launcher" else os.killpg)(server.group, signum)
        deadline = time.monotonic() + 60
        while server.exit_code is None and time.monotonic() < deadline:
            time.sleep(0.1)
        assert server.exit_code is not None
    after = Scout(ScoutConfig(), 1000)
    after.restore(path.read_bytes(), os.environ.get("SCOUT_TEST_MODEL") or tiny_model_path())
    assert after.clock == 5
