"""The files of a bastion's sshd: its configuration, and the line of each user authority. Pure text, for every provider.

Each switch is written out: ``restrict`` leaves tunnels open before OpenSSH 10.5, and ``DisableForwarding`` left other
kinds open until 10.4. Keys are written again as type and blob, from the parsed key: no text of a user gets into a file.
"""

from __future__ import annotations

from typing import Final

from attestors.wire.ssh.key_line import key_line
from node_access.bastions.contract import LOGIN, Bastion, IPAddress, Network

_OPENING: Final = "cert-authority"


def host_port(address: IPAddress, port: int) -> str:
    """``ADDRESS:PORT``, with brackets around IPv6."""
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"


def permitted(bastion: Bastion) -> tuple[str, ...]:
    """``ADDRESS:PORT`` of each destination, as ``permitopen`` and ``PermitOpen`` take it."""
    return tuple(host_port(address, port) for address, port in bastion.destinations)


def authorized_keys(bastion: Bastion, *, sources: tuple[Network, ...] = ()) -> str:
    """The file of authorities. With ``sources``, sshd itself refuses connections from elsewhere (``from=``)."""
    options = [
        _OPENING,
        f'principals="{bastion.principal}"',
        *((f'from="{",".join(map(str, sources))}"',) if sources else ()),
        "restrict",
        "port-forwarding",
        *(f'permitopen="{one}"' for one in permitted(bastion)),
    ]
    return "".join(f"{','.join(options)} {key_line(key)}\n" for key in bastion.user_authorities)


def sshd_configuration(bastion: Bastion, *, listen: tuple[str, ...], host_key: str, authorized_keys_file: str) -> str:
    """sshd_config. ``listen`` are values of ListenAddress; the files are absolute paths without white space.

    Nothing runs on a bastion: no session of any kind is admitted (``MaxSessions 0``), and a connection may only be
    forwarded to the destinations.
    """
    lines = [
        *(f"ListenAddress {one}" for one in listen),
        f"HostKey {host_key}",
        f"AuthorizedKeysFile {authorized_keys_file}",
        "TrustedUserCAKeys none",
        f"AllowUsers {LOGIN}",
        "AuthenticationMethods publickey",
        "PubkeyAuthentication yes",
        "PasswordAuthentication no",
        "KbdInteractiveAuthentication no",
        "HostbasedAuthentication no",
        "GSSAPIAuthentication no",
        "PermitEmptyPasswords no",
        "PermitRootLogin no",
        "UsePAM no",
        "StrictModes no",
        "PidFile none",
        "MaxSessions 0",
        "MaxAuthTries 3",
        "LoginGraceTime 30",
        "ClientAliveInterval 30",
        "ClientAliveCountMax 4",
        "PermitTTY no",
        "PermitUserRC no",
        "PermitUserEnvironment no",
        "ForceCommand /bin/false",
        "AllowAgentForwarding no",
        "AllowStreamLocalForwarding no",
        "AllowTcpForwarding local",
        "GatewayPorts no",
        "X11Forwarding no",
        "PermitTunnel no",
        "PermitListen none",
        f"PermitOpen {' '.join(permitted(bastion))}",
        "PrintMotd no",
        "LogLevel VERBOSE",
    ]
    return "\n".join([*lines, ""])
