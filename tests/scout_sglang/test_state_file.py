"""The state file: whole or not at all, put aside when it can't be used, never in the way."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import time

import pytest

from radix_policy import snapshot
from radix_policy.call import Call
from radix_policy.config import ScoutConfig
from radix_policy.scout import Scout
from scout_sglang.state_file import StateFile
from tests.radix_policy.contracts import text

WAIT = 30.0
WRITER = """
import sys, itertools
sys.path.insert(0, {root!r})
from tests.scout_sglang.test_state_file import busy, file
scout, kept = busy(), file(sys.argv[1])
for number in itertools.count():
    scout.clock += 1
    kept.write(scout, wait=30)
    if number == 0:
        print("written", flush=True)
"""


def busy(calls: int = 30) -> Scout:
    scout = Scout(ScoutConfig(), capacity=4000)
    for number in range(calls):
        prompt = text(number % 3, 60)
        call = scout.observe(Call(prompt, session=f"s{number % 7}"))
        scout.admit(call)
        scout.start(call, 60, 10)
        scout.finish(call, prompt, 60, 50)
    return scout


def file(path, model="a model", writes=True) -> StateFile:
    return StateFile(str(path), 0, 300, model, writes)


def fresh() -> Scout:
    return Scout(ScoutConfig(), capacity=4000)


def test_what_was_learned_is_there_after_a_restart(tmp_path):
    scout = busy()
    assert file(tmp_path / "state").write(scout, wait=WAIT)
    later, kept = fresh(), file(tmp_path / "state")
    kept.restore(later)
    assert kept.restored
    assert later.snapshot() == scout.snapshot()


def test_what_is_learned_during_a_write_is_not_in_it(tmp_path):
    scout = busy()
    frozen, before = scout.freeze(), scout.snapshot()
    scout.observe(Call(text(1, 80), session="new"))
    assert frozen.pack() == before != scout.snapshot()


def test_nothing_is_written_while_nothing_is_learned(tmp_path):
    scout, kept = busy(), file(tmp_path / "state")
    assert kept.write(scout, wait=WAIT)
    assert not kept.write(scout, wait=WAIT)
    assert kept.state()["writes"] == 1


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (lambda data: data[: len(data) // 2], "not a whole state"),
        (lambda data: b"", "not a whole state"),
        (None, "learned on model 'another'"),
        ("version", f"a state of version {snapshot.VERSION + 1}"),
    ],
    ids=["cut", "empty", "of another model", "of another version"],
)
def test_a_file_that_cannot_be_used_is_put_aside_and_named(
    tmp_path, caplog, monkeypatch, damage, why
):
    path = tmp_path / "state"
    with monkeypatch.context() as other:
        if damage == "version":
            other.setattr(snapshot, "VERSION", snapshot.VERSION + 1)
        file(path, "another").write(busy(), wait=WAIT)
    if callable(damage):
        path.write_bytes(damage(path.read_bytes()))
    scout = fresh()
    before = scout.snapshot()
    with caplog.at_level("WARNING"):
        file(path, "another" if damage else "a model").restore(scout)
    assert why in caplog.text
    assert "kept as" in caplog.text
    assert scout.snapshot() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["state.unused"]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 128 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no right to mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_on_a_full_disk_the_old_file_stays_and_is_taken_up_at_the_next_start(small_disk, caplog):
    path, scout = small_disk / "state", busy()
    kept = file(path)
    kept.write(scout, wait=WAIT)
    old, calls = path.read_bytes(), scout.clock
    with contextlib.suppress(OSError):
        (small_disk / "of somebody else").write_bytes(bytes(1 << 20))
    scout.observe(Call(text(5, 80)))
    kept.write(scout, wait=WAIT)
    assert path.read_bytes() == old
    assert kept.state()["failures"] == 1
    assert "could not be written (No space left on device)" in caplog.text
    assert sorted(entry.name for entry in small_disk.iterdir()) == ["of somebody else", "state"]
    later, again = fresh(), file(path)
    again.restore(later)
    assert again.restored
    assert later.clock == calls


def test_a_writer_that_is_killed_leaves_a_whole_file(tmp_path, request):
    path = tmp_path / "state"
    code = WRITER.format(root=str(request.config.rootpath))
    for pause in (0.0, 0.013, 0.027, 0.041):
        writer = subprocess.Popen(
            [sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, cwd=tmp_path
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"written\n"
        time.sleep(pause)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        scout, kept = fresh(), file(path)
        kept.restore(scout)
        assert kept.restored
        assert scout.clock >= 30
        assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_what_a_killed_writer_left_half_written_is_removed_at_the_next_start(tmp_path, caplog):
    file(tmp_path / "state").write(busy(), wait=WAIT)
    others = ["state.1.abcdefgh.tmp", "state.tmp", "other.abcdefgh.tmp"]
    for name in [*others, "state.abcdefgh.tmp"]:
        (tmp_path / name).write_bytes(b"half")
    with caplog.at_level("INFO"):
        file(tmp_path / "state").restore(fresh())
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(["state", *others])
    assert "state.abcdefgh.tmp, which was not written to its end" in caplog.text
