"""Which nodes have no host certificate: they joined before SSH, or never attested, as the machine of ``kubeadm init``.

Until they attest, clients that trust the host authority alone refuse them, and their sshd trusts only what image or
bootstrap data laid down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from signer.configuration import SSHPermission
from signer.model.cluster import ClusterKey, MachineView
from signer.model.condition import ConditionType, PolicyCondition
from signer.model.decision import Deferred, printable
from signer.model.host_keys import AttestedHostKeys
from signer.model.policy import Policy
from signer.model.record import AttestedNode
from signer.model.ssh_access import SSHSettings
from signer.store.caches import Caches

SSH_HOST_CERTIFICATES_ISSUED: Final = ConditionType("SSHHostCertificatesIssued", lambda policy: False)
"""There only while the policy turns SSH on. It never counts toward Ready: kubelets work without."""
ALL_NODES: Final = "AllNodes"
NODES_WITHOUT: Final = "NodesWithout"
NOT_KNOWN: Final = "NotKnown"
LOOK_SECONDS: Final = 300.0
_SHOWN: Final = 10
_BATCH_SIZE: Final = 250
_PAUSE_SECONDS: Final = 0.02


@dataclass(slots=True)
class HostCoverage:
    """Counts nodes with and without a host certificate that counts now, and keeps some names of the latter."""

    now: datetime
    certified: int = 0
    without: int = 0
    _named: list[str] = field(default_factory=list)

    def add(self, machine: MachineView, records: Sequence[AttestedNode]) -> None:
        """Add one Machine or instance. One that has neither a Node nor a record has no node yet."""
        counting = [record for record in records if not record.is_disproven_by(machine)]
        if any(isinstance(one.ssh, AttestedHostKeys) and one.ssh.not_after > self.now for one in counting):
            self.certified += 1
        elif counting or machine.node_ref:
            self.without += 1
            if len(self._named) < _SHOWN:
                self._named.append(counting[0].node_name if counting else machine.node_ref)

    @property
    def condition(self) -> PolicyCondition:
        """For the policy's status."""
        total = self.certified + self.without
        if not self.without:
            message = f"each of {total} nodes has a host certificate"
            return PolicyCondition(SSH_HOST_CERTIFICATES_ISSUED, True, ALL_NODES, message)
        names = printable(", ".join(sorted(self._named)))
        more = f" and {self.without - len(self._named)} more" if self.without > len(self._named) else ""
        message = (
            f"{self.without} of {total} nodes have no host certificate, and open to authorities of their image or "
            f"bootstrap data alone until they attest: {names}{more}"
        )
        return PolicyCondition(SSH_HOST_CERTIFICATES_ISSUED, False, NODES_WITHOUT, message)


class HostCoverageWatch:
    """The condition of one workload cluster."""

    name: Final = "SSH host certificates"

    def __init__(
        self,
        key: ClusterKey,
        *,
        caches: Caches,
        permission: SSHPermission,
        changed: Callable[[], None],
        now: Callable[[], datetime],
    ) -> None:
        """``changed`` is called when the condition has changed."""
        self._key = key
        self._caches = caches
        self._permission = permission
        self._changed = changed
        self._now = now
        self._wanted = asyncio.Event()
        self._last: tuple[PolicyCondition, ...] = ()

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """For the policy's status; empty unless the policy turns SSH on."""
        return self._last if self._is_on() else ()

    def wake(self) -> None:
        """The Cluster or its policy has changed."""
        if self._is_on() != bool(self._last):
            self._wanted.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            self._wanted.clear()
            await self.look()
            try:
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def look(self) -> None:
        """One look. It pauses between batches of Machines."""
        found: tuple[PolicyCondition, ...] = ()
        if self._is_on():
            try:
                found = ((await self._coverage()).condition,)
            except Deferred as error:
                message = printable(str(error))
                found = (PolicyCondition(SSH_HOST_CERTIFICATES_ISSUED, None, NOT_KNOWN, message),)
        if found != self._last:
            self._last = found
            self._changed()

    async def _coverage(self) -> HostCoverage:
        """
        Raises:
            Deferred: the controller key is not available, or the caches are out of touch.
        """
        self._caches.require_current(self._key.namespace)
        coverage = HostCoverage(self._now())
        machines = (*self._caches.machines_of(self._key), *self._caches.instances_of(self._key))
        for number, machine in enumerate(machines, start=1):
            if number % _BATCH_SIZE == 0:
                await asyncio.sleep(_PAUSE_SECONDS)
            coverage.add(machine, self._caches.records_of(machine))
        return coverage

    def _is_on(self) -> bool:
        policy = self._caches.policies.get(self._key.namespace, self._key.name)
        on = isinstance(policy, Policy) and isinstance(policy.ssh, SSHSettings)
        return on and self._permission.allows(self._key.namespace)


__all__ = [
    "ALL_NODES",
    "NODES_WITHOUT",
    "NOT_KNOWN",
    "SSH_HOST_CERTIFICATES_ISSUED",
    "HostCoverage",
    "HostCoverageWatch",
]
