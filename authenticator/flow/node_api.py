"""What the steps for trust and renewals ask the workload cluster, with the node's own certificate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from attestors.wire.names import Purpose
from attestors.wire.statement import MAXIMUM_NODE_ACCESS_TRUST_BYTES, MAXIMUM_STATEMENT_BYTES
from attestors.wire.statement.names import (
    NODE_ACCESS_CONFIG_MAP,
    RENEWAL_KEY,
    STATEMENT_CONFIG_MAP,
    STATEMENT_KEY,
    STATEMENT_NAMESPACE,
)
from authenticator.api.errors import Forbidden, NotFound
from authenticator.api.server import ApiServer
from authenticator.configuration import Configuration
from authenticator.flow.asking import client_certificate
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig
from authenticator.store.store import Store

_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class NodeApi(Protocol):
    """The calls; each may raise :class:`~authenticator.api.errors.CallFailed`."""

    def statement(self) -> bytes | None:
        """The published statement; None if there is none, or nodes may not read it."""
        ...

    def renewal(self) -> bytes | None:
        """The same of the statement about the client certificate."""
        ...

    def trust_bundle_version(self) -> str:
        """The resource version of the published trust bundle; empty if there is none, or nodes may not read it."""
        ...

    def trust_bundle(self) -> bytes | None:
        """The published trust bundle; None as for :meth:`statement`. It may be large."""
        ...

    def is_ready(self) -> bool:
        """Whether the Node is Ready."""
        ...

    def heartbeat(self) -> str:
        """The time of the kubelet's last heartbeat, of its Lease. Only a running kubelet changes it."""
        ...


class ServedNodeApi:
    """The calls over one :class:`ApiServer`."""

    def __init__(self, server: ApiServer, node_name: str) -> None:
        self._server = server
        self._node_name = node_name

    def statement(self) -> bytes | None:
        """See :class:`NodeApi`. A text that is too large is returned as far as a reader needs to refuse it."""
        return self._text(STATEMENT_CONFIG_MAP, STATEMENT_KEY, MAXIMUM_STATEMENT_BYTES)

    def renewal(self) -> bytes | None:
        """See :class:`NodeApi`."""
        return self._text(STATEMENT_CONFIG_MAP, RENEWAL_KEY, MAXIMUM_STATEMENT_BYTES)

    def trust_bundle_version(self) -> str:
        """See :class:`NodeApi`."""
        try:
            metadata = self._server.read_metadata(_path(NODE_ACCESS_CONFIG_MAP)).get("metadata")
        except (NotFound, Forbidden):
            return ""
        return str(metadata.get("resourceVersion", "")) if isinstance(metadata, dict) else ""

    def trust_bundle(self) -> bytes | None:
        """See :class:`NodeApi`."""
        return self._text(NODE_ACCESS_CONFIG_MAP, STATEMENT_KEY, MAXIMUM_NODE_ACCESS_TRUST_BYTES)

    def _text(self, config_map: str, key: str, maximum: int) -> bytes | None:
        try:
            data = self._server.read(_path(config_map)).get("data")
        except (NotFound, Forbidden):
            return None
        text = data.get(key) if isinstance(data, dict) else None
        if not isinstance(text, str):
            return None
        return text[: maximum + 1].encode("utf-8", "replace")

    def is_ready(self) -> bool:
        """See :class:`NodeApi`."""
        status = self._server.read(f"/api/v1/nodes/{self._node_name}").get("status")
        conditions = status.get("conditions") if isinstance(status, dict) else None
        return any(
            isinstance(one, dict) and one.get("type") == "Ready" and one.get("status") == "True"
            for one in (conditions if isinstance(conditions, list) else [])
        )

    def heartbeat(self) -> str:
        """See :class:`NodeApi`."""
        spec: Any = self._server.read(f"{_LEASES}/{self._node_name}").get("spec")
        return str(spec.get("renewTime", "")) if isinstance(spec, dict) else ""


def _path(config_map: str) -> str:
    return f"/api/v1/namespaces/{STATEMENT_NAMESPACE}/configmaps/{config_map}"


Connect: TypeAlias = Callable[[Configuration, Store], NodeApi | None]


def connect(configuration: Configuration, store: Store) -> NodeApi | None:
    """The API server of the kubelet's kubeconfig, asked with the stored certificate; None if either is missing."""
    cluster = cluster_of_own_kubeconfig(configuration.kubeconfig)
    pair = store.pair(Purpose.CLIENT)
    if cluster is None or pair is None:
        return None
    try:
        return ServedNodeApi(ApiServer(cluster, client_certificate(pair)), configuration.node_name)
    except (OSError, ValueError):
        return None
