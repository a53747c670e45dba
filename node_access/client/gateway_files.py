"""What a stock ``ssh`` needs to reach a container through the gateway. Pure.

The gateway takes the grant's key without a certificate: it reads the certificate in the grant's status itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.container_names import Container
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import HostKey, PublicKey
from node_access.client.grants import GATEWAY_NAME, ContainerTarget, GatewayAddress, Grant, Hop, NoGateway
from node_access.client.node_files import KEY_FILE, NotUsable, certificate_of, checked_path, common_options, host_block


@dataclass(frozen=True, slots=True)
class ContainerAccess:
    """What a grant for a container gives, checked."""

    grant: Grant
    container: Container
    gateway: GatewayAddress
    host_keys: tuple[HostKey, ...]
    """The gateway's."""
    certificate: SignedCertificate
    """It stays in the status."""

    @property
    def certificates(self) -> Mapping[Hop, SignedCertificate]:
        """Those that ssh presents: none."""
        return {}

    @property
    def valid_before(self) -> int:
        """Unix time: from then on, no new connection is possible."""
        return self.certificate.certificate.valid_before

    @property
    def alias(self) -> str:
        """The name under which ``ssh`` reaches the container."""
        return f"{self.container}.{self.grant.cluster}"

    @property
    def gateway_alias(self) -> str:
        """The name of the gateway in ``known_hosts``. No other grant has it."""
        return f"{GATEWAY_NAME}{self.grant.key.uid}"


def container_access_of(grant: Grant, key: PublicKey, now: int) -> ContainerAccess:
    """Check what the status of a Ready grant gives, for the key that this program has.

    Raises:
        NotUsable: something is missing, is for another key, name or time, or permits what is never asked for.
    """
    if grant.public_key != key:
        raise NotUsable("the grant is for another key")
    if not isinstance(grant.target, ContainerTarget):
        raise NotUsable("the grant is for nodes")
    gateway, host_keys = grant.status.gateway, grant.status.known_hosts.gateway
    if isinstance(gateway, NoGateway):
        raise NotUsable(
            "the controller names no gateway to containers: its operator has to set access.gateway in its configuration"
        )
    if not host_keys:
        raise NotUsable(
            "the grant's status has no host key of the gateway, so it could not be told from another machine"
        )
    certificate = certificate_of(grant, Hop.CONTAINER, now)
    return ContainerAccess(grant, grant.target.container, gateway, host_keys, certificate)


def container_known_hosts(access: ContainerAccess) -> str:
    """Lines for ``UserKnownHostsFile``: the gateway's keys alone. The names in the status are not used."""
    return "".join(f"{access.gateway_alias} {key_line(one)}\n" for one in access.host_keys)


def container_ssh_config(access: ContainerAccess, folder: str, identity: str = "") -> str:
    """One ``Host`` block. ``folder`` has the other files, ``identity`` is the file of an existing private key.

    Raises:
        NotUsable: ``folder`` or ``identity`` has characters that ssh would expand.
    """
    place = checked_path(folder)
    key = checked_path(identity) if identity else f"{place}/{KEY_FILE}"
    options = {
        "HostName": str(access.gateway.address),
        "Port": str(access.gateway.port),
        "User": str(access.container),
        "HostKeyAlias": access.gateway_alias,
        **common_options(place, key),
    }
    head = f"# AccessGrant {access.grant.key}. Written by node-access; changes are lost.\n"
    return head + host_block(f"{access.alias} {access.alias}.{access.grant.key.namespace}", options)
