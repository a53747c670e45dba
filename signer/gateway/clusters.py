"""Connections to workload clusters in a person's name."""

from __future__ import annotations

from dataclasses import dataclass

from signer.gateway.opening import Closed, ClosedReason, Opening
from signer.gateway.openings import Openings
from signer.gateway.person import InvalidPerson, Person, PersonAPI
from signer.gateway.websocket import WebSocketSession
from signer.kube.connection import ClusterConnection
from signer.kube.errors import Unauthorized
from signer.kube.kubeconfig import KubeconfigRefused, parse_kubeconfig
from signer.kube.tls import TlsMaterialRefused
from signer.model.cluster import ClusterKey
from signer.model.gateway_connection import GatewayConnection


@dataclass(frozen=True, slots=True)
class _Parsed:
    source: GatewayConnection
    connection: ClusterConnection


class Clusters:
    """The workload clusters that the gateway reaches."""

    def __init__(self, openings: Openings, session: WebSocketSession) -> None:
        self._openings = openings
        self._session = session
        self._parsed: dict[ClusterKey, _Parsed] = {}

    def api(self, opening: Opening) -> PersonAPI:
        """The API of the opening's Cluster, in the name of the grant's creator.

        Raises:
            Closed: the Cluster is not connected, or the creator's name cannot be impersonated.
        """
        try:
            return PersonAPI(self._connection(opening.cluster), Person.of_creator(opening.creator), self._session)
        except (InvalidPerson, Unauthorized, TlsMaterialRefused, ValueError) as error:
            raise Closed(
                ClosedReason.NOT_CONNECTED, f"cannot act in Cluster {opening.cluster} for you: {error}"
            ) from None

    def _connection(self, cluster: ClusterKey) -> ClusterConnection:
        """Parsed once: each context of TLS costs milliseconds."""
        source = self._openings.connection_of(cluster)
        known = self._parsed.get(cluster)
        if known is None or known.source is not source:
            try:
                known = _Parsed(source, parse_kubeconfig(source.kubeconfig))
            except KubeconfigRefused as error:
                raise Closed(ClosedReason.NOT_CONNECTED, f"the connection to Cluster {cluster}: {error}") from None
            self._parsed[cluster] = known
        return known.connection


__all__ = ["Clusters"]
