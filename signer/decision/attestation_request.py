"""What an attestor is told: the request's claims, and beside them what the management cluster says."""

from __future__ import annotations

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
from signer.rules.request import claimed_provider_id
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches


class AttestationRequests:
    """The claims of one cluster's requests. It looks at caches only: nothing is waited for until an attestor asks."""

    def __init__(self, key: ClusterKey, caches: Caches, tokens: BootstrapTokens, lookups: Lookups) -> None:
        self._key = key
        self._caches = caches
        self._tokens = tokens
        self._lookups = lookups

    def attestation_request(self, request: SigningRequest, snapshot: Snapshot, provider: str) -> AttestationRequest:
        """The request as the attestor ``provider`` sees it.

        Raises:
            Refused: the provider ID is not well formed, or neither a node nor a bootstrap token asks.
            Deferred: no Machine has the provider ID, or it cannot be told what is recorded for the Machine.
        """
        binding = binding_format.compute(
            evidence_version=request.evidence.version,
            cluster=request.evidence.cluster,
            signer_name=request.header.signer,
            subject_public_key_info=request.certificate_request.subject_public_key_info,
        )
        machine = self.machine(request)
        credential = requester_credential(self.asks(request), machine)
        return AttestationRequest(
            provider_id=claimed_provider_id(request),
            evidence=request.evidence,
            binding=binding,
            cluster_namespace=self._key.namespace,
            cluster_name=self._key.name,
            csr_uid=request.header.uid,
            dns_names=request.certificate_request.dns_names,
            ip_addresses=request.certificate_request.ip_addresses,
            now=snapshot.now,
            machine=self._told_of(machine, provider, credential, snapshot.cluster),
            credential=credential,
            management=self._lookups.of(self._key, machine),
        )

    def machine(self, request: SigningRequest) -> MachineView | NoClaimedMachine:
        """The one Machine of the claimed provider ID, or its MachinePool.

        No attestor hears of what the Cluster has not: provider IDs are invented by the thousand, and judging or asking
        a cloud about each would keep honest nodes waiting.

        Raises:
            Refused: the provider ID is not well formed.
            Deferred: nothing in the Cluster has it yet, or several have.
        """
        machine = the_machine(claimed_provider_id(request), self.machines(request))
        return machine if machine.kind == MACHINE_KIND else NoClaimedMachine(pool=machine.name)

    def machines(self, request: SigningRequest) -> tuple[MachineView, ...]:
        """Whatever in the Cluster has the claimed provider ID.

        Raises:
            Refused: it is not well formed.
        """
        return self._caches.matching(self._key, claimed_provider_id(request))

    def asks(self, request: SigningRequest) -> NodeAsks | TokenAsks:
        """Who asks, with the trace of the bootstrap token.

        Raises:
            Refused: neither a node nor a bootstrap token.
        """
        return self._tokens.asks(self._key, request.header.username)

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
