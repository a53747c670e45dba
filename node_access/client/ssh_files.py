"""The files of a grant, whatever it opens: ssh's configuration and ``known_hosts``. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from attestors.wire.ssh.keys import PublicKey
from node_access.client.container_files import (
    ContainerAccess,
    NodeUnknown,
    container_access_of,
    container_known_hosts,
    container_ssh_config,
)
from node_access.client.grants import ContainerTarget, Grant
from node_access.client.node_files import (
    WITHOUT_CONNECTOR,
    Access,
    node_access_of,
    node_known_hosts,
    node_ssh_config,
)

AnyAccess: TypeAlias = Access | ContainerAccess


def access_of(grant: Grant, key: PublicKey, now: int) -> AnyAccess:
    """Check what the status of a Ready grant gives, for the key that this program has.

    Raises:
        NotUsable: something is missing, is for another key, name or time, or permits what is never asked for.
    """
    if isinstance(grant.target, ContainerTarget):
        return container_access_of(grant, key, now)
    return node_access_of(grant, key, now)


def known_hosts(access: AnyAccess) -> str:
    """Lines for ``UserKnownHostsFile``."""
    if isinstance(access, ContainerAccess):
        return container_known_hosts(access)
    return node_known_hosts(access)


def ssh_config(
    access: AnyAccess, folder: str, login: str, identity: str = "", connector: Sequence[str] = WITHOUT_CONNECTOR
) -> str:
    """ssh's configuration. ``login`` is that on nodes; see :func:`~node_access.client.node_files.node_ssh_config`.

    Raises:
        NotUsable: ``folder`` or ``identity`` has characters that ssh would expand.
    """
    if isinstance(access, ContainerAccess):
        return container_ssh_config(access, folder, identity, connector)
    return node_ssh_config(access, folder, login, identity, connector)


def names_of(access: AnyAccess) -> tuple[str, ...]:
    """The names under which ssh reaches what the grant opens."""
    if isinstance(access, ContainerAccess):
        usual = () if isinstance(access.usual_way, NodeUnknown) else (access.alias,)
        return (*usual, *(access.node_alias(one.node) for one in access.nodes))
    return tuple(access.alias(one.node) for one in access.targets)
