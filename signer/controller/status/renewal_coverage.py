"""Renewal coverage: which Machines are attested and can renew once renewal without attestation ends.

A Machine that is being deleted counts while its node may drain: a node that loses its renewal cannot end its drain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from attestors.contract import Security
from attestors.registry import AttestorUnavailable, Registry
from signer.controller.status.policy_status import Permits
from signer.model.cluster import LONG_AGO, MACHINE_POOL_KIND, ClusterKey, MachineView
from signer.model.node_attested import valid_until
from signer.model.policy import Policy
from signer.model.record import AttestedIdentity, AttestedNode
from signer.rules.claim import role_of
from signer.store.caches import Caches

MAXIMUM_UNATTESTED: Final = 10_000
"""Maximum number that is reported; one is enough to keep renewal, and Kubernetes supports 5,000 nodes."""
_BATCH_SIZE: Final = 250
"""Machines and instances, about 5 ms of work, between pauses for other tasks."""
_PAUSE_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class Attested:
    """The Machine's node has a certificate that it renews by attestation."""

    machine: MachineView
    record: AttestedNode


@dataclass(frozen=True, slots=True)
class Unattested:
    """The Machine's node would lose its renewal under Enforce; ``why`` finishes the sentence "the Machine ..."."""

    machine: MachineView
    why: str
    attested_by: str = ""
    """The attestor that attested it, if that is not installed here, so that it is not known whether it renews."""

    def __str__(self) -> str:
        return f"{self.machine} ({self.why})"


@dataclass(frozen=True, slots=True)
class Starting:
    """The Machine has no node yet that could lose renewal; under Enforce it can join only by attestation."""

    machine: MachineView


MachineCoverage: TypeAlias = Attested | Unattested | Starting


class RenewalCoverage:
    """Determines the coverage of every Machine and MachinePool instance of one cluster."""

    def __init__(
        self,
        key: ClusterKey,
        *,
        registry: Registry,
        caches: Caches,
        permits: Permits,
        now: Callable[[], datetime],
    ) -> None:
        """``permits``: see :func:`~signer.controller.status.policy_status.permitted_in`."""
        self._key = key
        self._registry = registry
        self._caches = caches
        self._permits = permits
        self._now = now

    def all(self) -> tuple[MachineCoverage, ...]:
        """The coverage of each Machine whose node runs or may come, sorted by name.

        Raises:
            Deferred: the controller key is not available.
        """
        found = sorted(self._machines(), key=lambda one: (one.name, one.provider_id))
        return (*(coverage for machine in found for coverage in self._of(machine)), *self._unlisted())

    async def unattested(self) -> tuple[Unattested, ...]:
        """Machines that would lose renewal, sorted by name; the first :data:`MAXIMUM_UNATTESTED` that are found.

        It pauses between batches: ten MachinePools of a tenant may list a hundred thousand instances.

        Raises:
            Deferred: the controller key is not available.
        """
        found: list[Unattested] = []
        for number, machine in enumerate(self._machines(), start=1):
            if number % _BATCH_SIZE == 0:
                await asyncio.sleep(_PAUSE_SECONDS)
            found.extend(coverage for coverage in self._of(machine) if isinstance(coverage, Unattested))
            if len(found) == MAXIMUM_UNATTESTED:
                break
        found.sort(key=lambda one: (one.machine.name, one.machine.provider_id))
        return (*found, *self._unlisted())[:MAXIMUM_UNATTESTED]

    def _unlisted(self) -> Iterator[Unattested]:
        """MachinePool instances whose provider IDs are not known, although their nodes may exist."""
        for pool in self._caches.machine_pools.values():
            missing = pool.replicas - len(pool.provider_ids)
            if pool.cluster == self._key and missing > 0 and not pool.deleting:
                yield Unattested(pool.unlisted(), f"has {missing} instances without a provider ID")

    def _machines(self) -> Iterator[MachineView]:
        yield from self._caches.machines_of(self._key)
        yield from self._caches.instances_of(self._key)

    def _of(self, machine: MachineView) -> Iterator[MachineCoverage]:
        """The coverage; nothing if the Machine is being deleted and its node cannot renew any more, or never was."""
        if not machine.deleting:
            yield self._coverage(machine)
            return
        may_run = bool(machine.node_ref) or machine.kind == MACHINE_POOL_KIND
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        if not may_run or (isinstance(policy, Policy) and not policy.deleting_duration):
            return
        records = self._records(machine)
        if not records or max(valid_until(record) for record in records) > self._now():
            yield self._coverage(machine)

    def _records(self, machine: MachineView) -> tuple[AttestedNode, ...]:
        """The Machine's records, but for those whose claimed provider ID it does not have."""
        return tuple(record for record in self._caches.records_of(machine) if not record.is_disproven_by(machine))

    def _coverage(self, machine: MachineView) -> MachineCoverage:
        records = self._records(machine)
        if not machine.provider_id and not records:
            return Unattested(machine, "has a node and no provider ID") if machine.node_ref else Starting(machine)
        if not records:
            return Unattested(machine, "has no AttestedNode that counts")
        cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
        created = LONG_AGO if cluster is None else cluster.created
        records = tuple(record for record in records if record.is_of(machine, created))
        if not records:
            return Unattested(machine, "was re-created since its node was attested")
        record = max(records, key=valid_until)
        identity = record.identity
        if identity.provider not in self._registry.providers:
            why = f"was attested by {identity.provider}, which is not installed here: whether it renews is not known"
            return Unattested(machine, why, attested_by=identity.provider)
        does_not_renew = Unattested(machine, f"was attested by {identity.provider}, which does not renew")
        if identity.security is not Security.SECURE:
            return does_not_renew
        for objection in self._objections(machine, identity):
            return Unattested(machine, f"was attested by {identity.provider}, {objection}")
        if not self._renews(identity.provider):  # last, so that an attestor that is not allowed is not loaded
            return does_not_renew
        end = valid_until(record)
        if end <= self._now():
            return Unattested(machine, f"has no certificate since {end:%Y-%m-%d %H:%M} UTC")
        return Attested(machine, record)

    def _objections(self, machine: MachineView, identity: AttestedIdentity) -> Iterator[str]:
        """Why a renewal would be denied: an attestor that is no longer allowed is no longer trusted."""
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        if not isinstance(policy, Policy):
            yield "and there is no valid policy"
        elif identity.provider not in {attestor.provider for attestor in policy.authorized_attestors}:
            yield "which the policy no longer authorizes"
        elif not policy.required_attestors.of(role_of(machine)).accepts_identity(identity):
            yield "which the operator's floor does not accept for its role"
        if not self._permits(identity.provider):
            yield "which this controller no longer allows here"

    def _renews(self, provider: str) -> bool:
        try:
            return self._registry.load(provider).description.renews
        except AttestorUnavailable:
            return False
