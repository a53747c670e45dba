"""The switch of the wing for SSH: what it adds to the controller, or nothing.

``run.py`` knows the wing by this module alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any, TypeAlias

from signer.configuration import Configuration, SSHPermission, SSHSwitchedOff
from signer.controller.cluster.service import OptionalPart, OptionalPartContext
from signer.controller.ssh_authorities import SSHAuthoritiesService, SSHSwitchedOffConditions
from signer.controller.ssh_ways_in import SSHWaysInService
from signer.controller.status.status_reconciler import ConditionSource
from signer.ssh.available import SSHAuthorities, SSHAuthoritiesOf
from signer.ssh.reconciler import SSHReconciler
from signer.ssh.ways_in.reconciler import WaysInReconciler


@dataclass(frozen=True, slots=True)
class SSHParts:
    """What the clusters share."""

    permission: SSHPermission
    authorities: SSHAuthorities

    @property
    def authorities_of(self) -> SSHAuthoritiesOf:
        """What a part that signs asks for."""
        return self.authorities.of


SSHWing: TypeAlias = SSHParts | SSHSwitchedOff


def ssh_wing(configuration: Configuration) -> SSHWing:
    """The wing, or nothing."""
    if isinstance(configuration.ssh, SSHSwitchedOff):
        return configuration.ssh
    return SSHParts(configuration.ssh, SSHAuthorities())


@dataclass(frozen=True, slots=True)
class SSHOfCluster:
    """What the wing adds to one workload cluster."""

    parts: tuple[OptionalPart, ...] = ()
    status: Callable[[], dict[str, Any]] = dict
    """``status.ssh`` of the policy."""
    sources: tuple[ConditionSource, ...] = ()
    """Conditions that need no service."""


def ssh_of_cluster(wing: SSHWing, context: OptionalPartContext, random: Random) -> SSHOfCluster:
    """The SSH authorities of one workload cluster."""
    if isinstance(wing, SSHSwitchedOff):
        return SSHOfCluster(sources=(SSHSwitchedOffConditions(context.key, context.caches),))
    reconciler = SSHReconciler(
        context.key,
        management=context.management,
        caches=context.caches,
        authorities=wing.authorities,
        permission=wing.permission,
        changed=context.status_changed.set,
        now=partial(datetime.now, UTC),  # nodes and clients compare times with their own clocks
        random=random,
    )
    ways_in = WaysInReconciler(
        context.key,
        management=context.management,
        caches=context.caches,
        permission=wing.permission,
        changed=context.status_changed.set,
        random=random,
    )
    parts = (OptionalPart(SSHAuthoritiesService(reconciler)), OptionalPart(SSHWaysInService(ways_in)))
    return SSHOfCluster(parts, lambda: reconciler.status)


__all__ = ["SSHOfCluster", "SSHParts", "SSHWing", "ssh_of_cluster", "ssh_wing"]
