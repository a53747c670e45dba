"""What is open now: the grants for containers and the connections to Clusters, as two watches report them."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from attestors.wire.ssh.container_names import Container, ContainerAddress, OnlyContainer, Pod, Workload
from attestors.wire.ssh.keys import PublicKey
from signer.gateway.opening import Closed, ClosedReason, Opening, admitted, continued, grant_of, is_live, opening_of
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError
from signer.model.access import AccessGrant
from signer.model.cluster import ClusterKey
from signer.model.fields import mapping_of, text_of
from signer.model.gateway_connection import GatewayConnection, InvalidGatewayConnection, parse_gateway_connection

LONGEST_OUT_OF_TOUCH: Final = timedelta(minutes=3)
"""A watch that says nothing for so long shows a past that may be over: no login counts on it."""
Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
_T = TypeVar("_T")


class RefusedReason(StrEnum):
    """Why a login is refused."""

    NO_GRANT = "NoGrant"
    """No grant for this key opens that container."""
    SOURCE = "SourceNotAllowed"
    OUT_OF_TOUCH = "OutOfTouch"
    """The gateway does not know what is open now."""


class Refused(Exception):
    """A login is refused. The key's holder may read the message."""

    def __init__(self, reason: RefusedReason | ClosedReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message


class Log(Protocol):
    """What is worth a line of the log."""

    def connection_refused(self, name: str, error: str) -> None:
        """A Secret in the gateway's namespace is no connection."""
        ...

    def watch_failed(self, what: str, error: ApiError, retry_in_seconds: float) -> None:
        """A watch failed, and is retried."""
        ...


@dataclass(slots=True)
class _Watched(Generic[_T]):
    """The objects of one watch, and when it was last in touch."""

    parse: Callable[[JsonObject], _T | None]
    changed: Callable[[str, _T | None, _T | None], None]
    """Name, former and new value; None for absent."""
    failure: Callable[[ApiError, float], None]
    monotonic: Callable[[], float]
    objects: dict[str, _T] = field(default_factory=dict)
    seen: float | None = None

    # See signer.kube.watch.Sink

    def replaced(self, objects: Sequence[JsonObject]) -> None:
        found = {_name(item): item for item in objects}
        for name in [name for name in self.objects if name not in found]:
            self._set(name, None)
        for name, item in found.items():
            self._set(name, self.parse(item))

    def applied(self, item: JsonObject) -> None:
        self.seen = self.monotonic()
        self._set(_name(item), self.parse(item))

    def removed(self, item: JsonObject) -> None:
        self.seen = self.monotonic()
        self._set(_name(item), None)

    def synced(self) -> None:
        self.seen = self.monotonic()

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        self.failure(error, retry_in_seconds)

    def _set(self, name: str, value: _T | None) -> None:
        former = self.objects.get(name)
        if value is None:
            self.objects.pop(name, None)
        else:
            self.objects[name] = value
        if former != value:
            self.changed(name, former, value)


class Openings:
    """Finds what a key opens, and tells sessions when that may have changed."""

    def __init__(self, *, now: Callable[[], datetime], monotonic: Callable[[], float], log: Log) -> None:
        self._now = now
        self._monotonic = monotonic
        self._log = log
        self.grants: _Watched[AccessGrant] = _Watched(
            _parsed_grant,
            self._grant_changed,
            lambda error, after: log.watch_failed("accessgrants", error, after),
            monotonic,
        )
        self.connections: _Watched[GatewayConnection] = _Watched(
            self._parsed_connection,
            self._connection_changed,
            lambda error, after: log.watch_failed("secrets", error, after),
            monotonic,
        )
        self._by_key: dict[PublicKey, set[str]] = {}
        self._by_cluster: dict[ClusterKey, GatewayConnection] = {}
        self._listeners: dict[str, set[Callable[[], None]]] = {}
        """By the grant's UID."""

    def knows(self, key: PublicKey) -> bool:
        """Whether a grant for a container names this key: its holder may learn why a login is refused."""
        return any(is_live(self.grants.objects[name]) for name in self._by_key.get(key, ()))

    def find(self, key: PublicKey, address: ContainerAddress, source: Address) -> Opening:
        """What the key opens at that address.

        Of several grants, the oldest decides on creator and Cluster, since a key can be read in a grant and named in
        another one; of the grants of that creator there, the one whose certificate ends last.

        Raises:
            Refused: nothing.
        """
        self.require_in_touch()
        found, closed = [], None
        for name in self._by_key.get(key, ()):
            grant = self.grants.objects[name]
            if not isinstance(grant.target, Container) or not may_open(grant.target, address):
                continue
            try:
                found.append((grant.metadata.created, grant.metadata.uid, self._admitted(grant)))
            except Closed as error:
                closed = error
        if not found and closed is not None:
            raise Refused(closed.reason, closed.message)
        if not found:
            raise Refused(RefusedReason.NO_GRANT, "no access grant for your key opens this container")
        oldest = min(found, key=lambda one: one[:2])[2]
        same = [one for _, _, one in found if (one.creator, one.cluster) == (oldest.creator, oldest.cluster)]
        return require_source(max(same, key=lambda one: one.ends), source)

    def again(self, opening: Opening) -> Opening:
        """The opening of a session that runs, as it is now.

        Raises:
            Closed: it has ended, or it does not cover the session any more.
        """
        grant = self._grant_of(opening)
        return continued(grant, opening, self._authorities(grant), self._now())

    def require_admitted(self, opening: Opening) -> Opening:
        """The opening for a new session of a connection, as it is now.

        Raises:
            Closed: it has ended, does not cover the connection any more, or is not ready.
        """
        self._admitted(self._grant_of(opening))
        return self.again(opening)

    def live(self) -> list[Opening]:
        """Each grant's opening, whether it is ready or not."""
        found = []
        for grant in self.grants.objects.values():
            with contextlib.suppress(Closed):
                found.append(opening_of(grant, self._authorities(grant), self._now()))
        return found

    def connection_of(self, cluster: ClusterKey) -> GatewayConnection:
        """The connection to a Cluster.

        Raises:
            Closed: ``NotConnected``.
        """
        found = self._by_cluster.get(cluster)
        if found is None:
            raise Closed(ClosedReason.NOT_CONNECTED, f"the gateway has no connection to Cluster {cluster}")
        return found

    def listen(self, uid: str, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` when the grant or its Cluster's connection changes. Returns what ends that."""
        self._listeners.setdefault(uid, set()).add(listener)

        def end() -> None:
            listeners = self._listeners.get(uid, set())
            listeners.discard(listener)
            if not listeners:
                self._listeners.pop(uid, None)

        return end

    def require_in_touch(self) -> None:
        """Both watches are.

        Raises:
            Refused: ``OutOfTouch``.
        """
        for watched in (self.grants, self.connections):
            if watched.seen is None or self._monotonic() - watched.seen > LONGEST_OUT_OF_TOUCH.total_seconds():
                message = "the gateway is out of touch with the management cluster; try again in a minute"
                raise Refused(RefusedReason.OUT_OF_TOUCH, message)

    def _grant_of(self, opening: Opening) -> AccessGrant:
        for name in self._by_key.get(opening.key, ()):
            grant = self.grants.objects[name]
            if grant.metadata.uid == opening.uid:
                return grant
        raise Closed(ClosedReason.ENDED, "the access grant has ended")

    def _admitted(self, grant: AccessGrant) -> Opening:
        return admitted(grant, self._authorities(grant), self._now())

    def _authorities(self, grant: AccessGrant) -> Sequence[PublicKey]:
        return self.connection_of(grant.cluster).user_authorities

    def _grant_changed(self, name: str, former: AccessGrant | None, grant: AccessGrant | None) -> None:
        for one in (former,) if former is not None else ():
            names = self._by_key.get(one.public_key, set())
            names.discard(name)
            if not names:
                self._by_key.pop(one.public_key, None)
        if grant is not None:
            self._by_key.setdefault(grant.public_key, set()).add(name)
        for uid in {one.metadata.uid for one in (former, grant) if one is not None}:
            self._tell(uid)

    def _connection_changed(
        self, name: str, former: GatewayConnection | None, connection: GatewayConnection | None
    ) -> None:
        del name
        clusters = {one.cluster for one in (former, connection) if one is not None}
        if former is not None:
            self._by_cluster.pop(former.cluster, None)
        if connection is not None:
            self._by_cluster[connection.cluster] = connection
        for grant in self.grants.objects.values():
            if grant.cluster in clusters:
                self._tell(grant.metadata.uid)

    def _tell(self, uid: str) -> None:
        for listener in tuple(self._listeners.get(uid, ())):
            listener()

    def _parsed_connection(self, item: JsonObject) -> GatewayConnection | None:
        try:
            return parse_gateway_connection(item)
        except InvalidGatewayConnection as invalid:
            self._log.connection_refused(_name(item), str(invalid))
            return None


def may_open(target: Container, address: ContainerAddress) -> bool:
    """Whether a grant for ``target`` can open the address. That a pod belongs to a workload is proven later."""
    if address.namespace != target.namespace:
        return False
    if not isinstance(address.container, OnlyContainer) and address.container != target.container:
        return False
    match address.of:
        case Pod():
            return isinstance(target.of, Workload) or address.of == target.of
        case Workload():
            return address.of == target.of
        case numbered:
            return numbered.workload == target.of


def require_source(opening: Opening, source: Address) -> Opening:
    """The connection comes from where the certificate counts.

    Raises:
        Refused: ``SourceNotAllowed``.
    """
    mapped = source.ipv4_mapped if isinstance(source, ipaddress.IPv6Address) else None
    seen = mapped if mapped is not None else source
    if opening.sources and not any(seen.version == one.version and seen in one for one in opening.sources):
        raise Refused(RefusedReason.SOURCE, f"spec.ingress of access grant {opening.grant} does not contain {seen}")
    return opening


def _parsed_grant(item: JsonObject) -> AccessGrant | None:
    try:
        return grant_of(item)
    except Closed:
        return None


def _name(item: JsonObject) -> str:
    metadata: Any = mapping_of(item, "metadata")
    return f"{text_of(metadata, 'namespace')}/{text_of(metadata, 'name')}"


__all__ = ["Address", "Log", "Openings", "Refused", "RefusedReason", "may_open", "require_source"]
