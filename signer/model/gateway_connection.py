"""The Secret that connects the gateway to one workload cluster: the controller writes it, the gateway reads it.

The gateway takes user authorities from these Secrets alone, so write access to Secrets in its namespace decides which
certificates open containers. A connection has one form: whatever :func:`render_gateway_connection` does not write is
refused, except metadata and fields that an API server adds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from attestors.wire.ssh.encoding import from_base64, to_base64
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import MAXIMUM_LINE_CHARACTERS, key_line, parse_key_line
from attestors.wire.ssh.keys import PublicKey
from signer.model.access.errors import InvalidAccessObject
from signer.model.access.reader import Reader
from signer.model.cluster import ClusterKey
from signer.model.tools_image import (
    MAXIMUM_IMAGE_CHARACTERS,
    InvalidToolsImage,
    NamedToolsImage,
    NoToolsImage,
    ToolsImage,
)

GATEWAY_CONNECTION_TYPE: Final = "access.cluster.x-k8s.io/gateway-connection"
"""``type`` of the Secrets. An API server lets nobody change it."""
NAME_PREFIX: Final = "connection-"
MAXIMUM_KUBECONFIG_BYTES: Final = 64 * 1024
"""As many as the parser of kubeconfigs takes."""
MAXIMUM_USER_AUTHORITIES: Final = 8
_DIGEST_CHARACTERS: Final = 16
_MAXIMUM_NAME_BYTES: Final = 253
_MAXIMUM_AUTHORITIES_BYTES: Final = MAXIMUM_USER_AUTHORITIES * (MAXIMUM_LINE_CHARACTERS + 1)
_NAMESPACE, _CLUSTER, _KUBECONFIG, _USER_AUTHORITIES = "namespace", "cluster", "kubeconfig", "user-authorities"
_TOOLS_IMAGE: Final = "tools-image"


class InvalidGatewayConnection(InvalidAccessObject):
    """No connection that counts. The message quotes nothing of the Secret."""


@dataclass(frozen=True, slots=True)
class GatewayConnection:
    """What the gateway needs of one workload cluster.

    Raises:
        InvalidGatewayConnection: a value is outside its bounds, or an authority is there twice.
    """

    cluster: ClusterKey
    kubeconfig: bytes = field(repr=False)
    """For :func:`signer.kube.kubeconfig.parse_kubeconfig`. Its credential may impersonate the people of grants."""
    user_authorities: tuple[PublicKey, ...]
    """Certificates by these count; during a rotation both, without an order."""
    tools: NamedToolsImage = field(default_factory=NoToolsImage)
    """The operator's choice; without it, the Secret has no such field."""

    def __post_init__(self) -> None:
        parts = Reader(
            InvalidGatewayConnection, "", {"namespace": self.cluster.namespace, "cluster": self.cluster.name}
        )
        parts.label(_NAMESPACE)
        parts.subdomain(_CLUSTER)
        if not 1 <= len(self.kubeconfig) <= MAXIMUM_KUBECONFIG_BYTES:
            raise InvalidGatewayConnection(_KUBECONFIG, f"must have 1 to {MAXIMUM_KUBECONFIG_BYTES // 1024} KiB")
        if not 1 <= len(self.user_authorities) <= MAXIMUM_USER_AUTHORITIES:
            raise InvalidGatewayConnection(_USER_AUTHORITIES, f"must be 1 to {MAXIMUM_USER_AUTHORITIES} keys")
        if len(set(self.user_authorities)) != len(self.user_authorities):
            raise InvalidGatewayConnection(_USER_AUTHORITIES, "has a key twice")


def connection_name(cluster: ClusterKey) -> str:
    """The Secret's name, which no other Cluster's Secret has (64 bits of SHA-256)."""
    digest = hashlib.sha256(str(cluster).encode("utf-8", "surrogatepass")).hexdigest()
    return f"{NAME_PREFIX}{digest[:_DIGEST_CHARACTERS]}"


