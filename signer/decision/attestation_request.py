"""What an attestor is told: the request's claims, and beside them what the management cluster says."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from attestors.contract import AttestationRequest, ClaimedMachine, NoClaimedMachine, RequesterCredential
from attestors.wire import binding as binding_format
from signer.decision.lookups import Lookups
from signer.decision.snapshot import Snapshot
from signer.model.bootstrap_token import NodeAsks, TokenAsks
from signer.model.cluster import MACHINE_KIND, ClusterKey, ClusterView, MachineView
from signer.model.record import MachineKey
from signer.model.signing_request import SigningRequest
from signer.rules.claim import recorded_identity, requester_credential, role_of
from signer.rules.machine import the_machine
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request claims, and what the management cluster says beside it, at one moment."""

    machine: MachineView | NoClaimedMachine
    """The Machine that has the claimed provider ID, or the name of its MachinePool."""
    asks: NodeAsks | TokenAsks
    """Who asks, with the trace of the bootstrap token."""
    attestation: AttestationRequest
    """What the attestor is told."""


class AttestationRequests:
    """The claims of one cluster's requests. It looks at caches only: nothing is waited for until an attestor asks."""

    def __init__(self, key: ClusterKey, caches: Caches, tokens: BootstrapTokens, lookups: Lookups) -> None:
        self._key = key
        self._caches = caches
        self._tokens = tokens
        self._lookups = lookups

    def machines(self, provider_id: str) -> tuple[MachineView, ...]:
        """Whatever in the Cluster has that provider ID."""
        return self._caches.matching(self._key, provider_id)

    def claim(
        self,
        request: SigningRequest,
        snapshot: Snapshot,
        provider: str,
        provider_id: str,
        machines: tuple[MachineView, ...],
    ) -> Claim:
        """The one Machine among ``machines``, and the request as the attestor ``provider`` sees it.

        No attestor hears of what the Cluster has not: provider IDs are invented by the thousand, and judging or asking
        a cloud about each would keep honest nodes waiting.

        Raises:
            Refused: neither a node nor a bootstrap token asks.
            Deferred: nothing in the Cluster has the provider ID, several have, or it cannot be told what is recorded
                for the Machine.
        """
        found = the_machine(provider_id, machines)
        machine = found if found.kind == MACHINE_KIND else NoClaimedMachine(pool=found.name)
        asks = self._tokens.asks(self._key, request.header.username)
        credential = requester_credential(asks, machine)
        asked = request.certificate_request
        attestation = AttestationRequest(
            provider_id=provider_id,
            evidence=request.evidence,
            binding=binding_format.compute(
                evidence_version=request.evidence.version,
                cluster=request.evidence.cluster,
                signer_name=request.header.signer,
                subject_public_key_info=asked.subject_public_key_info,
            ),
            cluster_namespace=self._key.namespace,
            cluster_name=self._key.name,
            csr_uid=request.header.uid,
            dns_names=asked.dns_names,
            ip_addresses=asked.ip_addresses,
            now=snapshot.now,
            machine=self._told_of(machine, provider, credential, snapshot.cluster),
            credential=credential,
            management=self._lookups.of(self._key, machine),
        )
        return Claim(machine, asks, attestation)

    def _told_of(
        self,
        machine: MachineView | NoClaimedMachine,
        provider: str,
        credential: RequesterCredential,
        cluster: ClusterView,
    ) -> ClaimedMachine | NoClaimedMachine:
        if isinstance(machine, NoClaimedMachine):
            return machine
        authentic, key = self._caches.authentic, MachineKey.of(machine)
        authentic.require_all_known(key)
        return ClaimedMachine(
            name=machine.name,
            annotations=MappingProxyType(dict(machine.annotations)),
            role=role_of(machine),
            recorded=recorded_identity(
                machine,
                authentic.of_machine(key),
                provider,
                credential=credential,
                cluster_created=cluster.created,
            ),
        )
