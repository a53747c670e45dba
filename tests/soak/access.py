"""The controller's way into one workload cluster: a kubeconfig whose token is another one now and then.

The tokens are bootstrap tokens of a group of their own, which every API server takes back as soon as their Secret is
gone: a real one within ten seconds, for so long it remembers whom it has let in.
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
"""The group that is granted what a controller needs in a workload cluster."""
_LIFETIME: Final = timedelta(days=1)


@dataclass
class Access:
    """What the kubeconfig Secret of one cluster holds; everybody else goes straight, and as somebody else."""

    cluster: WorldCluster
    proxy: FaultyProxy
    token: BootstrapToken = field(default_factory=BootstrapToken.random, repr=False)

    @property
    def connection(self) -> ClusterConnection:
        """With the token of now, and not through the proxy."""
        return self.cluster.api.token_connection(self.token.token)

    @property
    def kubeconfig(self) -> bytes:
        """With the token of now, through the proxy."""
        return kubeconfig_of(self.proxy.connection(self.connection), self.cluster.name).encode()

    def grant(self) -> None:
        """Let the first token in; to be called in peace, and when the cluster's API server runs."""
        self.cluster.client().create(SECRETS.collection("kube-system"), self.token.as_secret(_LIFETIME, CONTROLLERS))

    async def renew(self, management: Client) -> BootstrapToken:
        """Write a kubeconfig with a new token; returns the former one, which is still valid."""
        former, self.token = self.token, BootstrapToken.random()
        async with Client(self.cluster.api.connection()) as administrator:
            await create(administrator, SECRETS.collection("kube-system"), self.token.as_secret(_LIFETIME, CONTROLLERS))
        data = {"value": base64.b64encode(self.kubeconfig).decode("ascii")}
        await patiently(lambda: management.patch(self._secret, {"data": data}))
        return former

    async def revoke(self, token: BootstrapToken) -> None:
        """Nobody has access by it any more."""
        path = SECRETS.object(f"bootstrap-token-{token.identifier}", "kube-system")
        async with Client(self.cluster.api.connection()) as administrator:
            with contextlib.suppress(NotFound):  # an earlier attempt was carried out
                await patiently(lambda: administrator.delete(path))

    @property
    def _secret(self) -> str:
        return SECRETS.object(f"{self.cluster.name}-kubeconfig", self.cluster.namespace)
