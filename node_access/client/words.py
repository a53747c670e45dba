"""Names, addresses, times and text that come from a person or from the cluster. Pure.

Text of the cluster is hostile to a terminal and to files of ``ssh``: it becomes a typed value here, or it is shown with
every control character escaped.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from attestors.wire.ssh.container_names import Container, Numbered, parse_container_address
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.options import Network, parse_network
from attestors.wire.ssh.principals import HostName, LoginOnNode
from node_access.client.errors import WrongUse

MAXIMUM_SHOWN: Final = 1024
_OBJECT_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", re.ASCII)
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?", re.ASCII)
_DURATION: Final = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?", re.ASCII)
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?Z", re.ASCII)
_FORWARD: Final = re.compile(
    r"(?:(?P<address>[A-Za-z0-9.*-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):)?(?P<port>[0-9]{1,5}):"
    r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]):(?P<there>[0-9]{1,5})",
    re.ASCII,
)

_POD_ITSELF: Final = ("localhost", "127.0.0.1", "[::1]")
_OWN_ADDRESSES: Final = {
    "": ("127.0.0.1", "::1"),
    "localhost": ("127.0.0.1", "::1"),
    "*": ("0.0.0.0", "::"),  # noqa: S104 - the person asks for it
}


def printable(text: str, maximum: int = MAXIMUM_SHOWN) -> str:
    """The text in one line, without what a terminal would obey, and shortened."""
    shown = text if len(text) <= maximum else text[: maximum - 1] + "…"
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in shown)


def object_name(text: str, what: str) -> str:
    """A name of an object (RFC 1123, subdomain), which no program takes for an option.

    Raises:
        WrongUse: it is none.
    """
    if _OBJECT_NAME.fullmatch(text) is None:
        raise WrongUse(f"{text[:64]!a} is not {what}: lower-case letters, digits, '-' and '.'")
    return text


def label(text: str, what: str) -> str:
    """A name without dots (RFC 1123, label).

    Raises:
        WrongUse: it is none.
    """
    if _LABEL.fullmatch(text) is None:
        raise WrongUse(f"{text[:64]!a} is not {what}: lower-case letters, digits and '-'")
    return text


def node_name(text: str) -> HostName:
    """A node's name.

    Raises:
        WrongUse: it is none that a host certificate can have.
    """
    try:
        return HostName(text)
    except SSHRefused as error:
        raise WrongUse(error.message) from error


def login_name(text: str) -> str:
    """A login on nodes.

    Raises:
        WrongUse: it is none that a certificate can have.
    """
    try:
        return LoginOnNode(text, "node").login
    except SSHRefused:
        raise WrongUse(f"{text[:64]!a} is not a login: lower-case letters, digits, '.', '_' and '-'") from None


def network(text: str) -> Network:
    """An address, or a network in its usual form.

    Raises:
        WrongUse: it is neither.
    """
    try:
        return parse_network(text) if "/" in text else network_of(ipaddress.ip_address(text))
    except SSHRefused as error:
        raise WrongUse(error.message) from error
    except ValueError:
        raise WrongUse(f"{text[:64]!a} is neither an address nor a network") from None


def network_of(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Network:
    """The network that has that address alone.

    Raises:
        WrongUse: no connection comes from such an address.
    """
    mapped = isinstance(address, ipaddress.IPv6Address) and (address.ipv4_mapped is not None or address.scope_id)
    if address.is_unspecified or address.is_multicast or mapped:
        raise WrongUse(f"no connection comes from {address}")
    return ipaddress.ip_network(address)


def duration(text: str) -> timedelta:
    """A duration such as ``8h`` or ``1h30m``, as Kubernetes writes it.

    Raises:
        WrongUse: it is none, or 0.
    """
    found = _DURATION.fullmatch(text)
    length = timedelta()
    if found is not None:
        hours, minutes, seconds = (int(one or 0) for one in found.groups())
        length = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if not length:
        raise WrongUse(f"{text[:64]!a} is not a duration: write it such as 8h or 90m")
    return length


def time(text: str) -> datetime:
    """A time of the API server (RFC 3339, UTC).

    Raises:
        ValueError: it is none.
    """
    if _TIME.fullmatch(text) is None:
        raise ValueError("not a time")
    return datetime.strptime(text[:19], "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC)


def time_text(moment: datetime) -> str:
    """The text of a time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def forward(text: str) -> str:
    """``[BIND:]PORT:HOST:PORT``, as ``ssh -L`` has it.

    Raises:
        WrongUse: it is something else.
    """
    if _FORWARD.fullmatch(text) is None:
        raise WrongUse(f"{text[:64]!a} is not [ADDRESS:]PORT:HOST:PORT")
    return text


