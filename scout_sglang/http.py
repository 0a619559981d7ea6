"""The routes below ``/scout``, in SGLang's own web application and behind its own keys.

SGLang's middleware finds a route's level on its endpoint: what only shows is protected as
``/server_info`` is (the API key), what changes something as ``/flush_cache`` is (the admin key
where there is one).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from radix_policy.config import ConfigError
from scout_sglang import __version__, compat, control, interrupt
from scout_sglang.ui import page

SCHEMA = 1
PATIENCE_SECONDS = 10.0


class RankError(RuntimeError):
    """A rank has refused a request or did not answer; ``status`` is HTTP's."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def on_launch(launch: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """AROUND http_server.launch_server: our routes are there before SGLang's keys are set up."""
    from sglang.srt.entrypoints import http_server

    server_args = args[0] if args else kwargs["server_args"]
    if server_args.tokenizer_worker_num > 1:
        # Their processes import SGLang's application anew; compat.LIMITED has said so.
        return launch(*args, **kwargs)
    add_routes(http_server.app, lambda: http_server.get_global_state().tokenizer_manager)
    try:
        return launch(*args, **kwargs)
    finally:
        if interrupt.keeps_state(server_args):
            interrupt.end_ranks()


def add_routes(app: Any, manager: Callable[[], Any]) -> None:
    """Add the routes to a FastAPI application; ``manager`` gives SGLang's TokenizerManager."""
    import orjson
    from fastapi import Request, Response
    from fastapi.responses import HTMLResponse
    from sglang.srt.utils.auth import AuthLevel, auth_level

    def reply(body: Any, status: int = 200) -> Response:
        headers = {"Cache-Control": "no-store"}
        return Response(orjson.dumps(body), status, headers, "application/json")

    def failed(status: int, message: str) -> Response:
        return reply({"error": message}, status)

    async def state() -> Response:
        try:
            ranks = await ask(manager(), {"do": "state"})
            _spell_out(ranks, manager().tokenizer)
        except RankError as error:
            return failed(error.status, str(error))
        return reply(
            {
                "schema": SCHEMA,
                "version": __version__,
                "sglang": compat.installed_sglang(),
                "model": manager().served_model_name,
                "ranks": ranks,
            }
        )

    @auth_level(AuthLevel.ADMIN_OPTIONAL)
    async def config(request: Request) -> Response:
        try:
            wanted = await request.json()
            control.check(wanted)
            return reply({"ranks": await ask(manager(), {"do": "config", "set": wanted})})
        except RankError as error:
            return failed(error.status, str(error))
        except (ConfigError, ValueError) as error:
            return failed(400, str(error))

    @auth_level(AuthLevel.ADMIN_OPTIONAL)
    async def snapshot() -> Response:
        try:
            return reply({"ranks": await ask(manager(), {"do": "snapshot"})})
        except RankError as error:
            return failed(error.status, str(error))

    async def show() -> Response:
        return HTMLResponse(page(), headers={"Cache-Control": "no-cache"})

    # Annotations are text here, which FastAPI would look up among this module's names.
    config.__annotations__ = {"request": Request}
    for endpoint in (state, snapshot, show):
        endpoint.__annotations__ = {}
    add = app.add_api_route
    add("/scout", state, methods=["GET"])
    add("/scout/config", config, methods=["POST"])
    add("/scout/snapshot", snapshot, methods=["POST"])
    add("/scout/ui", show, methods=["GET"], include_in_schema=False)


def _spell_out(ranks: list[dict[str, Any]], tokenizer: Any) -> None:
    """Token ids that a rank was allowed to show become text."""
    for rank in ranks:
        for agent in rank.get("agents", ()):
            for name in ("anchor_text", "divergence_text"):
                if name in agent:
                    text = None if tokenizer is None else tokenizer.decode(agent[name])
                    agent[name] = text


async def ask(manager: Any, body: dict[str, Any]) -> list[dict[str, Any]]:
    """Send a request to every data-parallel rank; their answers by rank.

    Raises:
        RankError: a rank refused, failed, or was silent for ``PATIENCE_SECONDS``.
    """
    from sglang.srt.managers.io_struct import DumperControlReqInput

    request = DumperControlReqInput(method=control.METHOD, body=body)
    # Left to finish by itself: SGLang would give a late answer to whoever asks next.
    sent = asyncio.ensure_future(manager.dumper_control(request))
    try:
        replies = await asyncio.wait_for(asyncio.shield(sent), PATIENCE_SECONDS)
    except asyncio.TimeoutError:
        raise RankError(503, f"a rank did not answer in {PATIENCE_SECONDS:.0f} s") from None
    errors = sorted({reply.error for reply in replies if not reply.success})
    if errors:
        raise RankError(409, "; ".join(errors))
    return sorted(
        (part for reply in replies for part in reply.response), key=lambda part: part["dp_rank"]
    )
