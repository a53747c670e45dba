"""The machine as the cloud of the provider ``local``: real sshd, real processes, in a folder of their own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from attestors.wire.ssh.options import parse_network
from node_access.bastions.contract import (
    Bastion,
    BastionProvider,
    IPAddress,
    Network,
    Scope,
    SettingsDocuments,
    Surroundings,
)
from node_access.bastions.local.provider import provider
from node_access.bastions.local.resources import LocalBastions
from node_access.bastions.suite import OWNER, Fault, Killed
from tests.support.binaries import MissingPart, build_cache
from tests.support.closing import ClosedAtTheEnd
from tests.support.openssh import find_sshd
from tests.support.processes import free_ports, wait_until

ADDRESS: Final = "127.0.0.1"
_PORTS: Final = 8
_ACCOUNTS: Final = """\
root:x:0:0:root:/root:/bin/sh
sshd:x:65533:65533::/run/sshd:/bin/false
bastion:x:65531:65531::/nonexistent:/usr/sbin/nologin
"""
_SHADOW: Final = "root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\nbastion:*:19000:0:99999:7:::\n"
_WRAPPER: Final = """\
#!/bin/sh
# sshd, which sees accounts of its own.
export LD_LIBRARY_PATH={libraries}
exec unshare --mount sh {start} {sshd} "$@"
"""
_START: Final = """\
set -e
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/shadow /etc/shadow
mount -t tmpfs tmpfs /run
mkdir /run/sshd
exec "$@"
"""


def own_address() -> str:
    """An address of this machine: bastions reach no loopback address. Raises ``MissingPart``."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            raise MissingPart("this machine has no address but loopback") from None
        address: str = probe.getsockname()[0]
        return address


