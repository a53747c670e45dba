"""What is known about one connection."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Final

from attestors.wire.ssh.certificate import FOREVER, Certificate, SignedCertificate

NO_WARNING: Final = 2**63


@dataclass(frozen=True, slots=True, order=True)
class ProcessIdentity:
    """A process: its number alone comes again."""

    pid: int
    started: int
    """Clock ticks since boot (``starttime`` of proc(5))."""


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
        """Unix time of the end; :data:`~attestors.wire.ssh.certificate.FOREVER` for none."""
        return max(one.valid_before for one in self.certificates)

    @property
    def has_end(self) -> bool:
        """Whether there is a deadline."""
        return self.deadline != FOREVER

    def succeeded(self) -> Session:
        """The login succeeded."""
        return replace(self, login=Login.SUCCEEDED, unprivileged=())
