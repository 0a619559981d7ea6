"""The routes below /scout ask for keys exactly as SGLang's own do, whichever keys there are."""

from __future__ import annotations

import itertools

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sglang.srt.utils.auth import add_api_key_middleware

from scout_sglang.http import add_routes

KEYS = [None, "a-key", "an-admin-key"]
SHOWN, CHANGED = ("/scout", "/scout/ui"), ("/scout/config", "/scout/snapshot")


def application(api_key, admin_key):
    """Our routes and two of SGLang's, behind its own middleware, with no server behind them."""
    from sglang.srt.entrypoints import http_server

    app = FastAPI()
    app.add_api_route("/server_info", http_server.server_info)
    app.add_api_route("/flush_cache", http_server.flush_cache, methods=["POST"])
    add_routes(app, lambda: None)
    add_api_key_middleware(app, api_key=api_key, admin_api_key=admin_key)
    return TestClient(app, raise_server_exceptions=False)


@pytest.mark.parametrize("sent", [None, "wrong", "a-key", "an-admin-key"])
@pytest.mark.parametrize(("api_key", "admin_key"), itertools.product(KEYS[:2], KEYS[::2]))
def test_every_route_answers_without_the_right_key_as_sglangs_own(api_key, admin_key, sent):
    client = application(api_key, admin_key)
    headers = {} if sent is None else {"Authorization": f"Bearer {sent}"}
    own = client.get("/server_info", headers=headers)
    for path in SHOWN:
        same(client.get(path, headers=headers), own)
    own = client.post("/flush_cache", headers=headers)
    for path in CHANGED:
        same(client.post(path, headers=headers, json={}), own)


def same(answer, own):
    """Both are let through, or both are refused in the same words."""
    assert (answer.status_code == 401) == (own.status_code == 401)
    if own.status_code == 401:
        assert (answer.content, dict(answer.headers)) == (own.content, dict(own.headers))
