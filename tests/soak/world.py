"""The environment of a soak test: API servers, each behind a faulty proxy, and the clusters on them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Final

from signer.kube.connection import ClusterConnection
from signer.testing.api import EmbeddedAPI
from signer.testing.world import ManagementCluster, WorldCluster
from tests.soak.access import CONTROLLERS, Access
from tests.soak.cluster_objects import ATTESTORS
from tests.soak.proxy import FaultyProxy
from tests.soak.weather import Weather
from tests.support.certificates import CertificateAuthority
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account, grant_in_workload_cluster

_NAMESPACE: Final = "default"
_TOKEN_LIFETIME: Final = timedelta(days=1)
_AGE: Final = timedelta(days=30)
"""Age of the CAs of real API servers, so that they are valid for a controller whose clock is an hour behind. The CA of
the embedded API is new: there, requests wait until the clock is right again.
"""


@dataclass(frozen=True, slots=True)
class Server:
    """One API server and its proxy."""

    api: ControlPlane | EmbeddedAPI
    proxy: FaultyProxy

    @property
    def name(self) -> str:
        """The name in the report."""
        return self.proxy.name

    def restart(self) -> None:
        """Restart the API server on its port."""
        self.api.restart()

    def compact(self) -> None:
        """Compact the history: watches from an earlier version get 410.

        The restart clears the part that kube-apiserver keeps in memory.
        """
        self.api.compact()
        self.api.restart()


@dataclass(frozen=True, slots=True)
class SoakedCluster:
    """One workload cluster, as its nodes reach it: not through the proxy."""

    world: WorldCluster
    ca_cert_hash: str
    bootstrap: ClusterConnection = field(repr=False)

    @property
    def name(self) -> str:
        """Name of the Cluster."""
        return self.world.name


@dataclass(frozen=True, slots=True)
class World:
    """All API servers and clusters."""

    management: ManagementCluster
    controller: ClusterConnection = field(repr=False)
    """Connection to the management cluster's API server as the controller's ServiceAccount."""
    management_server: Server
    servers: tuple[Server, ...]
    clusters: tuple[SoakedCluster, ...]
    accesses: tuple[Access, ...]
    """The controller's access to each cluster."""

    def route_through_proxies(self) -> ClusterConnection:
        """Route the controller through the proxies; returns its connection to the management cluster."""
        for access in self.accesses:
            access.cluster.put_secret("kubeconfig", {"value": access.kubeconfig})
        return self.management_server.proxy.connection(self.controller)


@contextlib.contextmanager
def open_world(seed: int, *, real_workload_clusters: int, stall_seconds: float) -> Iterator[World]:
    """A management cluster on a real kube-apiserver, and workload clusters on other API servers.

    With ``real_workload_clusters=0`` the first workload cluster shares the management cluster's API server. The last
    one is on the embedded API of a newer version. Raises ``MissingPart`` without kube-apiserver.
    """
    with contextlib.ExitStack() as stack:

        def control_plane() -> ControlPlane:
            authority = CertificateAuthority.like_cluster_api(_AGE)
            plane = stack.enter_context(ControlPlane(ca=authority))
            plane.seed_kubeadm()
            return plane

        def server(name: str, api: ControlPlane | EmbeddedAPI) -> Server:
            return Server(api, FaultyProxy(name, api, Weather(Random(f"{seed} {name}")), stall_seconds))

        management_server = server("management", control_plane())
        management = stack.enter_context(ManagementCluster(management_server.api, capi_crds=cluster_api_crds()))
        real = [server(f"workload-{number}", control_plane()) for number in range(1, real_workload_clusters + 1)]
        embedded = stack.enter_context(EmbeddedAPI(seed_kubeadm=True, watch_window=500))
        hosts = [*(real or [management_server]), server("embedded", embedded)]
        clusters = tuple(_cluster(management, host) for host in hosts)
        accesses = tuple(open_access(cluster.world, host.proxy) for cluster, host in zip(clusters, hosts, strict=True))
        if not isinstance(management_server.api, ControlPlane):
            raise TypeError("the management cluster needs a real API server")
        yield World(
            management,
            as_service_account(management_server.api, _NAMESPACE, shards=True),
            management_server,
            (management_server, *(host for host in hosts if host is not management_server)),
            clusters,
            accesses,
        )


def _cluster(management: ManagementCluster, host: Server) -> SoakedCluster:
    cluster = management.add_cluster(f"on-{host.name}", host.api, namespace=_NAMESPACE)
    cluster.authorize(*ATTESTORS)
    return soaked(cluster, host.api)


def soaked(cluster: WorldCluster, api: ControlPlane | EmbeddedAPI) -> SoakedCluster:
    """The cluster as its nodes reach it, with one bootstrap token for all of them."""
    bootstrap = api.token_connection(api.bootstrap_token(_TOKEN_LIFETIME))
    return SoakedCluster(cluster, cluster.ca_cert_hash, bootstrap)


def open_access(cluster: WorldCluster, proxy: FaultyProxy) -> Access:
    """Grant controllers access, with the grants that they need and no others."""
    access = Access(cluster, proxy)
    access.grant()
    grant_in_workload_cluster(cluster.api.connection(), access.connection, CONTROLLERS)
    return access
