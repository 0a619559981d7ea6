"""Fixtures that more than one test file uses."""

import logging
import os

import pytest
from hypothesis import settings

# The same examples in every run; `HYPOTHESIS_PROFILE=explore` draws new ones.
settings.register_profile("repeat", derandomize=True)
settings.register_profile("explore")
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


def pytest_terminal_summary(terminalreporter):
    """What tests have measured and recorded as such."""
    for report in terminalreporter.getreports("passed"):
        for name, value in getattr(report, "user_properties", ()):
            if name == "measured":
                terminalreporter.write_line(value)


@pytest.fixture
def sglang_start(monkeypatch):
    """Parse and resolve arguments with SGLang's own code, up to where it would load the model.

    Returns a function of ``argv`` that gives the resolved view of the ``ServerArgs``. The
    environment, which SGLang and the plugin write to, is put back afterwards.
    """
    from sglang.srt.arg_groups.overrides import resolving_view
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args

    before = dict(os.environ)
    load_plugins()
    # SGLang's call replaces the root handlers, pytest's capture among them.
    monkeypatch.setattr(logging, "basicConfig", lambda **_: None)

    def start(argv):
        server_args = prepare_server_args(argv)
        server_args.resolve_once()
        return resolving_view(server_args)

    yield start
    os.environ.clear()
    os.environ.update(before)
