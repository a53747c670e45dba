"""The state of every Cluster with a policy, read from the management and the workload clusters. Writes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from attestors.registry import Registry
from attestors.wire.names import InvalidProviderName, check_provider_name
from signer.authority import load_authority_certificates
from signer.configuration import Configuration
from signer.controller.status.policy_status import permitted_in
from signer.controller.workload_access import (
    NOT_READABLE,
    KubeconfigInUse,
    KubeconfigUnknown,
    kubeconfig_in_use,
    kubeconfig_needs,
    kubeconfig_notes,
    machines_not_known,
)
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.decision.authority_source import AuthoritySource, ChosenSecrets
from signer.explain.controller_lease import ControllerLease, LeaseExpired, LeaseNotKnown, read_controller_lease
from signer.explain.machines import LastCertificate, MachineState, MachineStatus, machine_statuses, with_last_requests
from signer.explain.readable import NotingReads, readable_caches
from signer.explain.source import items_of_list
from signer.explain.workload_requests import RequestCounts, Unreachable, count_requests
from signer.kube.client import Client, JsonObject
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.model.cluster import ClusterKey
from signer.model.condition import FLOORS_MET, READY
from signer.model.decision import Deferred, printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.floors import MODE_FIELD, below_floors
from signer.model.policy import Mode, Policy
from signer.store.caches import Caches, UnreadablePolicy
from signer.store.node_certificates import OVERDUE_SHARE, NodeCertificates

DAYS: Final = (1, 3, 7)
"""Upper bounds, in days to expiry, of the classes of certificates; certificates beyond the last are "more"."""
AUTHORITY_WARNING: Final = timedelta(days=30)
OBSERVE_PROTECTS_NOTHING: Final = (
    "mode Observe protects nothing: auto-approval gives any bootstrap token a certificate for any node name"
)
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Readiness:
    """Condition Ready of the policy, as the controller last wrote it."""

    status: str
    """``True``, ``False`` or ``Unknown``; empty if the controller has not written it."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Lives:
    """The latest client certificates of nodes whose Machines exist, counted by remaining lifetime.

    The expired and the overdue ones are those of the metric ``node_attestation_nodes``.
    """

    expired: int
    overdue: int
    """Valid certificates that should have been renewed by now, and still can be; also in ``below`` and ``more``."""
    below: Mapping[int, int]
    """Valid certificates, by the bounds in ``DAYS``."""
    more: int

    @classmethod
    def of(cls, certificates: NodeCertificates, now: datetime) -> Lives:
        """Count ``certificates`` as of ``now``."""
        moment = now.timestamp()
        expired = certificates.count_expired(moment)
        classes: Counter[int] = Counter()
        more = 0
        for end in certificates.ends[expired:]:
            bound = next((days for days in DAYS if end - moment < timedelta(days=days).total_seconds()), None)
            if bound is None:
                more += 1
            else:
                classes[bound] += 1
        return cls(expired, certificates.count_overdue(moment), {days: classes[days] for days in DAYS}, more)

    def needs(self) -> tuple[str, ...]:
        """What needs attention, for any lifetime of the certificates."""
        if not self.expired and not self.overdue:
            return ()
        overdue = f"overdue (less than {OVERDUE_SHARE * 100:.0f} % of the lifetime left): {self.overdue}"
        return (f"nodes do not renew: client certificates expired: {self.expired}, {overdue}",)


@dataclass(frozen=True, slots=True)
class RecordsUnverified:
    """The authenticity of AttestedNodes cannot be verified; the message says why."""

    message: str
    not_readable: bool = False
    """Whether this user may not read what is needed: the Cluster itself may be well."""


@dataclass(frozen=True, slots=True)
class Attestations:
    """Renewal coverage of a cluster."""

    machines: int
    attested: int
    lives: Lives
    unknown: int = 0
    """Machines of which it cannot be told here."""
    not_ours: int = 0
    """AttestedNodes without a valid seal of the controller key, which the controller ignores."""
    not_installed: Mapping[str, int] = field(default_factory=dict)
    """Machines that were attested, by attestors that are not installed here; not in ``attested``."""

    def notes(self) -> tuple[str, ...]:
        """What is not known here."""
        return tuple(
            f"Machines attested by {provider}, which is not installed here: {count}; whether they renew is not known, "
            "and they are not counted as attested"
            for provider, count in self.not_installed.items()
        )

    def needs(self) -> tuple[str, ...]:
        """What needs attention."""
        if not self.not_ours:
            return self.lives.needs()
        why = "was the key replaced, or does another party write them?"
        return (
            f"AttestedNodes not sealed with the controller key: {self.not_ours}; {why}",
            *self.lives.needs(),
        )


@dataclass(frozen=True, slots=True)
class AuthorityLife:
    """The validity of the signing CA."""

    not_after: datetime
    client: str = ""
    """The hash of the CA that signs the nodes' client certificates, in kubeadm's form."""


