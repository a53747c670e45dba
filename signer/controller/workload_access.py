"""How a workload cluster is reached: Secret ``<cluster>-kubeconfig``, read by name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from signer.decision.authority_source import UnreadableSecret, decode_secret
from signer.kube.calls import Get
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, NotFound
from signer.kube.kubeconfig import KubeconfigRefused, parse_kubeconfig
from signer.kube.resource_limits import ResourceLimits
from signer.kube.resources import SECRETS
from signer.kube.scheduling import TimedSemaphore
from signer.model.cluster import ClusterKey

MAXIMUM_BODY_BYTES: Final = 8 * 1024 * 1024
"""Of one answer. Lists that are larger are asked for in smaller pages."""
CONNECTIONS_BESIDE_WORKERS: Final = 5
"""Of each cluster: for its services, and for the list of overflowed requests."""


class WorkloadAccessRefused(Exception):
    """There is no kubeconfig that can be used; ``reason`` is stable, the message says what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def workload_connection(management: Get, key: ClusterKey) -> ClusterConnection:
    """The connection that the kubeconfig Secret gives.

    Raises:
        WorkloadAccessRefused: there is none, or it names what a tenant's kubeconfig must not name.
    """
    name = f"{key.name}-kubeconfig"
    try:
        secret = await management.get(SECRETS.object(name, key.namespace))
        return parse_kubeconfig(decode_secret(secret).get("value", b""))
    except NotFound:
        raise WorkloadAccessRefused("KubeconfigMissing", f"Secret {key.namespace}/{name} does not exist") from None
    except (KubeconfigRefused, UnreadableSecret) as error:
        raise WorkloadAccessRefused("KubeconfigRefused", f"Secret {key.namespace}/{name}: {error}") from error
    except ApiError as error:
        said = f"Secret {key.namespace}/{name} cannot be read in the management cluster: {error}"
        raise WorkloadAccessRefused("ManagementClusterUnreachable", said) from error


@dataclass(frozen=True, slots=True)
class WorkloadConnector:
    """Connects to workload clusters."""

    management: Client
    """Where the kubeconfig Secrets are."""
    workers_per_cluster: int
    resource_limits: ResourceLimits
    """What all connections together may take of memory and of the event loop."""
    attempts: TimedSemaphore
    """How many connections begin at once."""

    async def client(self, key: ClusterKey) -> Client:
        """A client for that cluster, not connected yet.

        Raises:
            WorkloadAccessRefused: there is no kubeconfig that can be used.
            TlsMaterialRefused: its certificates or key cannot be used.
        """
        connection = await workload_connection(self.management, key)
        return Client(
            connection,
            maximum_body_bytes=MAXIMUM_BODY_BYTES,
            connection_limit=CONNECTIONS_BESIDE_WORKERS + self.workers_per_cluster,
            resource_limits=self.resource_limits,
        )