class LocalCloud(ClosedAtTheEnd):
    """See :class:`node_access.bastions.suite.FakeCloud`."""

    faults = frozenset({Fault.KILLED})
    kinds: tuple[str, ...] = ("keeper", "folder", "lock", "bastion.json", "host_key", "end")
    rules_can_be_widened = True
    families = frozenset({4, 6})

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Raises ``MissingPart``."""
        sshd = find_sshd()
        if os.geteuid() != 0:
            raise MissingPart("sshd needs root")
        self.now = now
        self.folder = Path(tempfile.mkdtemp(prefix="node-access-bastions-", dir="/dev/shm"))
        self.folder.chmod(0o755)
        root = build_cache().parent / "openssh-server"
        found = [one for name in ("lib", "usr/lib") for one in sorted((root / name).glob("*-linux-gnu*"))]
        (self.folder / "passwd").write_text(_ACCOUNTS)
        (self.folder / "shadow").write_text(_SHADOW)
        (self.folder / "start").write_text(_START.format(folder=self.folder))
        wrapper = self.folder / "sshd"
        wrapper.write_text(
            _WRAPPER.format(
                libraries=shlex.quote(":".join(map(str, found))),
                start=self.folder / "start",
                sshd=shlex.quote(str(sshd)),
            )
        )
        wrapper.chmod(0o755)
        first = free_ports(_PORTS)
        self.settings: Mapping[str, Any] = {
            "folder": str(self.folder / "state"),
            "address": ADDRESS,
            "ports": {"first": first, "last": first + _PORTS - 1},
            "sshd": str(wrapper),
            "egress": ["192.0.2.9/32"],
        }
        self.without_ipv6: Mapping[str, Any] = self.settings
        self.elsewhere: Sequence[Mapping[str, Any]] = [{**self.settings, "folder": str(self.folder / "elsewhere")}]
        self._fault_in: list[int] = []
        self._failed = False
        self._dies = False

    @property
    def provider(self) -> BastionProvider:
        return provider

    def open(self, owner: str = OWNER) -> LocalBastions:
        settings = provider.settings(SettingsDocuments(self.settings))
        return LocalBastions(settings, Surroundings(Scope(owner), now=self.now), step=self._step)

    def inject(self, fault: Fault, call: int) -> None:
        self._fault_in, self._failed = [call], False

    def has_failed(self) -> bool:
        return self._failed

    def settle(self) -> None:
        pass

    def path(self, uid: str) -> Path:
        """The folder of one bastion."""
        return self.folder / "state" / OWNER / uid

    def processes(self, uid: str) -> list[int]:
        """What runs for it: the keeper, ``unshare``, sshd and its connections. Found by what they were started with."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                with contextlib.suppress(OSError):
                    if uid.encode() in (entry / "cmdline").read_bytes():
                        found.append(int(entry.name))
        return found

    def resources(self, uid: str) -> Sequence[str]:
        return [*(["folder"] if self.path(uid).exists() else []), *(f"process {one}" for one in self.processes(uid))]

    def complete(self) -> int:
        return 4

    def open_to(self, uid: str) -> frozenset[Network]:
        sources = re.findall(r'from="([^"]+)"', (self.path(uid) / "authorized_keys").read_text())
        assert len(sources) == 1
        return frozenset(map(parse_network, sources[0].split(",")))

    def destinations(self, uid: str) -> frozenset[tuple[IPAddress, int]]:
        line = (self.path(uid) / "authorized_keys").read_text()
        (configured,) = re.findall(r"^PermitOpen (.+)$", (self.path(uid) / "sshd_config").read_text(), re.MULTILINE)
        permitted = re.findall(r'permitopen="([^"]+)"', line)
        assert permitted == configured.split(" ")
        pairs = [one.rsplit(":", 1) for one in permitted]
        return frozenset((parse_network(f"{host.strip('[]')}/32").network_address, int(port)) for host, port in pairs)

    def widen(self, uid: str) -> None:
        file = self.path(uid) / "authorized_keys"
        file.write_text(file.read_text().replace('from="', 'from="203.0.113.0/24,'))

    def lose(self, uid: str, kind: str) -> None:
        processes = self.processes(uid)
        if kind == "keeper":
            os.kill(int((self.path(uid) / "lock").read_text()), signal.SIGKILL)
        elif kind == "folder":
            shutil.rmtree(self.path(uid))
        elif kind == "lock":  # another file of that name, which no process has locked
            (self.path(uid) / "new").touch()
            (self.path(uid) / "new").rename(self.path(uid) / "lock")
        else:
            (self.path(uid) / kind).unlink()
        if kind in ("keeper", "folder", "lock"):
            assert len(processes) == self.complete() - 1
            wait_until(lambda: not self.processes(uid), "nothing outlives the keeper, nor the keeper its folder")

    def add_foreign(self, bastion: Bastion) -> Callable[[], bool]:
        other = self.path("of-somebody-else")
        other.mkdir(parents=True)
        names = bastion.reference
        document = {"uid": names.uid, "namespace": names.namespace, "name": names.name, "cluster": names.cluster}
        (other / "bastion.json").write_text(json.dumps({**document, "port": 22, "madeAt": 0.0}))
        before = (other / "bastion.json").read_text()
        return lambda: (other / "bastion.json").read_text() == before

    def ends_at(self, uid: str) -> datetime:
        return datetime.fromtimestamp(float((self.path(uid) / "end").read_text()), UTC)

    def close(self) -> None:
        """End what was started in the folder, whatever a failed test left, and remove it."""
        for process in self.processes(self.folder.name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        wait_until(lambda: not self.processes(self.folder.name), "all has ended")
        shutil.rmtree(self.folder, ignore_errors=True)

    def inject_death(self, step: int) -> None:
        """This process is killed after that many steps."""
        self._fault_in, self._dies = [step], True

    def log(self, uid: str) -> str:
        """What sshd of the bastion has logged."""
        return (self.path(uid) / "log").read_text(errors="replace")

    def _step(self, name: str) -> None:
        if self._fault_in:
            if self._fault_in[0] == 0:
                if self._dies:
                    os.kill(os.getpid(), signal.SIGKILL)
                self._fault_in, self._failed = [], True
                raise Killed(name)
            self._fault_in[0] -= 1
