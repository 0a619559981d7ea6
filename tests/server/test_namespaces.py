"""Tenants on one server: equal prompts, nothing in common."""

from __future__ import annotations

import pytest

from tests.server import support

pytestmark = pytest.mark.server


@pytest.mark.parametrize("field", ["cache_salt", "extra_key"])
def test_equal_prompts_of_different_namespaces_never_reuse_each_others_prefix(field, scout_server):
    prompt = list(range(1000, 1300))
    support.post(scout_server.url, "/flush_cache")  # room for all, so that nothing is trimmed
    known = support.inside(scout_server.url)["scout"]["tenants"]

    def ask(tenant: str) -> dict:
        return support.generate(scout_server.url, prompt, **{field: f"{field}-{tenant}"})

    replies = {(tenant, turn): ask(tenant) for turn in (1, 2) for tenant in ("one", "two")}
    cached = {key: reply["meta_info"]["cached_tokens"] for key, reply in replies.items()}
    assert cached == {("one", 1): 0, ("two", 1): 0, ("one", 2): 299, ("two", 2): 299}
    assert len({tuple(reply["output_ids"]) for reply in replies.values()}) == 1
    state = support.at_rest(scout_server.url)
    assert state["scout"]["tenants"] == known + 2
    support.assert_books_balance(state)
