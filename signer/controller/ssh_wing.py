"""The switch of the wing for SSH: what it adds to the controller, or nothing.

``run.py`` knows the wing by this module alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias

from signer.access.revocation_list import RevocationList, RevocationListWatch
from signer.configuration import Configuration, SSHPermission, SSHSwitchedOff
from signer.controller.cluster.service import OptionalPart, OptionalPartContext
from signer.controller.ssh_authorities import (
    SSHAuthoritiesService,
    SSHSwitchedOffConditions,
    WatchService,
    tell_of_policy,
)
from signer.controller.ssh_bundle import SignersOfStatements, SSHBundleService
from signer.controller.status.status_reconciler import ConditionSource
from signer.controller.telemetry.recorder import Recorder
from signer.decision.host_certificates import (
    HostAuthorityAnswer,
    HostAuthorityNotRead,
    HostCertificateParts,
    HostCertificatesSwitchedOff,
    HostCertificateSwitch,
    NoSigningHostAuthority,
    SigningHostAuthority,
)
from signer.model.cluster import ClusterKey
from signer.rotation.operations import OPERATION_ANNOTATION
from signer.ssh.available import NotAvailable, SSHAuthorities, SSHAuthoritiesOf
from signer.ssh.bundle.reconciler import BundleReconciler
from signer.ssh.host_coverage import HostCoverageWatch
from signer.ssh.reconciler import SSHReconciler
from signer.ssh.recorded import recorded_reports
from signer.ssh.revocations import PolicyRevocations, PublishedRevocations, RevocationsOf, combined
from signer.ssh.ways_in.watch import WaysInWatch
from signer.store.caches import ALL_PROVIDER_IDS, Caches, Wake


@dataclass(frozen=True, slots=True)
class SSHParts:
    """What the clusters share."""

    permission: SSHPermission
    authorities: SSHAuthorities
    host_certificates: HostCertificateParts
    """What decisions need to sign."""
    recorder: Recorder
    published: PublishedRevocations
    """What nodes can read of ended access grants."""

    @property
    def authorities_of(self) -> SSHAuthoritiesOf:
        """What a part that signs asks for."""
        return self.authorities.of


SSHWing: TypeAlias = SSHParts | SSHSwitchedOff


def ssh_wing(configuration: Configuration, recorder: Recorder) -> SSHWing:
    """The wing, or nothing."""
    if isinstance(configuration.ssh, SSHSwitchedOff):
        return configuration.ssh
    authorities = SSHAuthorities()
    return SSHParts(
        configuration.ssh,
        authorities,
        HostCertificateParts(partial(_signing_authority, authorities), host_keys_oids=configuration.host_keys_oids),
        recorder,
        PublishedRevocations(_steady_clock()),
    )


def _steady_clock() -> Callable[[], datetime]:
    """Time since now, whatever becomes of the wall clock: what is kept for an hour is."""
    began, at = datetime.now(UTC), time.monotonic()
    return lambda: began + timedelta(seconds=time.monotonic() - at)


def host_certificates_of(wing: SSHWing) -> HostCertificateSwitch:
    """What decisions need to sign host certificates, or nothing."""
    return HostCertificatesSwitchedOff() if isinstance(wing, SSHSwitchedOff) else wing.host_certificates


def _signing_authority(authorities: SSHAuthorities, key: ClusterKey) -> HostAuthorityAnswer:
    if not authorities.has_looked(key):
        return HostAuthorityNotRead()
    found = authorities.of(key)
    if isinstance(found, NotAvailable):
        return NoSigningHostAuthority(f"{found.reason}: {found.message}")
    return SigningHostAuthority(found.host, found.trust)


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


@dataclass(frozen=True, slots=True)
class NoRevocationList:
    """Access grants are switched off."""


NO_REVOCATION_LIST: Final = NoRevocationList()


def revocations_of(wing: SSHParts, caches: Caches, access: RevocationList | NoRevocationList) -> RevocationsOf:
    """Everything that is revoked: by the policy, by the end of a grant, and what was published before."""
    lists = (access.of,) if isinstance(access, RevocationList) else ()
    return combined(PolicyRevocations(caches).of, wing.published.of, *lists)


def ssh_of_cluster(
    wing: SSHWing,
    context: OptionalPartContext,
    random: Random,
    access: RevocationList | NoRevocationList = NO_REVOCATION_LIST,
) -> SSHOfCluster:
    """The SSH authorities of one workload cluster, and what its nodes are told about them. ``access`` has the ended
    access grants, where they are switched on.
    """
    if isinstance(wing, SSHSwitchedOff):
        return SSHOfCluster(sources=(SSHSwitchedOffConditions(context.key, context.caches),))
    now = partial(datetime.now, UTC)  # nodes and clients compare times with their own clocks
    bundle = BundleReconciler(
        context.key,
        caches=context.caches,
        authorities_of=wing.authorities_of,
        revocations_of=revocations_of(wing, context.caches, access),
        published=wing.published,
        signers=SignersOfStatements(context.authority_source),
        changed=context.status_changed.set,
        now=now,
        random=random,
    )

    def changed() -> None:
        context.status_changed.set()
        bundle.wake()

    reconciler = SSHReconciler(
        context.key,
        management=context.management,
        caches=context.caches,
        authorities=wing.authorities,
        permission=wing.permission,
        reports=partial(recorded_reports, context.caches),
        tell=partial(tell_of_policy, context.key, wing.recorder, context.caches),
        changed=changed,
        now=now,
        random=random,
    )
    watch = WaysInWatch(
        context.key,
        management=context.management,
        caches=context.caches,
        permission=wing.permission,
        changed=context.status_changed.set,
        random=random,
    )
    coverage = HostCoverageWatch(
        context.key, caches=context.caches, permission=wing.permission, changed=context.status_changed.set, now=now
    )
    kept: tuple[OptionalPart, ...] = ()
    if isinstance(access, RevocationList):
        kept = (OptionalPart(WatchService(RevocationListWatch(context.key, access, bundle.wake))),)
    parts = (
        *kept,
        OptionalPart(SSHAuthoritiesService(reconciler)),
        OptionalPart(WatchService(coverage)),
        OptionalPart(SSHBundleService(bundle)),
        OptionalPart(WatchService(watch)),
    )
    return SSHOfCluster(parts, lambda: {**reconciler.status, **bundle.status} if reconciler.status else {})


__all__ = [
    "NO_REVOCATION_LIST",
    "NoRevocationList",
    "SSHOfCluster",
    "SSHParts",
    "SSHWing",
    "host_certificates_of",
    "revocations_of",
    "ssh_of_cluster",
    "ssh_wing",
    "wake_on_ssh_orders",
]
