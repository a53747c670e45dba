"""AccessGrants as the API server returns them. Pure.

A grant is written by its creator, and its status by the controller; the API server, or whoever took it over, may say
anything. Everything that reaches a file, a command line or a terminal is parsed into types of its own.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, TypeVar

from attestors.wire.ssh.certificate import SignedCertificate, parse_certificate_line
from attestors.wire.ssh.container_names import Container, Pod, Workload, WorkloadKind
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import parse_key_line
from attestors.wire.ssh.keys import HostKey, PublicKey, host_key
from attestors.wire.ssh.options import Network
from attestors.wire.ssh.principals import HostAddress, HostName, parse_host_principal
from node_access.client.errors import ClientFailed, WrongUse
from node_access.client.words import duration, label, login_name, network, node_name, object_name, time

GROUP: Final = "access.cluster.x-k8s.io"
VERSION: Final = "v1alpha1"
GRANT_KIND: Final = "AccessGrant"
APPROVAL_KIND: Final = "AccessApproval"
GRANTS: Final = f"accessgrants.{GROUP}"
CERTIFICATE_AUTHORITY: Final = "@cert-authority"
GATEWAY_NAME: Final = "node-access-gateway-"
"""The names of the gateway in ``known_hosts`` begin so, and the grant's UID is behind it."""
MAXIMUM_TARGETS: Final = 1024
_MAXIMUM_TEXT: Final = 4096
_MAXIMUM_ITEMS: Final = 64
_PORTS: Final = range(1, 65536)
_DEFAULT_LOGINS: Final = ("root",)
_UID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)
_WORD: Final = re.compile(r"[A-Za-z]{1,64}", re.ASCII)
Parsed = TypeVar("Parsed")


class InvalidGrant(ClientFailed):
    """An object is no AccessGrant that this program can use; the message names the field."""


@dataclass(frozen=True, slots=True)
class GrantKey:
    """Which object it is. A name comes again, a UID does not."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class NodesTarget:
    """Nodes by name."""

    nodes: tuple[HostName, ...]

    def __str__(self) -> str:
        return ",".join(map(str, self.nodes))


@dataclass(frozen=True, slots=True)
class AllNodesTarget:
    """Every node of the Cluster."""

    def __str__(self) -> str:
        return "all nodes"


@dataclass(frozen=True, slots=True)
class ContainerTarget:
    """One container of a pod, or of each pod of a workload."""

    container: Container

    def __str__(self) -> str:
        return str(self.container)


Target: TypeAlias = NodesTarget | AllNodesTarget | ContainerTarget


class ConditionStatus(enum.Enum):
    """What a condition says."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of the status."""

    type: str
    status: ConditionStatus
    reason: str
    message: str
    """Not printable as it is."""


class Hop(enum.Enum):
    """What a certificate is for: the sshd of a node or of a bastion; or a container, by the gateway or on its node."""

    NODE = "node"
    BASTION = "bastion"
    CONTAINER = "container"


@dataclass(frozen=True, slots=True)
class IssuedCertificate:
    """A certificate of the status. Nothing is verified."""

    hop: Hop
    signed: SignedCertificate


@dataclass(frozen=True, slots=True)
class KnownHosts:
    """The keys of the ``known_hosts`` lines. Their names only tell bastion and gateway apart, and are written anew."""

    authorities: tuple[HostKey, ...] = ()
    """Those that certify the hosts of the Cluster."""
    plain: tuple[HostKey, ...] = ()
    """Host keys; the bastion's alone."""
    gateway: tuple[HostKey, ...] = ()
    """Host keys of the gateway to containers."""


NodeAddress: TypeAlias = HostAddress | HostName


@dataclass(frozen=True, slots=True)
class NodeTarget:
    """Where the sshd of a node listens. It proves nothing: the host certificate has the node's name."""

    node: HostName
    addresses: tuple[NodeAddress, ...]
    port: int


@dataclass(frozen=True, slots=True)
class BastionAddress:
    """Where the bastion's sshd listens."""

    address: NodeAddress
    port: int


