"""The set-up script knows what is left to do. Nothing is installed here."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "launch/cpu/setup.sh"
SMALL = ["venv", "torch", "requirements", "sglang", "project", "model"]


class Setup:
    """Calls the script's functions against a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.venv = folder / "venv"
        self.env = {**os.environ, "VENV": str(self.venv), "XDG_CACHE_HOME": str(folder)}
        self.env.pop("FULL", None)

    def call(self, code: str) -> str:
        command = ["bash", "-c", f"source {SCRIPT}; {code}"]
        done = subprocess.run(command, env=self.env, check=True, capture_output=True, text=True)
        return done.stdout

    def pending(self, mode: str = "small") -> list[str]:
        return self.call(f"pending_steps {mode}").split()

    def finish(self, steps: list[str], mode: str = "small") -> None:
        """Leave behind what the steps leave behind, but for the packages."""
        (self.venv / "bin").mkdir(parents=True, exist_ok=True)
        (self.venv / "bin/python").touch(mode=0o755)
        self.call(f"mkdir -p $STAMPS; echo {mode} >$STAMPS/mode")
        for step in steps:
            self.call(f"fingerprint {step} {mode} >$STAMPS/{step}")


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


def test_a_fresh_checkout_takes_every_step_in_order(setup: Setup) -> None:
    assert setup.pending() == SMALL


def test_an_interrupted_setup_goes_on_where_it_stopped(setup: Setup) -> None:
    setup.finish(["venv", "torch"])
    assert setup.pending() == ["requirements", "sglang", "project", "model"]


def test_a_changed_requirement_repeats_its_own_step_only(setup: Setup) -> None:
    setup.finish(SMALL[:-1])
    (setup.venv / ".setup/requirements").write_text("of an older list")
    assert setup.pending() == ["requirements", "model"]


def test_without_an_argument_an_environment_stays_what_it_is(setup: Setup) -> None:
    setup.finish(["venv", "sglang_full", "project"], mode="full")
    assert setup.call("chosen_mode").strip() == "full"
    assert setup.pending("full") == ["model"]
    assert setup.pending("small") == SMALL


def test_a_moved_environment_is_made_anew(setup: Setup) -> None:
    setup.finish(SMALL[:-1])
    moved = setup.venv.rename(setup.venv.with_name("moved"))
    setup.env["VENV"] = str(moved)
    assert setup.pending() == SMALL


def test_somebody_elses_environment_is_left_alone(setup: Setup) -> None:
    (setup.venv / "bin").mkdir(parents=True)
    done = subprocess.run(["bash", SCRIPT], env=setup.env, capture_output=True, text=True)
    assert done.returncode == 1
    assert "not from this script" in done.stderr
    assert (setup.venv / "bin").is_dir()


def test_an_unknown_argument_is_refused_by_name() -> None:
    done = subprocess.run(["bash", SCRIPT, "--ful"], capture_output=True, text=True)
    assert done.returncode == 1
    assert "'--ful'" in done.stderr and "--full" in done.stderr
