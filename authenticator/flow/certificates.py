"""The node's certificates: which is there, and how the next one comes to be there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from authenticator.configuration import Configuration
from authenticator.flow.asking import Asking
from authenticator.flow.client_pair import ClientPair
from authenticator.flow.clock import Clock
from authenticator.flow.evidence import Attestation
from authenticator.flow.serving_pair import ServingPair, require_serving
from authenticator.model.cluster import Cluster
from authenticator.model.plan import PLUGIN_SHARE, Use
from authenticator.store.store import Store

RENEWAL_TIMEOUT_SECONDS: Final = 5.0
"""How long a kubelet that has a valid certificate waits for the next one; then it goes on with the one it has."""


@dataclass
class NodeCertificates:
    """The client and the serving certificate of this node."""

    configuration: Configuration
    store: Store
    clock: Clock = field(default_factory=Clock)
    report: Callable[[str], None] = lambda _: None
    cluster: Cluster | None = None
    """The cluster as client-go names it; None where it does not say."""
    load_attestation: Callable[[Configuration], Attestation] = Attestation.of

    def __post_init__(self) -> None:
        self._asking = Asking(
            configuration=self.configuration,
            store=self.store,
            clock=self.clock,
            report=self.report,
            named_cluster=self.cluster,
            load_attestation=self.load_attestation,
        )
        self._client = ClientPair(self._asking)
        self._serving = ServingPair(self._asking)

    def client(self, *, share: float = PLUGIN_SHARE, timeout: float = RENEWAL_TIMEOUT_SECONDS) -> Use:
        """A valid client certificate, and until when there is nothing to do.

        ``share`` is the share of its life from which on it is renewed; ``timeout`` the seconds to wait for a renewal
        before the former certificate is returned once more.

        Raises:
            Failure: there is none.
        """
        return self._client.use(share=share, timeout=timeout)

    def serving(self, *, share: float = PLUGIN_SHARE) -> Use:
        """A valid serving certificate for this node's names, and until when there is nothing to do.

        It is asked for with the client certificate. ``share`` as of the client certificate.

        Raises:
            Failure: there is none.
        """
        return self._serving.use(share=share)

    def check(self) -> None:
        """See that the attestor can do what is configured; asks nobody.

        Raises:
            InvalidConfiguration: it cannot, and waiting does not mend it.
        """
        attestation = self._asking.attestation
        if self.configuration.serving is not None:
            require_serving(attestation)
