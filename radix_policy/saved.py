"""What of a Scout goes into a snapshot, and a Scout made of what comes out of one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from radix_policy import bounds, snapshot, tenants, warm_start
from radix_policy.tenants import hidden

if TYPE_CHECKING:
    from radix_policy.scout import Scout


def parts(scout: Scout) -> dict[str, Any]:
    """The parts of a snapshot, for :class:`snapshot.Frozen`."""
    return {
        "clock": scout.clock,
        "next_tenant": scout._next_tenant,
        "horizon": scout.horizon,
        "guard": scout.guard,
        "tenants": [
            (hidden(namespace), tenant.number, tenant.identity, tenant.value)
            for namespace, tenant in scout._tenants.items()
        ],
        "anchors": warm_start.hot(scout),
    }


def take_up(scout: Scout, parts: dict[str, Any]) -> None:
    """Give them to a Scout that has seen no call.

    Raises:
        SnapshotError: there is more of something than the configuration allows.
    """
    scout.clock, scout._next_tenant = int(parts["clock"]), int(parts["next_tenant"])
    snapshot.fill(scout.horizon, parts["horizon"])
    if scout.guard is not None and parts["guard"] is not None:
        capacity = scout.guard.cap
        snapshot.fill(scout.guard, parts["guard"])
        scout.guard.resize(capacity)
    most = scout.config.max_namespaces
    snapshot.bounded(bounds.Held("max_namespaces", len(parts["tenants"]), most))
    for name, number, identity, value in parts["tenants"]:
        tenant = tenants.fresh(number, scout.config, scout.horizon)
        snapshot.fill(tenant.identity, identity)
        snapshot.fill(tenant.value, value)
        for held in bounds.held(tenant.identity, tenant.value, scout.config):
            snapshot.bounded(held)
        scout._tenants[name] = scout._by_number[number] = tenant
    warm_start.take_up(scout, parts["anchors"])
