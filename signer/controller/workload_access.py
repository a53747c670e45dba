"""Connects to workload clusters with Secret ``<cluster>-kubeconfig-restricted``, or else ``<cluster>-kubeconfig``.

Both are read by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509

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
from signer.model.fields import parse_time

MAXIMUM_BODY_BYTES: Final = 8 * 1024 * 1024
"""Limit per response. Larger lists are requested in smaller pages."""
KUBECONFIG_SUFFIX: Final = "kubeconfig"
RESTRICTED_SUFFIX: Final = "kubeconfig-restricted"
"""Secret ``<cluster>-kubeconfig-restricted``. No Cluster's own kubeconfig can have such a name."""
KUBECONFIG_KEY: Final = "value"
EXPIRES_KEY: Final = "expires"
KUBECONFIG_REFUSED: Final = "KubeconfigRefused"
NOT_READABLE: Final = "not readable here"
"""Begins each message of a command about what its user may not read. It is no fault of a Cluster."""
ADMINISTRATOR_GROUPS: Final = frozenset({"system:masters", "kubeadm:cluster-admins"})
"""kubeadm's groups of administrators, before and since 1.29."""
KUBECONFIG_WARNING: Final = timedelta(days=30)
"""Before the end of a restricted kubeconfig."""
SIGNERS_ROLE: Final = "node-attestation-workload"
BUILTIN_SERVING_ROLE: Final = "node-attestation-builtin-serving"
"""ClusterRoles of ``deploy/rbac/workload.yaml``."""
EXTRA_CONNECTIONS: Final = 5
"""Connections per cluster besides those of the workers: for services and for relists."""


class WorkloadAccessRefused(Exception):
    """There is no usable kubeconfig; ``reason`` is stable, and the message says what to do."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Restricted:
    """The controller uses the kubeconfig that ``workload-kubeconfig`` made."""

    expires: datetime | None
    """None if the Secret does not say."""


@dataclass(frozen=True, slots=True)
class Administrators:
    """The controller uses Secret ``<cluster>-kubeconfig``, which is an administrator's by its client certificate."""


@dataclass(frozen=True, slots=True)
class SomebodysOwn:
    """The controller uses Secret ``<cluster>-kubeconfig``, with a token or a user that shows no such right."""


@dataclass(frozen=True, slots=True)
class KubeconfigUnknown:
    """The Secrets cannot be read."""


KubeconfigInUse = Restricted | Administrators | SomebodysOwn | KubeconfigUnknown


@dataclass(frozen=True, slots=True)
class RestrictedKubeconfig:
    """What Secret ``<cluster>-kubeconfig-restricted`` holds."""

    connection: ClusterConnection
    expires: datetime | None


@dataclass(frozen=True, slots=True)
class NoSecret:
    """There is no such Secret."""


async def workload_connection(management: Get, key: ClusterKey) -> ClusterConnection:
    """The connection from the restricted kubeconfig, or else from that of Cluster API.

    Of two Secrets, the restricted one gives the credential, and Cluster API's one says where the API server is and by
    which CAs: a rotation of the CAs, and Cluster API, keep it up to date.

    Raises:
        WorkloadAccessRefused: the Secret is missing or unreadable, or its kubeconfig has a field that is not allowed.
    """
    restricted = await restricted_kubeconfig(management, key)
    if isinstance(restricted, NoSecret):
        return await workload_administrator(management, key)
    try:
        kept = await _read(management, key, KUBECONFIG_SUFFIX)
    except WorkloadAccessRefused as error:
        if error.reason != KUBECONFIG_REFUSED:
            raise
        return restricted.connection
    if isinstance(kept, NoSecret):
        return restricted.connection
    address = kept.connection
    return replace(
        restricted.connection,
        server=address.server,
        certificate_authority=address.certificate_authority,
        tls_server_name=address.tls_server_name,
        tls=None,
    )


async def workload_administrator(management: Get, key: ClusterKey) -> ClusterConnection:
    """The connection from the kubeconfig that Cluster API keeps.

    Raises:
        WorkloadAccessRefused: as for :func:`workload_connection`.
    """
    found = await _read(management, key, KUBECONFIG_SUFFIX)
    if isinstance(found, NoSecret):
        raise WorkloadAccessRefused(
            "KubeconfigMissing", f"Secret {key.namespace}/{key.name}-{KUBECONFIG_SUFFIX} does not exist"
        )
    return found.connection


async def restricted_kubeconfig(management: Get, key: ClusterKey) -> RestrictedKubeconfig | NoSecret:
    """The restricted kubeconfig, if there is one.

    Raises:
        WorkloadAccessRefused: as for :func:`workload_connection`.
    """
    return await _read(management, key, RESTRICTED_SUFFIX)