def parse_gateway_connection(manifest: Mapping[str, Any]) -> GatewayConnection:
    """Read a Secret of the gateway's namespace.

    Raises:
        InvalidGatewayConnection: its type, its name or a field of ``data`` is another one, is missing, or is invalid.
    """
    whole = Reader(InvalidGatewayConnection, "", manifest)
    if whole.fields.get("type") != GATEWAY_CONNECTION_TYPE:
        raise whole.invalid("type", f"must be {GATEWAY_CONNECTION_TYPE}")
    data = whole.object("data").knows(_NAMESPACE, _CLUSTER, _KUBECONFIG, _USER_AUTHORITIES, _TOOLS_IMAGE)
    connection = GatewayConnection(
        ClusterKey(_text(data, _NAMESPACE, _MAXIMUM_NAME_BYTES), _text(data, _CLUSTER, _MAXIMUM_NAME_BYTES)),
        _bytes(data, _KUBECONFIG, MAXIMUM_KUBECONFIG_BYTES),
        _authorities(data),
        _tools(data),
    )
    if whole.object("metadata").fields.get("name") != connection_name(connection.cluster):
        raise whole.invalid("metadata.name", f"must be {NAME_PREFIX} and the digest of namespace and cluster")
    return connection


def render_gateway_connection(connection: GatewayConnection, namespace: str) -> dict[str, Any]:
    """The Secret, for the gateway's ``namespace``."""
    lines = "".join(f"{key_line(one)}\n" for one in connection.user_authorities)
    data = {
        _NAMESPACE: connection.cluster.namespace.encode("ascii"),
        _CLUSTER: connection.cluster.name.encode("ascii"),
        _KUBECONFIG: connection.kubeconfig,
        _USER_AUTHORITIES: lines.encode("ascii"),
    }
    if isinstance(connection.tools, ToolsImage):
        data[_TOOLS_IMAGE] = connection.tools.name.encode("ascii")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": connection_name(connection.cluster), "namespace": namespace},
        "type": GATEWAY_CONNECTION_TYPE,
        "data": {name: to_base64(value) for name, value in data.items()},
    }


def _bytes(data: Reader, name: str, maximum: int) -> bytes:
    """A value of ``data``; a text that is too long is refused before it is decoded."""
    value = data.fields.get(name)
    if not isinstance(value, str):
        raise data.invalid(name, "must be there, as Base64")
    if len(value) > (maximum + 2) // 3 * 4:
        raise data.invalid(name, f"has more than {maximum} bytes")
    try:
        return from_base64(value, "the value")
    except SSHRefused as error:
        raise data.invalid(name, error.message) from None


def _text(data: Reader, name: str, maximum: int) -> str:
    try:
        return _bytes(data, name, maximum).decode("ascii")
    except UnicodeDecodeError:
        raise data.invalid(name, "must be ASCII") from None


def _tools(data: Reader) -> NamedToolsImage:
    if _TOOLS_IMAGE not in data.fields:
        return NoToolsImage()
    try:
        return ToolsImage(_text(data, _TOOLS_IMAGE, MAXIMUM_IMAGE_CHARACTERS))
    except InvalidToolsImage as error:
        raise data.invalid(_TOOLS_IMAGE, str(error)) from None


def _authorities(data: Reader) -> tuple[PublicKey, ...]:
    text = _text(data, _USER_AUTHORITIES, _MAXIMUM_AUTHORITIES_BYTES)
    if not text.endswith("\n"):
        raise data.invalid(_USER_AUTHORITIES, "must end with a line end")
    try:
        return tuple(parse_key_line(line) for line in text[:-1].split("\n"))
    except SSHRefused as error:
        raise data.invalid(_USER_AUTHORITIES, f"has a line that is no public key: {error.reason}") from None


__all__ = [
    "GATEWAY_CONNECTION_TYPE",
    "MAXIMUM_KUBECONFIG_BYTES",
    "MAXIMUM_USER_AUTHORITIES",
    "NAME_PREFIX",
    "GatewayConnection",
    "InvalidGatewayConnection",
    "connection_name",
    "parse_gateway_connection",
    "render_gateway_connection",
]
