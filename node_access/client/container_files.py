"""What a stock ``ssh`` needs to reach a container, through the gateway or on its node. Pure.

The gateway takes the grant's key without a certificate: it reads the certificate in the grant's status itself. The
node's sshd takes the certificate, as for logins of nodes, and has the container as user name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.container_names import Container, Pod
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import HostKey, PublicKey
from attestors.wire.ssh.principals import HostName
from node_access.client.grants import (
    GATEWAY_NAME,
    ContainerTarget,
    GatewayAddress,
    Grant,
    Hop,
    NoBastion,
    NodeTarget,
    NoGateway,
)
from node_access.client.node_files import (
    KEY_FILE,
    WITHOUT_CONNECTOR,
    BastionHop,
    NotUsable,
    Road,
    bastion_block,
    bastion_of,
    certificate_of,
    checked_path,
    common_options,
    host_block,
    host_lines,
    node_block,
)

NO_GATEWAY = (
    "the controller names no gateway to containers: its operator has to set access.gateway in its configuration"
)


@dataclass(frozen=True, slots=True)
class GatewayHop:
    """The way through the gateway."""

    where: GatewayAddress
    host_keys: tuple[HostKey, ...]


@dataclass(frozen=True, slots=True)
class NodeUnknown:
    """Nobody says on which node the Pod runs."""


@dataclass(frozen=True, slots=True)
class ContainerAccess:
    """What a grant for a container gives, checked."""

    grant: Grant
    container: Container
    certificate: SignedCertificate
    """The gateway finds it in the status; the node's sshd is shown it."""
    gateway: GatewayHop | NoGateway
    nodes: tuple[NodeTarget, ...]
    """Those on which it may run; none where no node would open it."""
    why_no_node: str
    """Empty if there are nodes."""
    runs_on: NodeTarget | NodeUnknown
    """As the workload cluster said. The node proves its name, and finds the container or refuses."""
    authorities: tuple[HostKey, ...]
    """They certify the hosts of the Cluster."""
    bastion: BastionHop | NoBastion

    @property
    def certificates(self) -> Mapping[Hop, SignedCertificate]:
        """Those that ssh presents: to nodes and their bastion alone."""
        if not self.nodes:
            return {}
        bastion = {} if isinstance(self.bastion, NoBastion) else {Hop.BASTION: self.bastion.certificate}
        return {Hop.CONTAINER: self.certificate, **bastion}

    @property
    def valid_before(self) -> int:
        """Unix time: from then on, no new connection is possible."""
        shown = (self.certificate, *self.certificates.values())
        return min(one.certificate.valid_before for one in shown)

    @property
    def alias(self) -> str:
        """The name under which ``ssh`` reaches the container, by the usual way."""
        return f"{self.container}.{self.grant.cluster}"

    def node_alias(self, node: HostName) -> str:
        """The name under which ``ssh`` reaches it on that node."""
        return f"{self.container}.{node}.{self.grant.cluster}"

    @property
    def gateway_alias(self) -> str:
        """The name of the gateway in ``known_hosts``. No other grant has it."""
        return f"{GATEWAY_NAME}{self.grant.key.uid}"

    @property
    def usual_way(self) -> Way:
        """The gateway, if there is one; else the node on which the Pod runs."""
        return self.gateway if isinstance(self.gateway, GatewayHop) else self.runs_on


Way: TypeAlias = GatewayHop | NodeTarget | NodeUnknown


def container_access_of(grant: Grant, key: PublicKey, now: int) -> ContainerAccess:
    """Check what the status of a Ready grant gives, for the key that this program has.

    Raises:
        NotUsable: something is missing, is for another key, name or time, or permits what is never asked for.
    """
    if grant.public_key != key:
        raise NotUsable("the grant is for another key")
    if not isinstance(grant.target, ContainerTarget):
        raise NotUsable("the grant is for nodes")
    certificate = certificate_of(grant, Hop.CONTAINER, now)
    gateway = _gateway(grant)
    why = _why_no_node(grant, grant.target.container)
    if why and isinstance(gateway, NoGateway):
        raise NotUsable(f"{NO_GATEWAY}; and {why}")
    nodes = () if why else tuple(one for one in grant.status.targets if one.addresses)
    return ContainerAccess(
        grant,
        grant.target.container,
        certificate,
        gateway,
        nodes,
        why,
        _runs_on(grant, nodes),
        grant.status.known_hosts.authorities if nodes else (),
        bastion_of(grant, now) if nodes else NoBastion(),
    )


def _gateway(grant: Grant) -> GatewayHop | NoGateway:
    found, host_keys = grant.status.gateway, grant.status.known_hosts.gateway
    if isinstance(found, NoGateway):
        return found
    if not host_keys:
        raise NotUsable(
            "the grant's status has no host key of the gateway, so it could not be told from another machine"
        )
    return GatewayHop(found, host_keys)


def _why_no_node(grant: Grant, container: Container) -> str:
    """Why no node opens it; empty if one may."""
    if not isinstance(container.of, Pod):
        return "nodes know no workloads: name the Pod"
    if grant.command:
        return "nodes open no container for a forced command"
    if not any(one.addresses for one in grant.status.targets):
        return "no node of the Cluster has attested and has an address"
    if not grant.status.known_hosts.authorities:
        return "the grant's status has no host authority, so no node could be told from another machine"
    return ""


def _runs_on(grant: Grant, nodes: tuple[NodeTarget, ...]) -> NodeTarget | NodeUnknown:
    """The node of the hint, or the only one."""
    if len(nodes) == 1:
        return nodes[0]
    return next((one for one in nodes if one.node in grant.status.container_node), NodeUnknown())


def container_known_hosts(access: ContainerAccess) -> str:
    """Lines for ``UserKnownHostsFile``. The names and patterns in the status are not used."""
    gateway = access.gateway.host_keys if isinstance(access.gateway, GatewayHop) else ()
    lines = "".join(f"{access.gateway_alias} {key_line(one)}\n" for one in gateway)
    return lines + host_lines(access.grant, access.authorities, access.bastion)


def container_ssh_config(
    access: ContainerAccess, folder: str, identity: str = "", connector: Sequence[str] = WITHOUT_CONNECTOR
) -> str:
    """One ``Host`` block for the usual way, one for each node, and one for their bastion. ``folder`` has the other
    files, ``identity`` is the file of an existing private key; see :func:`node_ssh_config` for ``connector``.

    Raises:
        NotUsable: ``folder`` or ``identity`` has characters that ssh would expand.
    """
    place = checked_path(folder)
    road = Road(access.grant, access.bastion, place, checked_path(identity) if identity else f"{place}/{KEY_FILE}")
    user, usual = str(access.container), access.usual_way
    names = f"{access.alias} {access.alias}.{access.grant.key.namespace}"
    blocks = [f"# AccessGrant {access.grant.key}. Written by node-access; changes are lost.\n"]
    if isinstance(usual, GatewayHop):
        options = {
            "HostName": str(usual.where.address),
            "Port": str(usual.where.port),
            "User": user,
            "HostKeyAlias": access.gateway_alias,
            **common_options(place, road.key),
        }
        blocks.append(host_block(names, options))
    elif isinstance(usual, NodeTarget):
        blocks.append(node_block(road, names, usual, user, Hop.CONTAINER, connector))
    blocks += [
        node_block(road, access.node_alias(one.node), one, user, Hop.CONTAINER, connector) for one in access.nodes
    ]
    return "".join(blocks) + bastion_block(road)
