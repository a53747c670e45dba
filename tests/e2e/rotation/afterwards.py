"""What the API servers answer after a rotation to clients of the old CA and of the new one."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from signer.kube.connection import ClusterConnection
from tests.e2e.rotation.load import status_of
from tests.e2e.rotation.world import RotationWorld

UNTRUSTED: Final = 0
"""In place of a status: the client refuses the server's certificate."""


@dataclass(frozen=True, slots=True)
class ServerAnswers:
    """Of one API server, asked at its own address."""

    server: str
    old_clients: Mapping[str, int]
    """The status for each former client certificate, over a connection that is trusted."""
    new_clients: Mapping[str, int]
    """The same for the present one, with trust in the new CA alone."""
    trusting_old: int
    """The status for a client that trusts the old CA alone; :data:`UNTRUSTED` is as it should be."""

    @property
    def old_is_refused(self) -> bool:
        """Everything of the old CA is refused, and there was something to ask with."""
        return set(self.old_clients.values()) == {401} and self.trusting_old == UNTRUSTED

    @property
    def new_is_accepted(self) -> bool:
        """Everything of the new CA is accepted."""
        return set(self.new_clients.values()) == {200}


def ask_all(world: RotationWorld, former: Mapping[str, ClusterConnection]) -> tuple[ServerAnswers, ...]:
    """Ask every API server with the ``former`` connections, and with the present ones of all nodes."""
    old, new = world.old.certificate_pem, world.authority().certificate_pem

    def ask(connection: ClusterConnection, server: str, trust: bytes) -> int:
        try:
            return status_of(replace(connection, server=server, certificate_authority=trust, tls=None))
        except ssl.SSLCertVerificationError:
            return UNTRUSTED

    present = {name: node.connection for name, node in world.nodes.items()}
    present["administrator"] = world.admin_connection()
    return tuple(
        ServerAnswers(
            server.name,
            {name: ask(connection, server.server, new) for name, connection in former.items()},
            {name: ask(connection, server.server, new) for name, connection in present.items()},
            ask(present["administrator"], server.server, old),
        )
        for server in world.control_plane.servers
    )