@dataclass(frozen=True, slots=True)
class AuthorityUnknown:
    """The CA cannot be read; the message says why."""

    message: str
    not_readable: bool = False
    """Whether this user may not read its Secrets."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The status of one Cluster."""

    cluster: ClusterKey
    mode: str
    attestors: str
    ready: Readiness
    attestations: Attestations | RecordsUnverified
    requests: RequestCounts | Unreachable
    authority: AuthorityLife | AuthorityUnknown
    kubeconfig: KubeconfigInUse = field(default_factory=KubeconfigUnknown)
    below_floors: str = ""
    """Where the policy is below the operator's floors, and what is in force; empty if nowhere."""
    machines: tuple[MachineStatus, ...] = ()
    controller: ControllerLease = field(default_factory=LeaseNotKnown)

    @property
    def is_open(self) -> bool:
        """Whether auto-approval may still give any bootstrap token a certificate: the mode is not Enforce."""
        # Without --config, ``mode`` is as stated.
        return not (self.mode == Mode.ENFORCE.value or MODE_FIELD in self.below_floors)

    def needs(self, now: datetime) -> tuple[str, ...]:
        """What needs attention; empty if nothing does."""
        needs = [self.controller.message] if isinstance(self.controller, LeaseExpired) else []
        if not self.ready.status:
            needs.append("no controller has written the condition Ready yet")
        elif self.ready.status != "True":
            needs.append(f"not ready: {self.ready.reason}: {self.ready.message}")
        if isinstance(self.requests, Unreachable) and not self.requests.not_readable:
            needs.append(f"its requests cannot be read: {self.requests.message}")
        if isinstance(self.attestations, RecordsUnverified):
            if not self.attestations.not_readable:
                needs.append(self.attestations.message)
        else:
            needs += self.attestations.needs()
        if isinstance(self.authority, AuthorityUnknown):
            if not self.authority.not_readable:
                needs.append(f"no CA: {self.authority.message}")
        elif self.authority.not_after - now < AUTHORITY_WARNING:
            needs.append(
                f"its CA expires at {self.authority.not_after:%Y-%m-%d %H:%M} UTC: before you rotate it, run "
                f"node-attestation-controller rotate {self.cluster} preflight"
            )
        needs += kubeconfig_needs(self.cluster, self.kubeconfig, now)
        return tuple(printable(need) for need in needs)

    def unknown(self) -> tuple[str, ...]:
        """What is not known here, because this user may not read it, or an attestor is not installed here."""
        found: list[str] = []
        if isinstance(self.attestations, RecordsUnverified):
            found += [self.attestations.message] if self.attestations.not_readable else []
        else:
            found += self.attestations.notes()
        if isinstance(self.requests, Unreachable) and self.requests.not_readable:
            found.append(f"{NOT_READABLE}: the Secrets of its kubeconfig; its requests are not known")
        if isinstance(self.authority, AuthorityUnknown) and self.authority.not_readable:
            found.append(f"{NOT_READABLE}: the Secrets of its CAs; when they expire is not known")
        if isinstance(self.controller, LeaseNotKnown) and self.controller.message:
            found.append(self.controller.message)
        return tuple(printable(one) for one in found)

    def notes(self) -> tuple[str, ...]:
        """What the operator has chosen, and must not take for protection; and what is not known here."""
        floors = (self.below_floors,) if self.below_floors else ()
        observed = (OBSERVE_PROTECTS_NOTHING,) if self.is_open else ()
        return (*observed, *floors, *kubeconfig_notes(self.cluster, self.kubeconfig), *self.unknown())


async def fleet_status(
    management: Client,
    configuration: Configuration,
    registry: Registry,
    now: Callable[[], datetime],
    timeout_seconds: float,
    only: ClusterKey | None = None,
) -> tuple[ClusterStatus, ...]:
    """Read the status of every Cluster with a policy, several at a time; each takes at most ``timeout_seconds``.

    With ``only``, it is that of one Cluster, and the reasons of its Machines name their last requests.

    Raises:
        ApiError: the management cluster cannot be reached, or policies cannot be listed.
    """
    readable = await readable_caches(management, configuration)
    caches = readable.caches
    policies = await items_of_list(management, NODE_ATTESTATION_POLICIES.collection(configuration.watch_namespace))
    wanted = [one for one in sorted(policies, key=_name) if only is None or ClusterKey(*_name(one)) == only]
    not_ours = caches.authentic.count_unauthentic()
    slots = asyncio.Semaphore(_AT_ONCE)
    lease = configuration.leader_election.lease_name
    controller = await read_controller_lease(management, configuration.namespace, lease, now())

    async def status_of(policy: JsonObject) -> ClusterStatus:
        async with slots:
            found = await _status(
                management, policy, caches, registry, configuration, now, timeout_seconds, by_machine=only is not None
            )
            found = replace(found, controller=controller)
            if readable.unread:
                why = RecordsUnverified(machines_not_known(list(readable.unread)), not_readable=True)
                return replace(found, attestations=why)
            if isinstance(found.attestations, RecordsUnverified):
                return found
            return replace(found, attestations=replace(found.attestations, not_ours=not_ours[found.cluster]))

    return tuple(await asyncio.gather(*(status_of(policy) for policy in wanted)))


