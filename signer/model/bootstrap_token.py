"""Bootstrap tokens: their owners (management cluster), and the Secrets that make them valid (workload cluster).

Cluster API's kubeadm bootstrap provider makes one token for each KubeadmConfig and writes it into that object. A
Machine or MachinePool owns the KubeadmConfig (``bootstrap/kubeadm/internal/controllers/kubeadmconfig_controller.go``).
This module keeps only a token's ID, which is public, and drops its secret.
"""

from __future__ import annotations

import base64
import binascii
import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from attestors.wire.names import BOOTSTRAP_USER_PREFIX, NODE_USER_PREFIX
from signer.model.cluster import CLUSTER_NAME_LABEL, MACHINE_KIND, MACHINE_POOL_KIND, MachineView
from signer.model.fields import items_of, mapping_of, text_of

TOKEN_SECRET_TYPE: Final = "bootstrap.kubernetes.io/token"  # noqa: S105 - a type of Secret
TOKEN_SECRET_NAMESPACE: Final = "kube-system"  # noqa: S105 - a namespace
EXTENDED_UNTIL_ANNOTATION: Final = "attestation.cluster.x-k8s.io/extended-until"
"""On a token's Secret: the expiration that the controller wrote. ``data.expiration`` is ours while it is the same."""

_TOKEN: Final = re.compile(r"([a-z0-9]{6})\.[a-z0-9]{16}")
_TOKEN_ID: Final = re.compile(r"[a-z0-9]{6}")
_TOKEN_SECRET_PREFIX: Final = "bootstrap-token-"  # noqa: S105 - a prefix of names
_CLUSTER_API_GROUP_PREFIX: Final = "cluster.x-k8s.io/"
_OWNER_KINDS: Final = frozenset({MACHINE_KIND, MACHINE_POOL_KIND})
_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)


class InvalidBootstrapConfig(ValueError):
    """The KubeadmConfig has no name or namespace."""


class InvalidTokenSecret(ValueError):
    """The Secret is not a valid bootstrap token Secret."""


class InvalidRequester(ValueError):
    """The user name is neither that of a bootstrap token nor that of a node."""


# The owner of a token


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The Machine or MachinePool that a bootstrap token was made for."""

    namespace: str
    kind: str
    """``Machine`` or ``MachinePool``."""
    name: str
    uid: str = ""
    """UID in the owner reference. Only checks that may trust the token more use it."""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    def is_owner_of(self, machine: MachineView) -> bool:
        """Whether the Machine may use the token: it is its owner, or a Machine or instance of the owning pool."""
        if machine.cluster.namespace != self.namespace:
            return False
        if (machine.kind, machine.name) == (self.kind, self.name):
            return True
        return self.kind == MACHINE_POOL_KIND and machine.kind == MACHINE_KIND and machine.owner_pool == self.name


@dataclass(frozen=True, slots=True)
class Unowned:
    """No Machine or MachinePool controls the KubeadmConfig."""


@dataclass(frozen=True, slots=True)
class BootstrapConfigView:
    """The fields of a KubeadmConfig that the controller uses."""

    namespace: str
    name: str
    cluster_name: str
    """From its label, which Cluster API sets together with the owner; empty without the label."""
    token_id: str
    """Empty without a bootstrap token: it initializes a control plane, or the provider has not made the token yet."""
    owner: TokenOwner | Unowned


def bootstrap_config_view(manifest: Mapping[str, Any]) -> BootstrapConfigView:
    """Read a KubeadmConfig in v1beta1 or v1beta2. Only the ID of its token is read.

    Raises:
        InvalidBootstrapConfig: it has no name or namespace.
    """
    metadata = mapping_of(manifest, "metadata")
    namespace, name = text_of(metadata, "namespace"), text_of(metadata, "name")
    if not namespace or not name:
        raise InvalidBootstrapConfig("the KubeadmConfig has no namespace or no name")
    discovery = mapping_of(mapping_of(mapping_of(manifest, "spec"), "joinConfiguration"), "discovery")
    token = _TOKEN.fullmatch(text_of(mapping_of(discovery, "bootstrapToken"), "token"))
    return BootstrapConfigView(
        namespace=namespace,
        name=name,
        cluster_name=text_of(mapping_of(metadata, "labels"), CLUSTER_NAME_LABEL),
        token_id=token[1] if token is not None else "",
        owner=_owner(metadata, namespace),
    )


def _owner(metadata: Mapping[str, Any], namespace: str) -> TokenOwner | Unowned:
    """The owner reference with ``controller: true``. The API server accepts at most one."""
    for reference in items_of(metadata, "ownerReferences"):
        if (
            isinstance(reference, Mapping)
            and reference.get("controller") is True
            and text_of(reference, "apiVersion").startswith(_CLUSTER_API_GROUP_PREFIX)
            and text_of(reference, "kind") in _OWNER_KINDS
            and text_of(reference, "name")
        ):
            return TokenOwner(
                namespace, text_of(reference, "kind"), text_of(reference, "name"), text_of(reference, "uid")
            )
    return Unowned()


# The result of tracing a token to its owner


@dataclass(frozen=True, slots=True)
class TracedTo:
    """The token is in KubeadmConfigs of these owners; of several if the operator preset one token for them all."""

    owners: frozenset[TokenOwner]
    """Never empty."""
    held_elsewhere: bool = False
    """Whether another KubeadmConfig of the namespace, without an owner or of another Cluster, holds the token too."""


@dataclass(frozen=True, slots=True)
class Untraceable:
    """No KubeadmConfig of this Cluster, with an owner, holds the token."""


@dataclass(frozen=True, slots=True)
class TracingOff:
    """Tokens are not traced: the grant is missing, or KubeadmConfigs are not served or unavailable for long."""

    cause: str


@dataclass(frozen=True, slots=True)
class TracingInterrupted:
    """Tokens are traced, but not at this moment: the cached KubeadmConfigs may be stale."""

    cause: str


@dataclass(frozen=True, slots=True)
class PoolTokenIDs:
    """IDs of the bootstrap tokens that the MachinePools of a cluster use now."""

    token_ids: frozenset[str]


Trace: TypeAlias = TracedTo | Untraceable | TracingOff | TracingInterrupted


# The requester


@dataclass(frozen=True, slots=True)
class NodeAsks:
    """The requester is a node with its own certificate; there is no token."""


@dataclass(frozen=True, slots=True)
class TokenAsks:
    """The requester used a bootstrap token."""

    trace: Trace


@dataclass(frozen=True, slots=True)
class NodeRequester:
    """``system:node:<name>``."""


@dataclass(frozen=True, slots=True)
class TokenRequester:
    """``system:bootstrap:<token id>``."""

    token_id: str


def requester_of(username: str) -> NodeRequester | TokenRequester:
    """Read a CSR's ``spec.username`` (Kubernetes ``staging/src/k8s.io/cluster-bootstrap/token/api/types.go``).

    Raises:
        InvalidRequester: it is neither a node nor a bootstrap token.
    """
    if username.startswith(NODE_USER_PREFIX):
        return NodeRequester()
    token_id = username.removeprefix(BOOTSTRAP_USER_PREFIX)
    if not username.startswith(BOOTSTRAP_USER_PREFIX) or _TOKEN_ID.fullmatch(token_id) is None:
        raise InvalidRequester("neither a bootstrap token nor a node")
    return TokenRequester(token_id)


# The Secret in the workload cluster


class Extension(enum.Enum):
    """Whether the controller extended a token, by its annotation."""

    NONE = "none"
    OURS = "ours"
    """The controller wrote the current expiration."""
    OVERWRITTEN = "overwritten"
    """The controller extended the token, and another client has changed the expiration since."""


@dataclass(frozen=True, slots=True)
class NeverExpires:
    """The token's Secret names no expiration."""


