"""How several replicas share the work; from flags alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from signer.model.lease import DEFAULT_LEASE_NAME, ElectionTimes


@dataclass(frozen=True, slots=True)
class LeaderElection:
    """One replica works at a time: the holder of the Lease of that name in the controller's own namespace."""

    times: ElectionTimes = field(default_factory=ElectionTimes)
    lease_name: str = DEFAULT_LEASE_NAME


@dataclass(frozen=True, slots=True)
class Sharding:
    """Every replica serves the Clusters of its own shards, held by Leases in the controller's own namespace."""

    count: int
    """Number of shards; the same in all replicas."""
    times: ElectionTimes = field(default_factory=ElectionTimes)
    lease_name: str = DEFAULT_LEASE_NAME
    """Prefix of the Leases' names, and the value of their label."""


@dataclass(frozen=True, slots=True)
class NoLeaderElection:
    """The replica serves all Clusters, once no other controller holds the Lease of that name."""

    lease_name: str = DEFAULT_LEASE_NAME
    retry_period: timedelta = timedelta(seconds=2)
    """Pause between two reads of a Lease that another controller holds."""
