"""How a workload cluster is reached: Secret ``<cluster>-kubeconfig``, read by name."""

from __future__ import annotations

from typing import Final

from signer.decision.authority_source import UnreadableSecret, decode_secret
from signer.kube.calls import Get
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, NotFound
from signer.kube.kubeconfig import KubeconfigRefused, parse_kubeconfig
from signer.kube.resources import SECRETS
from signer.model.cluster import ClusterKey

MAXIMUM_BODY_BYTES: Final = 8 * 1024 * 1024
"""Of one answer. Lists that are larger are asked for in smaller pages."""


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