@dataclass(frozen=True, slots=True)
class NoBastion:
    """The status shows none."""


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where the gateway to containers listens."""

    address: NodeAddress
    port: int


@dataclass(frozen=True, slots=True)
class NoGateway:
    """The status names none."""


@dataclass(frozen=True, slots=True)
class GrantStatus:
    """What the controller says."""

    observed_generation: int = 0
    last_heartbeat: tuple[datetime, ...] = ()
    """One, or none so far."""
    expiration: tuple[datetime, ...] = ()
    """One, or none so far."""
    bastion: BastionAddress | NoBastion = NoBastion()
    gateway: GatewayAddress | NoGateway = NoGateway()
    certificates: tuple[IssuedCertificate, ...] = ()
    known_hosts: KnownHosts = KnownHosts()
    targets: tuple[NodeTarget, ...] = ()
    container_node: tuple[HostName, ...] = ()
    """The one on which the container's Pod runs, as the workload cluster says; or none."""
    conditions: tuple[Condition, ...] = ()

    def condition(self, name: str) -> Condition:
        """That condition; Unknown without reason and message if there is none."""
        missing = Condition(name, ConditionStatus.UNKNOWN, "", "")
        return next((one for one in self.conditions if one.type == name), missing)


@dataclass(frozen=True, slots=True)
class Grant:
    """An AccessGrant."""

    key: GrantKey
    cluster: str
    target: Target
    logins: tuple[str, ...]
    public_key: PublicKey
    created: datetime
    creator: str
    """Empty if nobody has filled it in."""
    creator_uid: str
    creator_groups: tuple[str, ...]
    ingress: tuple[Network, ...]
    bastion: str
    """The provider's name; empty for the policy's."""
    duration: tuple[timedelta, ...]
    """One, or none for the policy's."""
    pty: bool
    port_forwarding: bool
    command: str
    reason: str
    ticket: str
    suspended: bool
    is_deleting: bool
    generation: int
    status: GrantStatus = field(repr=False)

    def opens(self, cluster: str, node: HostName) -> bool:
        """Whether it is for that node."""
        if self.cluster != cluster:
            return False
        return isinstance(self.target, AllNodesTarget) or (
            isinstance(self.target, NodesTarget) and node in self.target.nodes
        )

    def opens_container(self, cluster: str, container: Container) -> bool:
        """Whether it is for that container."""
        return self.cluster == cluster and self.target == ContainerTarget(container)


def parse_grant(document: Mapping[str, Any]) -> Grant:
    """Parse an AccessGrant.

    Raises:
        InvalidGrant: it is none, or a field is not of its form.
    """
    if document.get("kind") != GRANT_KIND or document.get("apiVersion") != f"{GROUP}/{VERSION}":
        raise InvalidGrant("kubectl printed another object than an AccessGrant")
    metadata, spec, status = (_mapping(document, name) for name in ("metadata", "spec", "status"))
    permissions = _mapping(spec, "permissions")
    return Grant(
        key=_key(metadata),
        cluster=_parsed("spec.clusterRef.name", _text(_mapping(spec, "clusterRef"), "name"), _cluster_name),
        target=_target(_mapping(spec, "target")),
        logins=_logins(spec),
        public_key=_parsed("spec.sshPublicKey", _text(spec, "sshPublicKey", 16384), parse_key_line),
        created=_parsed("metadata.creationTimestamp", _text(metadata, "creationTimestamp"), time),
        creator=_text(_mapping(spec, "createdBy"), "username"),
        creator_uid=_text(_mapping(spec, "createdBy"), "uid"),
        creator_groups=_texts(_mapping(spec, "createdBy"), "groups"),
        ingress=tuple(
            _parsed("spec.ingress", _text(_mapping(one, "ipBlock"), "cidr"), network) for one in _items(spec, "ingress")
        ),
        bastion=_text(spec, "bastion"),
        duration=tuple(_parsed("spec.duration", one, duration) for one in [_text(spec, "duration")] if one),
        pty=_flag(permissions, "pty", default=True),
        port_forwarding=_flag(permissions, "portForwarding"),
        command=_text(permissions, "command"),
        reason=_text(spec, "reason"),
        ticket=_text(spec, "ticket"),
        suspended=_flag(spec, "suspend"),
        is_deleting=bool(metadata.get("deletionTimestamp")),
        generation=_number(metadata, "generation"),
        status=_status(status),
    )


