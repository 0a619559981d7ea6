"""Open at run: exceptions in our code are counted, logged once a kind, and replaced."""

import logging

import pytest

from scout_sglang import faults


@pytest.fixture
def counted(monkeypatch):
    fresh = faults.Faults()
    monkeypatch.setattr(faults, "FAULTS", fresh)
    return fresh


def test_a_guarded_function_returns_its_own_result(counted):
    assert faults.guarded("observe")(lambda x: x + 1)(1) == 2
    assert counted.total == 0


def test_an_exception_is_replaced_by_the_fallback_value(counted):
    @faults.guarded("observe", fallback=0)
    def observe():
        raise RuntimeError("ours")

    assert observe() == 0
    assert counted.counts == {"observe": 1}


def test_a_callable_fallback_gets_the_same_arguments(counted):
    @faults.guarded("evict", fallback=min)
    def victim(a, b):
        raise KeyError(a)

    assert victim(3, 2) == 2


def test_each_kind_is_logged_once_with_its_traceback(counted, caplog):
    @faults.guarded("evict")
    def evict():
        raise RuntimeError("broken heap")

    with caplog.at_level(logging.ERROR, logger="scout_sglang.faults"):
        for _ in range(3):
            evict()
    assert counted.counts == {"evict": 3}
    assert caplog.text.count("RuntimeError: broken heap") == 1


def test_leaving_the_process_is_not_a_fault(counted):
    @faults.guarded("evict")
    def stop():
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        stop()
    assert counted.total == 0
