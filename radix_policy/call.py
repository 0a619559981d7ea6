"""What the engine tells the policy about a call, and what the policy makes of it."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Tokens = NDArray[np.int32]
Namespace = tuple[str | None, ...]
"""Tenant boundary: (extra_key, cache_salt, lora). Learned state never crosses it."""


class Call(NamedTuple):
    """One request as it enters the queue.

    ``tokens``: the prompt's token ids, shape (n,). ``agent``, ``session``: labels that the client
    sent, or None. ``end_of_session``: the client said that the session ends with this call.
    ``routing_key``: evidence about the session, never proof. ``plain``: the token ids alone
    determine the KV (no images, no embeddings in their place).
    """

    tokens: Tokens
    namespace: Namespace = ()
    agent: str | None = None
    session: str | None = None
    routing_key: str | None = None
    end_of_session: bool = False
    plain: bool = True


class Dispatch(NamedTuple):
    """A call with a name: who is calling, in which session.

    ``tenant``, ``session``, ``agent``: small integers, never reused while anything refers to
    them. ``number``: the dispatch's place on the logical clock. ``anchor``: length in tokens of
    the agent's fixed context as known now. ``labelled``: the client named the session.
    ``plain``: see :class:`Call`.
    """

    tenant: int
    session: int
    agent: int
    number: int
    anchor: int
    labelled: bool
    plain: bool = True


class NodeKind(IntEnum):
    """How a private radix node came to be; a shared node needs none."""

    PROMPT = 0
    OUTPUT = 1
    SPINE = 2
    STALE = 3

    # Enum hashes by name, in Python; node classes are looked up often.
    __hash__ = int.__hash__


class Identified(NamedTuple):
    """Identity's answer: session and agent ids of one namespace.

    ``merged``: sessions found to be one and the same, as (absorbed, survivor) pairs, the
    absorbed ids being dead from now on.
    """

    session: int
    agent: int
    anchor: int
    new_session: bool
    merged: tuple[tuple[int, int], ...] = ()
