"""What both of the node's certificates are asked with: the attestor, the API server, and time to be patient."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from attestors.wire.names import Purpose
from authenticator.api.server import CALL_SECONDS, ApiServer
from authenticator.configuration import Configuration
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig
from authenticator.flow.clock import Clock
from authenticator.flow.deadline import Deadline
from authenticator.flow.evidence import Attestation
from authenticator.flow.exchange import Exchange
from authenticator.model.attempt import Subject
from authenticator.model.cluster import ClientCertificate, Cluster, Credential
from authenticator.model.failures import NoCredential, UntrustedServer
from authenticator.model.pair import Pair
from authenticator.store.store import Store


@dataclass
class Asking:
    """Asks for this node's certificates. The caller holds the lock of the purpose that is asked for."""

    configuration: Configuration
    store: Store
    clock: Clock
    report: Callable[[str], None]
    """Says to a person what is going on."""
    named_cluster: Cluster | None
    """The cluster as client-go names it; None where it does not say."""
    load_attestation: Callable[[Configuration], Attestation]

    def __post_init__(self) -> None:
        self._attestation: Attestation | None = None

    @property
    def attestation(self) -> Attestation:
        """The attestor, loaded when it is first needed.

        Raises:
            InvalidConfiguration: it cannot be.
        """
        if self._attestation is None:
            self._attestation = self.load_attestation(self.configuration)
        return self._attestation

    def deadline(self) -> Deadline:
        """As long as the configuration allows, from now on."""
        return Deadline(self.clock, self.configuration.timeout)

    def cluster(self) -> Cluster:
        """The cluster to renew at: as client-go says, as the kubelet's kubeconfig says, as it was known last.

        Raises:
            NoCredential: nothing says it.
            Failure: what says it cannot be read.
        """
        if self.named_cluster is not None:
            return self.named_cluster
        own = cluster_of_own_kubeconfig(self.configuration.kubeconfig)
        if own is not None:
            return own
        known = self.store.known_cluster()
        if known is None:
            raise NoCredential(
                f"nothing says where the API server is: {self.configuration.kubeconfig} does not, and no bootstrap "
                f"kubeconfig was taken in to {self.store.folder}"
            )
        return known.cluster

    def ask(
        self,
        purpose: Purpose,
        cluster: Cluster,
        credential: Credential,
        asked_with: str,
        deadline: Deadline,
        dns_names: tuple[str, ...] = (),
        ip_addresses: tuple[str, ...] = (),
    ) -> Pair:
        """A new certificate and its key, not stored yet; ``asked_with`` is what a pause remembers of the credential.

        Raises:
            Failure: there is none; what was refused is remembered, with a pause.
        """
        try:
            server = ApiServer(cluster, credential, seconds=min(CALL_SECONDS, deadline.seconds))
        except (OSError, ValueError) as error:
            raise UntrustedServer(f"the CA or the client certificate cannot be used: {error}") from None
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
                provider_id=self.attestation.provider_id(),
                ca_cert_hash=cluster.ca_cert_hash.text,
                dns_names=dns_names,
                ip_addresses=ip_addresses,
            ),
            asker=self.configuration.asker,
            credential=asked_with,
            report=self.report,
        ).run()


def client_certificate(pair: Pair) -> ClientCertificate:
    """A pair as what a client shows."""
    return ClientCertificate(pair.certificate, pair.key)