def spec_of(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The spec as it is, for a digest.

    Raises:
        InvalidGrant: there is none.
    """
    return _mapping(document, "spec")


def created_by(document: Mapping[str, Any]) -> str:
    """The creator's name of an AccessGrant or AccessApproval; empty if nobody has filled it in.

    Raises:
        InvalidGrant: the field is not of its form.
    """
    return _text(_mapping(_mapping(document, "spec"), "createdBy"), "username")


def key_of(document: Mapping[str, Any]) -> GrantKey:
    """Which object it is, whatever else it says.

    Raises:
        InvalidGrant: it does not say so.
    """
    return _key(_mapping(document, "metadata"))


def uid_text(text: str) -> str:
    """A UID of an object; it is also the name of a folder.

    Raises:
        ValueError: it is none.
    """
    if _UID.fullmatch(text) is None:
        raise ValueError("not a UID")
    return text


def _key(metadata: Mapping[str, Any]) -> GrantKey:
    return GrantKey(
        _parsed("metadata.namespace", _text(metadata, "namespace"), lambda text: label(text, "a namespace")),
        _parsed("metadata.name", _text(metadata, "name"), lambda text: object_name(text, "a name")),
        _parsed("metadata.uid", _text(metadata, "uid"), uid_text),
    )


def _cluster_name(text: str) -> str:
    return object_name(text, "the name of a Cluster")


def _target(spec: Mapping[str, Any]) -> Target:
    if "nodes" in spec:
        return NodesTarget(tuple(_parsed("spec.target.nodes", one, node_name) for one in _texts(spec, "nodes")))
    if "allNodes" in spec:
        return AllNodesTarget()
    container = _mapping(spec, "container")
    if not container:
        raise InvalidGrant("spec.target names nothing")
    return ContainerTarget(
        _parsed(
            "spec.target.container",
            _text(container, "container"),
            lambda name: Container(_text(container, "namespace"), _pod_or_workload(container), name),
        )
    )


def _pod_or_workload(container: Mapping[str, Any]) -> Pod | Workload:
    """
    Raises:
        SSHRefused: no name can be such.
        ValueError: the kind is none.
    """
    if "workload" not in container:
        return Pod(_text(container, "pod"))
    of = _mapping(container, "workload")
    return Workload(WorkloadKind(_text(of, "kind")), _text(of, "name"))


def _logins(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """Root is meant where none is named, but for a container."""
    missing = () if "container" in _mapping(spec, "target") else _DEFAULT_LOGINS
    return tuple(_parsed("spec.logins", one, login_name) for one in _texts(spec, "logins")) or missing


def _status(status: Mapping[str, Any]) -> GrantStatus:
    return GrantStatus(
        observed_generation=_number(status, "observedGeneration"),
        last_heartbeat=_moment(status, "lastHeartbeatTimestamp"),
        expiration=_moment(status, "expirationTimestamp"),
        bastion=_bastion(_mapping(status, "ingress")),
        gateway=_gateway(_mapping(status, "gateway")),
        certificates=tuple(map(_certificate, _items(status, "certificates"))),
        known_hosts=_known_hosts(_texts(status, "knownHosts")),
        targets=tuple(map(_node_target, _items(status, "targets", MAXIMUM_TARGETS))),
        container_node=tuple(
            _parsed("status.containerNode", one, node_name) for one in [_text(status, "containerNode")] if one
        ),
        conditions=tuple(map(_condition, _items(status, "conditions"))),
    )


def _moment(status: Mapping[str, Any], name: str) -> tuple[datetime, ...]:
    text = _text(status, name)
    return (_parsed(f"status.{name}", text, time),) if text else ()


def _bastion(ingress: Mapping[str, Any]) -> BastionAddress | NoBastion:
    address = _text(ingress, "ip") or _text(ingress, "hostname")
    if not address:
        return NoBastion()
    return BastionAddress(
        _parsed("status.ingress", address, parse_host_principal), _port(ingress, "status.ingress.port")
    )


def _gateway(stated: Mapping[str, Any]) -> GatewayAddress | NoGateway:
    if not stated:
        return NoGateway()
    host = _parsed("status.gateway.host", _text(stated, "host"), parse_host_principal)
    return GatewayAddress(host, _port(stated, "status.gateway.port"))


def _certificate(entry: Mapping[str, Any]) -> IssuedCertificate:
    return IssuedCertificate(
        _parsed("status.certificates.hop", _text(entry, "hop"), Hop),
        _parsed("status.certificates.certificate", _text(entry, "certificate", 262144), parse_certificate_line),
    )


def _known_hosts(lines: tuple[str, ...]) -> KnownHosts:
    authorities: list[HostKey] = []
    plain: list[HostKey] = []
    gateway: list[HostKey] = []
    for line in lines:
        _, _, key = line.removeprefix(f"{CERTIFICATE_AUTHORITY} ").partition(" ")
        found = _parsed("status.knownHosts", key, lambda text: host_key(parse_key_line(text)))
        if line.startswith(f"{CERTIFICATE_AUTHORITY} "):
            authorities.append(found)
        else:
            (gateway if line.startswith(GATEWAY_NAME) else plain).append(found)
    return KnownHosts(tuple(authorities), tuple(plain), tuple(gateway))


def _node_target(entry: Mapping[str, Any]) -> NodeTarget:
    return NodeTarget(
        _parsed("status.targets.node", _text(entry, "node"), node_name),
        tuple(_parsed("status.targets.addresses", one, parse_host_principal) for one in _texts(entry, "addresses")),
        _port(entry, "status.targets.port"),
    )


def _condition(entry: Mapping[str, Any]) -> Condition:
    return Condition(
        _parsed("status.conditions.type", _text(entry, "type"), _word),
        _parsed("status.conditions.status", _text(entry, "status"), ConditionStatus),
        _parsed("status.conditions.reason", _text(entry, "reason"), _word),
        _text(entry, "message", 32768),
    )


def _word(text: str) -> str:
    if _WORD.fullmatch(text) is None:
        raise ValueError("not a word")
    return text


def _parsed(where: str, text: str, parse: Callable[[str], Parsed]) -> Parsed:
    try:
        return parse(text)
    except (SSHRefused, WrongUse, ValueError) as error:
        raise InvalidGrant(f"{where}: {error if isinstance(error, SSHRefused | WrongUse) else 'not valid'}") from error


def _mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = document.get(name)
    if found is None:
        return {}
    if not isinstance(found, Mapping):
        raise InvalidGrant(f"{name} is no object")
    return found


def _items(document: Mapping[str, Any], name: str, maximum: int = _MAXIMUM_ITEMS) -> list[Mapping[str, Any]]:
    found = document.get(name) or []
    if not isinstance(found, list) or len(found) > maximum or not all(isinstance(one, Mapping) for one in found):
        raise InvalidGrant(f"{name} is no list of at most {maximum} objects")
    return found


def _texts(document: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = document.get(name) or []
    if not isinstance(found, list) or len(found) > _MAXIMUM_ITEMS or not all(isinstance(one, str) for one in found):
        raise InvalidGrant(f"{name} is no list of at most {_MAXIMUM_ITEMS} texts")
    return tuple(found)


def _text(document: Mapping[str, Any], name: str, maximum: int = _MAXIMUM_TEXT) -> str:
    found = document.get(name)
    if found is None:
        return ""
    if not isinstance(found, str) or len(found) > maximum:
        raise InvalidGrant(f"{name} is no text of at most {maximum} characters")
    return found


def _number(document: Mapping[str, Any], name: str) -> int:
    found = document.get(name, 0)
    if not isinstance(found, int) or isinstance(found, bool):
        raise InvalidGrant(f"{name} is no number")
    return found


def _flag(document: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    found = document.get(name, default)
    if not isinstance(found, bool):
        raise InvalidGrant(f"{name} is neither true nor false")
    return found


def _port(document: Mapping[str, Any], where: str) -> int:
    found = document.get("port", 22)
    if not isinstance(found, int) or isinstance(found, bool) or found not in _PORTS:
        raise InvalidGrant(f"{where} is no port")
    return found
