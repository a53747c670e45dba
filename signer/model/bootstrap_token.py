"""Bootstrap tokens: whose they are (management cluster), and the Secrets that make them valid (workload cluster).

Cluster API's kubeadm bootstrap provider makes one token for each KubeadmConfig and writes it into that object, which
a Machine or MachinePool owns (``bootstrap/kubeadm/internal/controllers/kubeadmconfig_controller.go``). Only a token's
ID, which is public, is ever kept here: the secret half is dropped where it is read.
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
"""On a token's Secret: the expiration that we wrote; while ``data.expiration`` says the same, it is our extension."""

_TOKEN: Final = re.compile(r"([a-z0-9]{6})\.[a-z0-9]{16}")
_TOKEN_ID: Final = re.compile(r"[a-z0-9]{6}")
_TOKEN_SECRET_PREFIX: Final = "bootstrap-token-"  # noqa: S105 - a prefix of names
_CLUSTER_API_GROUP_PREFIX: Final = "cluster.x-k8s.io/"
_OWNER_KINDS: Final = frozenset({MACHINE_KIND, MACHINE_POOL_KIND})
_RFC3339: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})"
)


class InvalidBootstrapConfig(ValueError):
    """The object has not even the name of a KubeadmConfig."""


class InvalidTokenSecret(ValueError):
    """The Secret is none that makes a bootstrap token valid."""


class InvalidRequester(ValueError):
    """The user name is neither a bootstrap token's nor a node's."""


# Whose a token is


@dataclass(frozen=True, slots=True)
class TokenOwner:
    """The Machine or MachinePool that a bootstrap token was made for."""

    namespace: str
    kind: str
    """``Machine`` or ``MachinePool``."""
    name: str
    uid: str = ""
    """As the owner reference says; nothing but a widening of what a token is worth looks at it."""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"

    def is_owner_of(self, machine: MachineView) -> bool:
        """Whether that Machine may use the token: it is the owner, or the owning pool's Machine or instance."""
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
    """What is needed of a KubeadmConfig."""

    namespace: str
    name: str
    cluster_name: str
    """Of its label, which Cluster API sets together with the owner; empty without one."""
    token_id: str
    """Empty while it has no bootstrap token: it initializes a control plane, or the provider has made none yet."""
    owner: TokenOwner | Unowned


def bootstrap_config_view(manifest: Mapping[str, Any]) -> BootstrapConfigView:
    """Read a KubeadmConfig of either version, v1beta1 or v1beta2; of its token the ID only.

    Raises:
        InvalidBootstrapConfig: it has no name or namespace.
    """
    metadata = mapping_of(manifest, "metadata")
    namespace, name = text_of(metadata, "namespace"), text_of(metadata, "name")
    if not namespace or not name:
        raise InvalidBootstrapConfig("a KubeadmConfig has a namespace and a name")
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
    """The controller among the owner references; the API server admits one at most."""
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


# What following a token to its owner gives


@dataclass(frozen=True, slots=True)
class TracedTo:
    """The token stands in KubeadmConfigs of these owners; several where the operator preset one token for them all."""

    owners: frozenset[TokenOwner]
    """Never empty."""


@dataclass(frozen=True, slots=True)
class Untraceable:
    """No KubeadmConfig of this Cluster, with an owner, holds the token."""


@dataclass(frozen=True, slots=True)
class TracingOff:
    """Tokens are not traced here: the grant is missing, KubeadmConfigs are not served, or cannot be had for long."""

    cause: str


@dataclass(frozen=True, slots=True)
class TracingInterrupted:
    """Tokens are traced here, but not at this moment: what is known of KubeadmConfigs may be stale."""

    cause: str


@dataclass(frozen=True, slots=True)
class PoolTokenIDs:
    """IDs of the bootstrap tokens that the MachinePools of a cluster use now."""

    token_ids: frozenset[str]


Trace: TypeAlias = TracedTo | Untraceable | TracingOff | TracingInterrupted


# Who asks


@dataclass(frozen=True, slots=True)
class NodeAsks:
    """A node, with its own certificate; no token is involved."""


@dataclass(frozen=True, slots=True)
class TokenAsks:
    """Whoever holds a bootstrap token."""

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
        InvalidRequester: it is neither.
    """
    if username.startswith(NODE_USER_PREFIX):
        return NodeRequester()
    token_id = username.removeprefix(BOOTSTRAP_USER_PREFIX)
    if not username.startswith(BOOTSTRAP_USER_PREFIX) or _TOKEN_ID.fullmatch(token_id) is None:
        raise InvalidRequester("neither a bootstrap token nor a node")
    return TokenRequester(token_id)


# The Secret in the workload cluster


class Extension(enum.Enum):
    """What our annotation says of a token's expiration."""

    NONE = "none"
    OURS = "ours"
    """We wrote the expiration that stands there."""
    OVERWRITTEN = "overwritten"
    """We extended it once, and somebody has written another expiration since."""


@dataclass(frozen=True, slots=True)
class NeverExpires:
    """The token's Secret names no expiration."""


@dataclass(frozen=True, slots=True)
class TokenSecret:
    """What is needed of Secret ``kube-system/bootstrap-token-<id>``; its secret half is not."""

    name: str
    token_id: str
    resource_version: str
    authenticates: bool
    """``usage-bootstrap-authentication``: without it the token does not authenticate anybody."""
    expiration: datetime | NeverExpires
    extension: Extension


def token_secret(manifest: Mapping[str, Any]) -> TokenSecret:
    """Read a bootstrap token's Secret; the workload cluster wrote it, so nothing is taken for granted.

    Source: Kubernetes ``cluster-bootstrap/token/api/types.go``.

    Raises:
        InvalidTokenSecret: another type, a name that is not the token's, or an expiration that is no time.
    """
    metadata, data = mapping_of(manifest, "metadata"), mapping_of(manifest, "data")
    if manifest.get("type") != TOKEN_SECRET_TYPE:
        raise InvalidTokenSecret("not of the bootstrap tokens' type")
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
    """One value of a Secret; empty where there is none, or none that is ASCII."""
    try:
        return base64.b64decode(text_of(data, key), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""


def _moment(text: str) -> datetime:
    """RFC 3339 with any offset, as Kubernetes reads it; what it cannot read has run out there."""
    try:
        if _RFC3339.fullmatch(text) is None:
            raise ValueError
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidTokenSecret("its expiration is no time") from None
