"""One tenant: a cache namespace and all that is learned in it."""

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
    """One namespace; ``namespace`` is None while a restored one is known by its digest alone."""

    number: int
    identity: Identity
    value: Value
    namespace: Namespace | None
    root: Callable[[int], int] = field(init=False)
    """The session that a session was merged into, or itself."""

    def __post_init__(self) -> None:
        self.root = self.identity.root


def fresh(
    number: int, config: IdentityConfig, horizon: Horizon, namespace: Namespace | None = None
) -> Tenant:
    """A tenant of which nothing is known, under the value rule that ``config`` selects."""
    value: Value
    if isinstance(config, CacheScoutConfig):
        value = CacheScoutValue(config)
    else:
        assert isinstance(config, ScoutConfig)
        value = ScoutValue(config, horizon)
    return Tenant(number, Identity(config), value, namespace)


def hidden(namespace: Namespace) -> Namespace:
    """What a namespace is called in a snapshot."""
    return namespace if namespace[:1] == (_HIDDEN,) else (_HIDDEN, digest(*namespace))
