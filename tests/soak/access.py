"""The controller's access to one workload cluster: a kubeconfig whose token is rotated.

The tokens are bootstrap tokens of a separate group. An API server rejects them once their Secret is deleted; a real
one caches authentication, and does so within ten seconds.
"""

from __future__ import annotations

import base64
import contextlib
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import NotFound
from signer.kube.resources import SECRETS
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.world import WorldCluster
from tests.soak.proxy import FaultyProxy
from tests.soak.requests import create, patiently
from tests.support.kubeadm import BootstrapToken

CONTROLLERS: Final = "system:bootstrappers:soak:controllers"
"""The group with the controller's grants in a workload cluster."""
_LIFETIME: Final = timedelta(days=1)


@dataclass
class Access:
    """The content of one cluster's kubeconfig Secret. Only controllers use it and its proxy."""

    cluster: WorldCluster
    proxy: FaultyProxy
    token: BootstrapToken = field(default_factory=BootstrapToken.random, repr=False)

    @property
    def connection(self) -> ClusterConnection:
        """A connection with the current token, bypassing the proxy."""
        return self.cluster.api.token_connection(self.token.token)

    @property
    def kubeconfig(self) -> bytes:
        """A kubeconfig with the current token, through the proxy."""
        return kubeconfig_of(self.proxy.connection(self.connection), self.cluster.name).encode()

    def grant(self) -> None:
        """Create the first token; to be called while no faults are injected and the cluster's API server runs."""
        self.cluster.client().create(SECRETS.collection("kube-system"), self.token.as_secret(_LIFETIME, CONTROLLERS))

    async def renew(self, management: Client) -> BootstrapToken:
        """Write a kubeconfig with a new token; returns the previous token, which stays valid."""
        former, self.token = self.token, BootstrapToken.random()
        async with Client(self.cluster.api.connection()) as administrator:
            await create(administrator, SECRETS.collection("kube-system"), self.token.as_secret(_LIFETIME, CONTROLLERS))
        data = {"value": base64.b64encode(self.kubeconfig).decode("ascii")}
        await patiently(lambda: management.patch(self._secret, {"data": data}))
        return former

    async def revoke(self, token: BootstrapToken) -> None:
        """Delete the token's Secret."""
        path = SECRETS.object(f"bootstrap-token-{token.identifier}", "kube-system")
        async with Client(self.cluster.api.connection()) as administrator:
            with contextlib.suppress(NotFound):  # an earlier attempt was carried out
                await patiently(lambda: administrator.delete(path))

    @property
    def _secret(self) -> str:
        return SECRETS.object(f"{self.cluster.name}-kubeconfig", self.cluster.namespace)
