"""Connects to workload clusters with Secret ``<cluster>-kubeconfig``, which is read by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from signer.decision.authority_secrets import UnreadableSecret, decode_secret
from signer.kube.calls import Get
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, Forbidden, NotFound, Unauthorized
from signer.kube.http.tls_transport import TlsTransport
from signer.kube.kubeconfig import KubeconfigRefused, parse_kubeconfig
from signer.kube.resource_limits import ResourceLimits
from signer.kube.resources import SECRETS
from signer.kube.scheduling import TimedSemaphore
from signer.model.cluster import ClusterKey

MAXIMUM_BODY_BYTES: Final = 8 * 1024 * 1024
"""Limit per response. Larger lists are requested in smaller pages."""
EXTRA_CONNECTIONS: Final = 5
"""Connections per cluster besides those of the workers: for services and for relists."""


class WorkloadAccessRefused(Exception):
    """There is no usable kubeconfig; ``reason`` is stable, and the message says what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


async def workload_connection(management: Get, key: ClusterKey) -> ClusterConnection:
    """The connection from the kubeconfig Secret.

    Raises:
        WorkloadAccessRefused: the Secret is missing or unreadable, or its kubeconfig has a field that is not allowed.
    """
    name = f"{key.name}-kubeconfig"
    try:
        secret = await management.get(SECRETS.object(name, key.namespace))
        data = decode_secret(secret)
        if "value" not in data:
            raise KubeconfigRefused("it has no key 'value', which must hold the kubeconfig")
        return parse_kubeconfig(data["value"])
    except NotFound:
        raise WorkloadAccessRefused("KubeconfigMissing", f"Secret {key.namespace}/{name} does not exist") from None
    except (KubeconfigRefused, UnreadableSecret) as error:
        raise WorkloadAccessRefused("KubeconfigRefused", f"Secret {key.namespace}/{name}: {error}") from error
    except ApiError as error:
        message = f"Secret {key.namespace}/{name} cannot be read in the management cluster: {error}"
        raise WorkloadAccessRefused("ManagementClusterUnreachable", message) from error


def remedy_in_workload(error: BaseException, key: ClusterKey) -> str:
    """What to do about an API server's answer, to append to its message; empty if none is known."""
    secret = f"Secret {key.namespace}/{key.name}-kubeconfig"
    if isinstance(error, Unauthorized):
        return f": the credential in {secret} is unknown or expired; renew it"
    if isinstance(error, Forbidden):
        return f": grant that to the user of {secret} (docs/operating.md, Grants)"
    return ""


@dataclass(frozen=True, slots=True)
class WorkloadConnector:
    """Connects to workload clusters."""

    management: Client
    """Client of the management cluster, which has the kubeconfig Secrets."""
    workers_per_cluster: int
    resource_limits: ResourceLimits
    """Limits of memory and event loop time for all connections together."""
    attempts: TimedSemaphore
    """Limits concurrent connection attempts."""

    async def client(self, key: ClusterKey, on_connect: Callable[[TlsTransport], None]) -> Client:
        """A client for the cluster, not connected yet. ``on_connect``: as of :class:`~signer.kube.client.Client`.

        Raises:
            WorkloadAccessRefused: there is no usable kubeconfig.
            TlsMaterialRefused: the kubeconfig's certificates or key are unusable.
        """
        connection = await workload_connection(self.management, key)
        return Client(
            connection,
            maximum_body_bytes=MAXIMUM_BODY_BYTES,
            connection_limit=EXTRA_CONNECTIONS + self.workers_per_cluster,
            resource_limits=self.resource_limits,
            on_connect=on_connect,
        )
