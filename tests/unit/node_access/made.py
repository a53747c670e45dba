"""Values for tests of sessions, and a kernel that is folders: processes and control groups."""

from __future__ import annotations

import base64
import contextlib
import os
import pty
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from attestors.wire.ssh.certificate import Certificate, CertificateKind, SignedCertificate
from attestors.wire.ssh.principals import PlainPrincipal
from attestors.wire.ssh.signatures import PrivateKey, public_key_of, sign
from node_access.control_groups import Hierarchy
from node_access.machine import Machine
from node_access.processes import Processes
from node_access.values import Connection, Login, Moment, ProcessIdentity, Session, end_of
from tests.support.openssh import private_key, public_keys

NOW: Final = 1_800_000_000
BOOT: Final = 500.0
"""Seconds since boot at that time."""
AUTHORITY: Final = private_key("ed25519", 90)
BREAK_GLASS: Final = private_key("ed25519", 91)
KEY: Final = private_key("ed25519", 92)
MONITOR: Final = 4_000_001
"""No real process has such a number."""
UNPRIVILEGED: Final = 4_000_002
COMMAND: Final = 4_000_003
SHELL: Final = 4_000_004
OUTSIDE: Final = 4_000_005
UNIT: Final = "node-access-ssh@1-10.0.0.1:2222-10.0.0.2:40000.service"
PATH: Final = f"/nodeaccess.slice/{UNIT}"


def certificate(
    *, by: PrivateKey = AUTHORITY, key: str = "", kind: CertificateKind = CertificateKind.USER, **changes: Any
) -> SignedCertificate:
    """A user certificate of an hour."""
    values: dict[str, Any] = {
        "serial": 7,
        "key_id": "grant/alice",
        "principals": (PlainPrincipal("alice"),) if kind is CertificateKind.USER else (),
        "valid_after": NOW - 60,
        "valid_before": NOW + 3600,
    }
    unsigned = Certificate(
        public_key=public_keys()[key] if key else public_key_of(KEY),
        kind=kind,
        authority=public_key_of(by),
        nonce=bytes(32),
        **{**values, **changes},
    )
    return SignedCertificate(unsigned, sign(by, unsigned.signed_bytes))


def session(number: int = 1, *, login: Login = Login.SUCCEEDED, name: str = "alice", **changes: Any) -> Session:
    """A session that has logged in."""
    path = PATH.replace("@1-", f"@{number}-")
    connection = Connection(path, number, ProcessIdentity(MONITOR, 10 + number))
    signed = certificate(**changes)
    return Session(connection, name, signed, NOW, end_of(signed.certificate, at(0), began=BOOT), login=login)


def at(seconds: float, *, clock: float = 0.0) -> Moment:
    """That many seconds after the session began. ``clock``: by so much the node's clock was set ahead since."""
    return Moment(NOW + seconds + clock, BOOT + seconds)


def message(signed: SignedCertificate, *, login: str = "alice", **changes: str) -> bytes:
    """What sshd's command passes on."""
    one = signed.certificate
    fields = {
        "key_id": one.key_id,
        "serial": str(one.serial),
        "authority": one.authority.fingerprint,
        "encoded": base64.b64encode(signed.blob).decode("ascii"),
    }
    return "\0".join([login, *{**fields, **changes}.values()]).encode()


@dataclass(frozen=True, slots=True)
class Kernel:
    """``/proc`` and ``/sys/fs/cgroup`` as folders."""

    root: Path

    @property
    def machine(self) -> Machine:
        """What reads them."""
        return Machine(Processes(self.root / "proc"), Hierarchy(self.root / "cgroup", "0::"))

    def start(
        self,
        pid: int,
        *,
        parent: int = 1,
        group: str = PATH,
        started: int = 11,
        session: int = 0,
        terminal: int = 0,
        stream: str = "/dev/null",
        state: str = "S",
    ) -> ProcessIdentity:
        """A process; it is in the control group's list if that exists. ``stream`` is its standard input."""
        folder = self.root / "proc" / str(pid)
        folder.mkdir(parents=True, exist_ok=True)
        fields = [state, parent, 0, session, terminal, *range(14), started]
        (folder / "stat").write_text(f"{pid} (sleep) 1) {' '.join(map(str, fields))}\n")
        (folder / "cgroup").write_text(f"9:name=systemd:/\n0::{group}\n")
        (folder / "environ").write_text("HOME=/\0")
        (folder / "fd").mkdir(exist_ok=True)
        (folder / "fd/0").unlink(missing_ok=True)
        (folder / "fd/0").symlink_to(stream)
        members = self.root / f"cgroup{group}/cgroup.procs"
        if members.exists():
            members.write_text(f"{members.read_text()}{pid}\n")
        return ProcessIdentity(pid, started)

    def end(self, pid: int) -> None:
        """It ends, and its parent takes note."""
        shutil.rmtree(self.root / "proc" / str(pid))
        for members in (self.root / "cgroup").rglob("cgroup.procs"):
            members.write_text("".join(f"{line}\n" for line in members.read_text().split() if line != str(pid)))

    def connect(self, path: str = PATH) -> None:
        """A connection's unit appears."""
        folder = self.root / f"cgroup{path}"
        folder.mkdir(parents=True)
        (folder / "cgroup.procs").touch()
        (folder / "cgroup.kill").touch()

    def killed(self, path: str = PATH) -> bool:
        """Whether that unit was killed."""
        return (self.root / f"cgroup{path}/cgroup.kill").read_text() == "1"

    def disconnect(self, path: str = PATH) -> None:
        """A unit disappears. Its folder goes elsewhere: no later one may get its inode, as with control groups."""
        gone = self.root / "gone"
        gone.mkdir(exist_ok=True)
        (self.root / f"cgroup{path}").rename(gone / str(len(list(gone.iterdir()))))

    def log_in(self, path: str = PATH) -> None:
        """sshd's processes while it asks for principals."""
        self.connect(path)
        self.start(MONITOR, group=path)
        self.start(UNPRIVILEGED, parent=MONITOR, group=path)
        self.start(COMMAND, parent=MONITOR, group=path)


@dataclass(frozen=True, slots=True)
class Terminal:
    """A real one, of which the test sees the screen."""

    screen: int
    path: str

    @property
    def device(self) -> int:
        """As ``stat`` of proc(5) writes it."""
        number = os.stat(self.path).st_rdev
        major, minor = os.major(number), os.minor(number)
        return major << 8 | minor & 0xFF | (minor & ~0xFF) << 12

    def shown(self) -> list[str]:
        """The messages since the last time."""
        try:
            text = os.read(self.screen, 65536)
        except BlockingIOError:
            return []
        return [line for line in text.decode().replace("\a", "").splitlines() if line]


@contextlib.contextmanager
def open_terminal() -> Iterator[Terminal]:
    """A terminal of this machine."""
    screen, keyboard = pty.openpty()
    os.set_blocking(screen, False)
    try:
        yield Terminal(screen, os.ttyname(keyboard))
    finally:
        os.close(screen)
        os.close(keyboard)