@dataclass(frozen=True, slots=True)
class PodForward:
    """A port of this machine that leads to one of a Pod."""

    addresses: tuple[str, ...]
    """Of this machine; at least one of them."""
    port: int
    pod_port: int


def pod_forward(text: str) -> PodForward:
    """``[ADDRESS:]PORT:localhost:PORT``. Without an address, only this machine's programs reach it, as with ``ssh``.

    Raises:
        WrongUse: it is something else, or leads elsewhere than to the Pod itself.
    """
    found = _FORWARD.fullmatch(forward(text))
    assert found is not None
    address, host = found["address"] or "", found["host"]
    if host not in _POD_ITSELF:
        raise WrongUse(f"{text[:64]!a}: on its node, a container's forwarding leads to the Pod's localhost alone")
    numbers = int(found["port"]), int(found["there"])
    if not all(0 < one < 65536 for one in numbers):
        raise WrongUse(f"{text[:64]!a}: a port is a number from 1 to 65535")
    return PodForward(_OWN_ADDRESSES.get(address, (address.strip("[]"),)), *numbers)


CONTAINER_MARK: Final = "_"
"""No name of a node or a Cluster has one, and each of a container does."""


@dataclass(frozen=True, slots=True)
class ContainerDestination:
    """A container of a cluster, as a person names it."""

    container: Container
    """What a grant opens."""
    user: str
    """At the gateway. It may choose a pod of a workload by number."""
    cluster: str

    def __str__(self) -> str:
        return f"{self.container}.{self.cluster}"


@dataclass(frozen=True, slots=True)
class Destination:
    """A node of a cluster."""

    node: HostName
    cluster: str

    def __str__(self) -> str:
        return f"{self.node}.{self.cluster}"


def destination(text: str, cluster: str, known: Sequence[tuple[str, str]]) -> Destination:
    """``NODE.CLUSTER``, or ``NODE`` where ``cluster`` is given or a known one has the node.

    Names of nodes may have dots, and names of Clusters have none here. ``known`` are names of nodes, each with its
    Cluster.

    Raises:
        WrongUse: it is none, or the cluster is not known.
    """
    if cluster:
        object_name(cluster, "the name of a Cluster")
        return Destination(node_name(text.removesuffix(f".{cluster}")), cluster)
    for name, of in known:
        if text == f"{name}.{of}":
            return Destination(node_name(name), of)
    clusters = {of for name, of in known if text == name}
    if len(clusters) == 1:
        return Destination(node_name(text), clusters.pop())
    node, dot, named = text.rpartition(".")
    if not dot or clusters:
        raise WrongUse(f"which Cluster is {text[:253]!a} of? Write NODE.CLUSTER, or use --cluster")
    return Destination(node_name(node), label(named, "the name of a Cluster"))


def container_destination(text: str, cluster: str, known: Sequence[tuple[str, str]]) -> ContainerDestination:
    """``NAMESPACE_POD_CONTAINER.CLUSTER``, or without the Cluster where ``cluster`` is given or a known one has it.

    ``known`` are names of containers, each with its Cluster.

    Raises:
        WrongUse: it is none, or the cluster is not known.
    """
    before, _, container = text.rpartition(CONTAINER_MARK)
    name, dot, named = container.partition(".")
    if before.count(CONTAINER_MARK) != 1:
        raise WrongUse(f"{text[:381]!a}: name the container, too, as NAMESPACE_POD_CONTAINER")
    if cluster:
        object_name(cluster, "the name of a Cluster")
        name, dot, named = container.removesuffix(f".{cluster}"), ".", cluster
    user = f"{before}{CONTAINER_MARK}{name}"
    try:
        address = parse_container_address(user)
        of = address.of.workload if isinstance(address.of, Numbered) else address.of
        found = Container(address.namespace, of, name)
    except SSHRefused as error:
        raise WrongUse(error.message) from error
    if not dot:
        clusters = {one for known_name, one in known if known_name == str(found)}
        if len(clusters) != 1:
            raise WrongUse(f"which Cluster is {text[:381]!a} of? Write {found}.CLUSTER, or use --cluster")
        return ContainerDestination(found, user, clusters.pop())
    return ContainerDestination(found, user, object_name(named, "the name of a Cluster"))


def destination_of(named: str, cluster: str, known: Sequence[tuple[str, str]]) -> Destination | ContainerDestination:
    """What a person named: names of containers have an underscore, and those of nodes have none.

    Raises:
        WrongUse: it is neither, or of no known Cluster.
    """
    if CONTAINER_MARK in named:
        return container_destination(named, cluster, known)
    return destination(named, cluster, known)


def duration_text(length: timedelta) -> str:
    """``1h30m``, for people."""
    seconds = max(0, int(length.total_seconds()))
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    if hours:
        return f"{hours}h{minutes:02}m" if minutes else f"{hours}h"
    return f"{minutes}m" if minutes else f"{seconds}s"
