"""One namespace: who speaks in it, and what that makes its nodes worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from radix_policy.cachescout import CacheScoutValue
from radix_policy.call import Namespace
from radix_policy.config import CacheScoutConfig, IdentityConfig, ScoutConfig
from radix_policy.hashing import digest
from radix_policy.horizon import Horizon
from radix_policy.identity import Identity
from radix_policy.value import ScoutValue

Value = ScoutValue | CacheScoutValue
_HIDDEN = "a namespace by its digest"


@dataclass(slots=True)
class Tenant:
    """``namespace`` is None until it calls; a restored one is known by its digest alone."""

    number: int
    identity: Identity
    value: Value
    namespace: Namespace | None = None
    root: Callable[[int], int] = field(init=False)
    """The session that a session was merged into, or itself."""

    def __post_init__(self) -> None:
        self.root = self.identity.root


def new_tenant(number: int, config: IdentityConfig, horizon: Horizon) -> Tenant:
    """Nothing learned yet, under the value rule that ``config`` selects."""
    if isinstance(config, CacheScoutConfig):
        return Tenant(number, Identity(config), CacheScoutValue(config))
    assert isinstance(config, ScoutConfig)
    return Tenant(number, Identity(config), ScoutValue(config, horizon))


def hidden(namespace: Namespace) -> Namespace:
    """What a namespace is called in a snapshot."""
    return namespace if namespace[:1] == (_HIDDEN,) else (_HIDDEN, digest(*namespace))
