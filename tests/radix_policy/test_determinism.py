"""The same trace in two processes gives the same victims, to the slot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = """
import hashlib, sys
from scout_sglang.replay.engine import Result, replay
from scout_sglang.replay.policies import Setting, build
from scout_sglang.replay.synthetic import trace
from scout_sglang.replay.timing import Timing, schedule

def events():
    return schedule(trace("mix24?sessions=60"), Timing(), 0)

policy, ids = sys.argv[1], sys.argv[2] == "ids"
built = build(Setting(policy, 8000, 16, 4000, 10**6, events, ids=ids))
victims, free = hashlib.sha256(), built.allocator.free

def watched(slots, *rest):
    victims.update(slots.cpu().numpy().tobytes())
    return free(slots, *rest)

built.allocator.free = watched
result = Result(policy, 8000, 16, 0, hits=[])
replay(built, events(), result, 0)
built.close()
assert result.evicted_tokens > 8000, result.evicted_tokens
print(victims.hexdigest(), sum(result.hits))
"""


def victims(policy: str, ids: str, seed: str) -> bytes:
    """A digest of every slot that was freed, in order, from a process of its own."""
    threads = {f"{name}_NUM_THREADS": seed for name in ("OMP", "OPENBLAS", "MKL")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE, policy, ids],
        env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)} | threads,
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout.splitlines()[-1]


@pytest.mark.parametrize("ids", ["ids", "inferred"])
def test_neither_hash_seeds_nor_the_number_of_threads_change_a_victim(ids) -> None:
    pytest.importorskip("sglang")
    one, other = (victims("scout", ids, seed) for seed in ("1", "2"))
    assert one == other
