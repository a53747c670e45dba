"""What is known about one connection."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Final

from attestors.wire.ssh.certificate import FOREVER, Certificate, SignedCertificate

NO_WARNING: Final = 2**63
WITHOUT_END_SECONDS: Final = 3600
"""How long a session lasts whose certificate has no end."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Now, by both clocks."""

    unix: float
    """Unix time, as the node believes. It is wrong on some nodes, and may be set while a session runs."""
    elapsed: float
    """Seconds since boot. Nothing sets it."""


@dataclass(frozen=True, slots=True, order=True)
class ProcessIdentity:
    """A process: its number alone comes again."""

    pid: int
    started: int
    """Clock ticks since boot (``starttime`` of proc(5))."""


class Opens(enum.Enum):
    """What the sshd of a connection opens. Each has a socket, a port and a configuration of its own."""

    NODE = "node-access-ssh@"
    CONTAINERS = "node-access-containers-ssh@"

    @property
    def unit_prefix(self) -> str:
        """How the names of its connections' units begin."""
        return self.value


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection, which is a unit of systemd."""

    control_group: str
    """Its path, from the root of the hierarchy; the last component is the unit."""
    inode: int
    """Of that control group: another connection may get the same path later."""
    monitor: ProcessIdentity
    """sshd's privileged process, with which the session ends."""

    @property
    def unit(self) -> str:
        """Name of the unit."""
        return self.control_group.rpartition("/")[2]

    @property
    def opens(self) -> Opens:
        """What its sshd opens."""
        return Opens.CONTAINERS if self.unit.startswith(Opens.CONTAINERS.unit_prefix) else Opens.NODE


class Login(enum.Enum):
    """How far the login is."""

    PRESENTED = "Presented"
    """sshd asked for principals. Whether the client has the private key is not known."""
    SUCCEEDED = "Succeeded"


@dataclass(frozen=True, slots=True)
class Session:
    """A connection with the certificate that it presented last, which is the accepted one once the login succeeded."""

    connection: Connection
    login_name: str
    signed: SignedCertificate = field(repr=False)
    registered_at: int
    """Unix time."""
    ends_at: float
    """Seconds since boot: the end by elapsed time, wherever the node's clock is set meanwhile."""
    unprivileged: tuple[ProcessIdentity, ...] = ()
    """sshd's process without privileges: it ends as the login succeeds. None if it could not be told."""
    login: Login = Login.PRESENTED
    prolonged_by: tuple[SignedCertificate, ...] = field(default=(), repr=False)
    """The certificate with the latest end of those with the same key id; none if the session's own is it."""
    warned_at: int = NO_WARNING
    """Seconds before the end of which the last warning spoke."""

    @property
    def certificate(self) -> Certificate:
        """The session's own certificate."""
        return self.signed.certificate

    @property
    def certificates(self) -> tuple[Certificate, ...]:
        """Those on which the session rests: the revocation of any ends it."""
        return tuple(one.certificate for one in (self.signed, *self.prolonged_by))

    @property
    def deadline(self) -> int:
        """Unix time of the certificate's end; :data:`~attestors.wire.ssh.certificate.FOREVER` for none."""
        return max(one.valid_before for one in self.certificates)

    @property
    def has_deadline(self) -> bool:
        """Whether the certificate has an end. Without one, elapsed time alone ends the session."""
        return self.deadline != FOREVER

    def seconds_left(self, moment: Moment) -> float:
        """Until the end, by the clock that comes to it first."""
        return min(self.ends_at - moment.elapsed, self.deadline - moment.unix)

    def succeeded(self) -> Session:
        """The login succeeded."""
        return replace(self, login=Login.SUCCEEDED, unprivileged=())


def end_of(certificate: Certificate, moment: Moment, began: float) -> float:
    """When a session with that certificate ends by elapsed time, in seconds since boot.

    ``began`` is when the session began, in seconds since boot.
    """
    if certificate.valid_before == FOREVER:
        return began + WITHOUT_END_SECONDS
    return moment.elapsed + certificate.valid_before - moment.unix
