"""What the node's two certificates share: attestor, API server and deadlines of their requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from cryptography import x509

from attestors.wire.names import Purpose
from authenticator.api.server import CALL_SECONDS, ApiServer
from authenticator.configuration import Configuration
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig
from authenticator.flow.clock import Clock
from authenticator.flow.deadline import Deadline
from authenticator.flow.evidence import Attestation
from authenticator.flow.exchange import Exchange, Received
from authenticator.flow.host_certificates import HostCertificates
from authenticator.model.attempt import Subject
from authenticator.model.cluster import ClientCertificate, Cluster, Credential
from authenticator.model.failures import NoCredential, StillPending, UntrustedServer
from authenticator.model.pair import Pair
from authenticator.store.store import Store


@dataclass
class Requester:
    """Requests this node's certificates. The caller holds the lock of the requested purpose."""

    configuration: Configuration
    store: Store
    clock: Clock
    report: Callable[[str], None]
    """Prints progress for a person."""
    named_cluster: Cluster | None
    """The cluster according to client-go; None if client-go does not name it."""
    load_attestation: Callable[[Configuration], Attestation]
    host_certificates: HostCertificates

    def __post_init__(self) -> None:
        self._attestation: Attestation | None = None
        self._provider_id = ""

    @property
    def attestation(self) -> Attestation:
        """The attestor, loaded on first use.

        Raises:
            InvalidConfiguration: it cannot be loaded.
        """
        if self._attestation is None:
            self._attestation = self.load_attestation(self.configuration)
        return self._attestation

    def provider_id(self) -> str:
        """This machine's provider ID, determined once.

        Raises:
            NoEvidence: the attestor cannot determine it.
        """
        self._provider_id = self._provider_id or self.attestation.provider_id()
        return self._provider_id

    def deadline(self) -> Deadline:
        """The configured timeout, from now on."""
        return Deadline(self.clock, self.configuration.timeout)

    def cluster(self) -> Cluster:
        """The cluster for renewals: from client-go, else from the kubelet's kubeconfig, else the stored one.

        Raises:
            NoCredential: no source names it.
            StillPending: the agent is changing the kubelet's CAs.
            Failure: a source cannot be read.
        """
        if self.named_cluster is not None:
            return self.named_cluster
        if self.store.trust_state().change is not None:
            # Evidence must name the CA that the running kubelet has read, and that is unknown now.
            raise StillPending("the CAs of the kubelet are being changed: the agent renews after that")
        own = cluster_of_own_kubeconfig(self.configuration.kubeconfig)
        if own is not None:
            return own
        known = self.store.known_cluster()
        if known is None:
            raise NoCredential(
                f"the address of the API server is unknown: {self.configuration.kubeconfig} does not name it, and no "
                f"bootstrap kubeconfig was copied to {self.store.folder}"
            )
        return known.cluster

    def request(
        self,
        purpose: Purpose,
        cluster: Cluster,
        credential: Credential,
        credential_digest: str,
        deadline: Deadline,
        dns_names: tuple[str, ...] = (),
        ip_addresses: tuple[str, ...] = (),
    ) -> Received:
        """A new certificate with its key, not stored yet. ``credential_digest`` identifies the credential in a pause.

        Raises:
            Failure: there is none; a refusal is stored, with a pause.
        """
        try:
            server = ApiServer(cluster, credential, seconds=min(CALL_SECONDS, deadline.seconds))
        except (OSError, ValueError) as error:
            raise UntrustedServer(f"the CA or the client certificate is unusable: {error}") from None
        return Exchange(
            store=self.store,
            attestation=self.attestation,
            server=server,
            clock=self.clock,
            deadline=deadline,
            purpose=purpose,
            find_subject=lambda: Subject(
                provider=self.configuration.provider,
                node_name=self.configuration.node_name,
                provider_id=self.provider_id(),
                ca_cert_hash=cluster.ca_cert_hash.text,
                dns_names=dns_names,
                ip_addresses=ip_addresses,
            ),
            asker=self.configuration.asker,
            credential=credential_digest,
            report=self.report,
            further=partial(self._further, purpose),
            trust_version=partial(self._trust_version, purpose),
        ).run()

    def _further(self, purpose: Purpose, key: str) -> Sequence[x509.UnrecognizedExtension]:
        """The host keys, in requests for client certificates: every node makes these, and from its first join on."""
        return self.host_certificates.extensions(key) if purpose is Purpose.CLIENT else ()

    def _trust_version(self, purpose: Purpose) -> int:
        return self.host_certificates.trust_version() if purpose is Purpose.CLIENT else 0


def client_certificate(pair: Pair) -> ClientCertificate:
    """A pair in the form of a client credential."""
    return ClientCertificate(pair.certificate, pair.key)
