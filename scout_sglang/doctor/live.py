"""What a running server knows of its prefixes: ``GET /scout``, without any text."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any, NamedTuple

TIMEOUT_SECONDS = 15
ENOUGH_CALLS = 3
EARLY = 64
"""Tokens within which no agent's prompts part by design."""


class LiveError(RuntimeError):
    """The server cannot be asked; the message says why and what to do."""


class LiveAgent(NamedTuple):
    """One agent on one DP rank, figures in tokens. What the server does not know is None."""

    rank: int
    agent: str
    calls: int
    prompt_tokens: int
    recomputed_tokens: int
    hit_rate: float | None
    anchor_tokens: int | None
    first_divergence: int | None

    @property
    def suspect(self) -> bool:
        """Most of its prompts is computed again, and they part before its fixed part ends."""
        if self.calls < ENOUGH_CALLS or self.hit_rate is None or self.hit_rate >= 0.5:
            return False
        if self.first_divergence is None:
            return False
        return self.first_divergence < max(EARLY, self.anchor_tokens or 0)


def fetch(url: str, api_key: str | None) -> dict[str, Any]:
    """The answer of ``GET /scout``.

    Raises:
        LiveError: no answer, a refusal, or something that is not this route's answer.
    """
    address = url.rstrip("/")
    address = address if address.endswith("/scout") else f"{address}/scout"
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    try:
        request = urllib.request.Request(address, headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:
            state = json.load(answer)
    except urllib.error.HTTPError as error:
        raise LiveError(_refusal(address, error.code)) from None
    except (OSError, ValueError) as error:
        raise LiveError(f"{address} cannot be read ({error}); is the server up?") from None
    if not isinstance(state, dict) or not isinstance(state.get("ranks"), list):
        raise LiveError(f"{address} does not answer as /scout does; is it an SGLang server?")
    return state


def _refusal(address: str, code: int) -> str:
    if code in (401, 403):
        return f"{address} asks for a key: --api-key, or SCOUT_API_KEY in the environment."
    if code == 404:
        return f"{address} is unknown there: the server does not run one of scout's policies."
    return f"{address} answered with status {code}."


def agents(state: dict[str, Any]) -> list[LiveAgent]:
    """All agents of all ranks, the one with the most recomputed tokens first."""
    found = [
        LiveAgent(
            rank=rank.get("dp_rank") or 0,
            agent=str(agent.get("label") or f"agent {agent.get('id')}"),
            calls=agent.get("calls") or 0,
            prompt_tokens=agent.get("prompt_tokens") or 0,
            recomputed_tokens=agent.get("recomputed_tokens") or 0,
            hit_rate=agent.get("hit_rate"),
            anchor_tokens=agent.get("anchor_tokens"),
            first_divergence=agent.get("first_divergence"),
        )
        for rank in state["ranks"]
        for agent in rank.get("agents") or []
    ]
    return sorted(found, key=lambda agent: -agent.recomputed_tokens)