@dataclass(frozen=True, slots=True)
class TokenSecret:
    """The fields of Secret ``kube-system/bootstrap-token-<id>`` that the controller uses; never the token's secret."""

    name: str
    token_id: str
    resource_version: str
    authenticates: bool
    """``usage-bootstrap-authentication``: without it the API server does not accept the token."""
    expiration: datetime | NeverExpires
    extension: Extension


def token_secret(manifest: Mapping[str, Any]) -> TokenSecret:
    """Read a bootstrap token's Secret. It comes from the workload cluster, so every field is checked.

    Source: Kubernetes ``cluster-bootstrap/token/api/types.go``.

    Raises:
        InvalidTokenSecret: another type, a name that does not match the token ID, or an invalid expiration.
    """
    metadata, data = mapping_of(manifest, "metadata"), mapping_of(manifest, "data")
    if manifest.get("type") != TOKEN_SECRET_TYPE:
        raise InvalidTokenSecret(f"its type is not {TOKEN_SECRET_TYPE}")
    token_id = _decoded(data, "token-id")
    name, resource_version = text_of(metadata, "name"), text_of(metadata, "resourceVersion")
    if _TOKEN_ID.fullmatch(token_id) is None or name != _TOKEN_SECRET_PREFIX + token_id or not resource_version:
        raise InvalidTokenSecret("not named after its token ID")
    text = _decoded(data, "expiration")
    extended_until = text_of(mapping_of(metadata, "annotations"), EXTENDED_UNTIL_ANNOTATION)
    return TokenSecret(
        name=name,
        token_id=token_id,
        resource_version=resource_version,
        authenticates=_decoded(data, "usage-bootstrap-authentication") == "true",
        expiration=_moment(text) if text else NeverExpires(),
        extension=_extension(extended_until, text),
    )


def _extension(extended_until: str, expiration: str) -> Extension:
    if not extended_until:
        return Extension.NONE
    return Extension.OURS if extended_until == expiration else Extension.OVERWRITTEN


def _decoded(data: Mapping[str, Any], key: str) -> str:
    """One value of a Secret; empty if it is missing or not ASCII."""
    try:
        return base64.b64decode(text_of(data, key), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""


def _moment(text: str) -> datetime:
    """RFC 3339 with any offset, as Kubernetes reads it. Kubernetes takes a token with another form as expired."""
    try:
        if _RFC3339.fullmatch(text) is None:
            raise ValueError
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidTokenSecret("its expiration is not a time") from None