def _name(policy: JsonObject) -> tuple[str, str]:
    metadata = mapping_of(policy, "metadata")
    return text_of(metadata, "namespace"), text_of(metadata, "name")


async def _status(
    management: Client,
    policy: JsonObject,
    caches: Caches,
    registry: Registry,
    configuration: Configuration,
    now: Callable[[], datetime],
    timeout_seconds: float,
    *,
    by_machine: bool,
) -> ClusterStatus:
    key, spec, status = ClusterKey(*_name(policy)), mapping_of(policy, "spec"), mapping_of(policy, "status")
    permits = permitted_in(key.namespace, configuration, registry)
    in_force = caches.policies.get(key.namespace, key.name)
    names = [text_of(one, "name") for one in items_of(spec, "authorizedAttestors") if isinstance(one, Mapping)]
    machines = machine_statuses(key, caches, registry, permits, now)
    sought = frozenset(one.machine.provider_id for one in machines if by_machine and one.machine.provider_id)
    requests = await count_requests(
        management,
        key,
        # With those that are not installed here: the controller decides their requests, too.
        registry.providers | _well_formed(names),
        timeout_seconds,
        sought,
    )
    if isinstance(requests, RequestCounts):
        machines = with_last_requests(machines, requests.last)
    return ClusterStatus(
        cluster=key,
        mode=_mode(spec, in_force),
        attestors=printable(", ".join(names) or "none"),
        ready=_readiness(status),
        attestations=_attestations(key, caches, registry, machines, now),
        requests=requests,
        authority=await _authority(management, ChosenSecrets(key, caches, configuration.authorities), now()),
        kubeconfig=await kubeconfig_in_use(management, key),
        below_floors=_below_floors(status, in_force),
        machines=machines,
    )


def _well_formed(names: Iterable[str]) -> frozenset[str]:
    found = set()
    for name in names:
        with contextlib.suppress(InvalidProviderName):
            check_provider_name(name)
            found.add(name)
    return frozenset(found)


def _mode(spec: Mapping[str, Any], in_force: Policy | UnreadablePolicy | None) -> str:
    if isinstance(in_force, Policy):
        return in_force.mode.value
    return printable(text_of(spec, "mode") or Mode.OBSERVE.value)


def _below_floors(status: Mapping[str, Any], in_force: Policy | UnreadablePolicy | None) -> str:
    """By the floors of ``--config``; without it, by the condition as the controller last wrote it."""
    if isinstance(in_force, Policy) and in_force.shortfalls:
        return printable(below_floors(in_force.shortfalls))
    for condition in items_of(status, "conditions"):
        found = condition if isinstance(condition, Mapping) else {}
        if (text_of(found, "type"), text_of(found, "status")) == (FLOORS_MET, "False"):
            return printable(text_of(found, "message"))
    return ""


def _readiness(status: Mapping[str, Any]) -> Readiness:
    for condition in items_of(status, "conditions"):
        if isinstance(condition, Mapping) and condition.get("type") == READY:
            return Readiness(*(printable(text_of(condition, name)) for name in ("status", "reason", "message")))
    return Readiness("", "", "")


def _attestations(
    key: ClusterKey,
    caches: Caches,
    registry: Registry,
    machines: tuple[MachineStatus, ...],
    now: Callable[[], datetime],
) -> Attestations | RecordsUnverified:
    try:
        caches.authentic.require_keys()
    except Deferred as error:
        return RecordsUnverified(error.defer.message)
    return Attestations(
        machines=len(machines),
        attested=sum(one.state in (MachineState.ATTESTED, MachineState.OVERDUE) for one in machines),
        lives=Lives.of(caches.certificate_lives.of(key), now()),
        unknown=sum(one.state is MachineState.UNKNOWN for one in machines),
        not_installed=Counter(
            one.certificate.attestor
            for one in machines
            if isinstance(one.certificate, LastCertificate) and one.certificate.attestor not in registry.providers
        ),
    )


async def _authority(management: Client, choose: ChosenSecrets, now: datetime) -> AuthorityLife | AuthorityUnknown:
    """Read the CAs' certificates only; the policy's conditions say whether their private keys are there too."""
    reads = NotingReads(management)
    source = AuthoritySource(
        reads,
        choose.key,
        choose=choose,
        now=lambda: now,
        monotonic=time.monotonic,
        load=load_authority_certificates,
    )
    try:
        found = await source.authority()
        return AuthorityLife(found.not_after, found.client.certificate.public_key_hash)
    except AuthorityUnavailable as error:
        return AuthorityUnknown(printable(str(error)), not_readable=reads.refused)
