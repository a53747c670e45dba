"""The node's certificates: the stored ones, and their renewal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from authenticator.configuration import Configuration
from authenticator.flow.asking import Requester
from authenticator.flow.client_pair import ClientPair
from authenticator.flow.clock import Clock
from authenticator.flow.evidence import Attestation
from authenticator.flow.host_certificates import HostCertificates
from authenticator.flow.mismatches import stored_mismatches
from authenticator.flow.serving_pair import ServingPair, require_serving
from authenticator.model.cluster import Cluster
from authenticator.model.mismatch import Mismatch
from authenticator.model.plan import PLUGIN_SHARE, Use
from authenticator.store.store import Store

RENEWAL_TIMEOUT_SECONDS: Final = 5.0
"""How long a kubelet with a valid certificate waits for a renewal; then it continues with the stored certificate."""


@dataclass
class NodeCertificates:
    """The client and the serving certificate of this node."""

    configuration: Configuration
    store: Store
    clock: Clock = field(default_factory=Clock)
    report: Callable[[str], None] = lambda _: None
    cluster: Cluster | None = None
    """The cluster according to client-go; None if client-go does not name it."""
    load_attestation: Callable[[Configuration], Attestation] = Attestation.of

    def __post_init__(self) -> None:
        self._requester = Requester(
            configuration=self.configuration,
            store=self.store,
            clock=self.clock,
            report=self.report,
            named_cluster=self.cluster,
            load_attestation=self.load_attestation,
            host_certificates=HostCertificates(self.configuration, self.store, self.clock, self.report),
        )
        self._client = ClientPair(self._requester)
        self._serving = ServingPair(self._requester)

    def client(self, *, share: float = PLUGIN_SHARE, timeout: float = RENEWAL_TIMEOUT_SECONDS) -> Use:
        """A valid client certificate, and the time until which there is nothing to do.

        ``share`` is the remaining share of its life at which it is renewed. ``timeout`` is how many seconds to wait for
        a renewal before the stored certificate is returned.

        Raises:
            Failure: there is no valid certificate.
        """
        try:
            return self._client.use(share=share, timeout=timeout)
        finally:
            self._requester.host_certificates.settle()

    def serving(self, *, share: float = PLUGIN_SHARE) -> Use:
        """A valid serving certificate for this node's names, and the time until which there is nothing to do.

        The client certificate authenticates the request. ``share`` as for the client certificate.

        Raises:
            Failure: there is no valid certificate.
        """
        return self._serving.use(share=share)

    def mismatches(self) -> tuple[Mismatch, ...]:
        """In which properties the stored client certificate is not what is configured.

        Raises:
            StoreUnusable: the store is unreadable.
        """
        return stored_mismatches(self.configuration, self.store, self.cluster)

    def check(self) -> None:
        """Check that the attestor supports the configuration; makes no request.

        Raises:
            InvalidConfiguration: it does not, and waiting does not help.
        """
        attestation = self._requester.attestation
        if self.configuration.serving is not None:
            require_serving(attestation)
