"""What clients and operators do to a server: it stays up, its tree sound, its books balanced."""

from __future__ import annotations

import urllib.error

import pytest

from tests.server import support

pytestmark = pytest.mark.server

LONG = 3000  # output tokens: would outlast every wait in these tests


@pytest.fixture
def url(scout_server):
    """The server's address; afterwards it must be healthy, at rest and free of faults."""
    yield scout_server.url
    assert scout_server.exit_code is None
    state = support.at_rest(scout_server.url)
    support.assert_books_balance(state)
    assert state["scout"]["faults"] == {}
    reply = support.generate(scout_server.url, [5, 6, 7, 8], tokens=3)
    assert reply["meta_info"]["completion_tokens"] == 3


def test_a_client_that_disconnects_ends_its_request(url):
    stream = support.Stream(url, list(range(600)), LONG)
    stream.read(3)
    assert support.inside(url)["scout"]["underway"] == 1
    stream.close()
    assert support.at_rest(url)["scout"]["underway"] == 0


def test_a_running_request_can_be_aborted(url):
    stream = support.Stream(url, list(range(600)), LONG, rid="runs")
    stream.read(3)
    support.post(url, "/abort_request", {"rid": "runs"})
    assert stream.rest()["finish_reason"]["type"] == "abort"


def test_a_queued_request_can_be_aborted(url):
    assert support.abort_in_queue(url) == "abort"


@pytest.fixture
def no_warmup(url):
    """Nothing comes back by itself meanwhile."""
    support.post(url, "/scout/config", {"warmup": False})
    yield
    support.post(url, "/scout/config", {"warmup": True})


def test_after_a_flush_the_cache_is_empty_and_answers_are_the_same(url, no_warmup):
    prompt = list(range(2000, 2500))
    first = support.generate(url, prompt)
    assert support.generate(url, prompt)["meta_info"]["cached_tokens"] == 499
    support.post(url, "/flush_cache")
    books = support.inside(url)["testing"]
    assert books["available"] == books["capacity"]
    again = support.generate(url, prompt)
    assert again["meta_info"]["cached_tokens"] == 0
    assert again["output_ids"] == first["output_ids"]


@pytest.mark.parametrize("mode", ["in_place", "retract"])
@pytest.mark.parametrize("flush", [False, True], ids=["", "flushed"])
def test_a_paused_request_goes_on_where_it_was(mode, flush, url):
    # Long enough that a busy machine still finds it running when the pause arrives.
    prompt, tokens = list(range(3000, 3200)), 120
    expected = support.generate(url, prompt, tokens=tokens)["text"]
    stream = support.Stream(url, prompt, tokens)
    stream.read(4)
    support.post(url, "/pause_generation", {"mode": mode})
    try:
        if flush and mode == "retract":
            support.post(url, "/flush_cache")
            assert support.inside(url)["testing"]["protected"] == 0
        elif flush:
            with pytest.raises(urllib.error.HTTPError):  # its KV is in use
                support.post(url, "/flush_cache")
        assert support.inside(url)["scout"]["underway"] == 1
    finally:
        support.post(url, "/continue_generation")
    ended = stream.rest()
    assert ended["finish_reason"]["type"] == "length"
    assert stream.text == expected


def test_a_pause_that_aborts_ends_the_requests_under_way(url):
    stream = support.Stream(url, list(range(600)), LONG)
    stream.read(3)
    support.post(url, "/pause_generation", {"mode": "abort"})
    support.post(url, "/continue_generation")
    assert stream.rest()["finish_reason"]["type"] == "abort"


def test_a_prompt_longer_than_the_cache_is_refused(url):
    size = support.inside(url)["testing"]["capacity"]
    with pytest.raises(urllib.error.HTTPError) as refused:
        support.generate(url, [7] * (size + 500))
    assert refused.value.code == 400


def test_an_output_that_outgrows_the_cache_is_cut(url):
    size = support.inside(url)["testing"]["capacity"]
    prompt = list(range(size - 60))
    reply = support.generate(url, prompt, tokens=400)
    assert 0 < reply["meta_info"]["completion_tokens"] <= 60


def test_200_concurrent_requests_are_all_answered(url):
    evicted = support.inside(url)["testing"]["evicted_tokens"]
    bodies = [
        {
            "ids": [*range(100 * (n % 6), 100 * (n % 6) + 80), *range(n, n + 40)],
            "tokens": 1 + n % 3,
            "session_id": f"crowd-{n % 40}",
        }
        for n in range(200)
    ]
    replies = support.generate_all(url, bodies)
    counts = [reply["meta_info"]["completion_tokens"] for reply in replies]
    assert counts == [body["tokens"] for body in bodies]
    assert support.at_rest(url)["testing"]["evicted_tokens"] > evicted
