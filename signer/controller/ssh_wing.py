"""The switch of the wing for SSH: what it adds to the controller, or nothing.

``run.py`` knows the wing by this module alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from random import Random
from typing import Any, TypeAlias

from signer.configuration import Configuration, SSHPermission, SSHSwitchedOff
from signer.controller.cluster.service import OptionalPart, OptionalPartContext
from signer.controller.ssh_authorities import SSHAuthoritiesService, SSHSwitchedOffConditions, tell_of_policy
from signer.controller.status.status_reconciler import ConditionSource
from signer.controller.telemetry.recorder import Recorder
from signer.model.cluster import ClusterKey
from signer.rotation.operations import OPERATION_ANNOTATION
from signer.ssh.available import SSHAuthorities, SSHAuthoritiesOf
from signer.ssh.reconciler import SSHReconciler
from signer.ssh.reports import ReportsOf, no_reports
from signer.store.caches import ALL_PROVIDER_IDS, Caches, Wake


@dataclass(frozen=True, slots=True)
class SSHParts:
    """What the clusters share."""

    permission: SSHPermission
    authorities: SSHAuthorities
    recorder: Recorder
    reports: ReportsOf
    """What nodes report in their attested requests: a rotation waits for it."""

    @property
    def authorities_of(self) -> SSHAuthoritiesOf:
        """What a part that signs asks for."""
        return self.authorities.of


SSHWing: TypeAlias = SSHParts | SSHSwitchedOff


def ssh_wing(configuration: Configuration, recorder: Recorder) -> SSHWing:
    """The wing, or nothing."""
    if isinstance(configuration.ssh, SSHSwitchedOff):
        return configuration.ssh
    return SSHParts(configuration.ssh, SSHAuthorities(), recorder, no_reports)


def wake_on_ssh_orders(wing: SSHWing, caches: Caches, wake: Wake) -> None:
    """Have ``wake`` called when a policy has an order. Once per process."""
    if isinstance(wing, SSHSwitchedOff):
        return

    def annotated(key: ClusterKey, annotations: Mapping[str, Any]) -> None:
        if OPERATION_ANNOTATION in annotations:
            wake(key, ALL_PROVIDER_IDS)

    caches.on_policy_annotations(annotated)


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
        reports=wing.reports,
        tell=partial(tell_of_policy, context.key, wing.recorder, context.caches),
        changed=context.status_changed.set,
        now=partial(datetime.now, UTC),  # nodes and clients compare times with their own clocks
        random=random,
    )
    return SSHOfCluster((OptionalPart(SSHAuthoritiesService(reconciler)),), lambda: reconciler.status)


__all__ = ["SSHOfCluster", "SSHParts", "SSHWing", "ssh_of_cluster", "ssh_wing", "wake_on_ssh_orders"]