async def kubeconfig_in_use(management: Get, key: ClusterKey) -> KubeconfigInUse:
    """Which kubeconfig the controller uses."""
    try:
        found = await restricted_kubeconfig(management, key)
        if isinstance(found, RestrictedKubeconfig):
            return Restricted(found.expires)
        connection = await workload_administrator(management, key)
    except WorkloadAccessRefused:
        return KubeconfigUnknown()
    return SomebodysOwn() if _groups(connection).isdisjoint(ADMINISTRATOR_GROUPS) else Administrators()


def _groups(connection: ClusterConnection) -> frozenset[str]:
    """Of the client certificate."""
    try:
        certificate = x509.load_pem_x509_certificate(connection.client_certificate or b"")
        named = certificate.subject.get_attributes_for_oid(x509.NameOID.ORGANIZATION_NAME)
    except ValueError:
        return frozenset()
    return frozenset(str(one.value) for one in named)


def kubeconfig_notes(key: ClusterKey, kubeconfig: KubeconfigInUse) -> tuple[str, ...]:
    """What to say of the kubeconfig in use: an administrator's is more than the controller needs."""
    if not isinstance(kubeconfig, Administrators):
        return ()
    return (
        f"the controller uses an administrator's kubeconfig, Secret {key.name}-{KUBECONFIG_SUFFIX}: make a restricted "
        f"one with {making_command(key)}",
    )


def machines_not_known(unread: Sequence[str]) -> str:
    """What to say if a command's user may not read ``unread``, which proves that Machines are attested."""
    return f"{NOT_READABLE}: {'; '.join(unread)}; which Machines are attested is not known" if unread else ""


def kubeconfig_needs(key: ClusterKey, kubeconfig: KubeconfigInUse, now: datetime) -> tuple[str, ...]:
    """What needs attention: a restricted kubeconfig that ends soon, or has ended."""
    if not isinstance(kubeconfig, Restricted) or kubeconfig.expires is None:
        return ()
    if kubeconfig.expires - now >= KUBECONFIG_WARNING:
        return ()
    ends = "ended" if kubeconfig.expires <= now else "ends"
    return (
        f"its restricted kubeconfig {ends} at {kubeconfig.expires:%Y-%m-%d %H:%M} UTC: renew it with "
        f"{making_command(key)} and the flags of the features in use",
    )


def making_command(key: ClusterKey) -> str:
    """The command that makes or renews the restricted kubeconfig."""
    return f"node-attestation-controller workload-kubeconfig {key}"


def grant_remedy(key: ClusterKey, role: str) -> str:
    """What to do where the controller may not decide requests in the workload cluster."""
    signers = " with the signers of every attestor of the policy" if role == SIGNERS_ROLE else ""
    return (
        f"repeat {making_command(key)} with the flags of the features in use, or grant ClusterRole {role} of "
        f"deploy/rbac/workload.yaml{signers}"
    )


async def _read(management: Get, key: ClusterKey, suffix: str) -> RestrictedKubeconfig | NoSecret:
    name = f"{key.name}-{suffix}"
    try:
        secret = await management.get(SECRETS.object(name, key.namespace))
        data = decode_secret(secret)
        if KUBECONFIG_KEY not in data:
            raise KubeconfigRefused(f"it has no key '{KUBECONFIG_KEY}', which must hold the kubeconfig")
        return RestrictedKubeconfig(parse_kubeconfig(data[KUBECONFIG_KEY]), _expiry(data))
    except NotFound:
        return NoSecret()
    except (KubeconfigRefused, UnreadableSecret) as error:
        raise WorkloadAccessRefused(KUBECONFIG_REFUSED, f"Secret {key.namespace}/{name}: {error}") from error
    except ApiError as error:
        message = f"Secret {key.namespace}/{name} cannot be read in the management cluster: {error}"
        raise WorkloadAccessRefused("ManagementClusterUnreachable", message) from error


def _expiry(data: Mapping[str, bytes]) -> datetime | None:
    try:
        return parse_time(data.get(EXPIRES_KEY, b"").decode("ascii"))
    except ValueError:
        return None


def remedy_in_workload(error: BaseException, key: ClusterKey) -> str:
    """What to do about an API server's answer, to append to its message; empty if none is known."""
    secret = f"Secret {key.namespace}/{key.name}-{KUBECONFIG_SUFFIX}"
    if isinstance(error, Unauthorized):
        return f": the credential is unknown or expired; renew it with {making_command(key)}, or renew {secret}"
    if isinstance(error, Forbidden):
        return (
            f": grant that to the user of {secret} (docs/operating.md, Grants), or repeat {making_command(key)} with "
            "the flags of the features in use"
        )
    return ""


@dataclass(frozen=True, slots=True)
class WorkloadConnector:
    """Connects to workload clusters."""

    management: Get
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
            resource_limits=self.resource_limits.of_namespace(key.namespace),
            on_connect=on_connect,
        )
