"""A node with systemd, both sshds, both daemons, and one container that runc runs from a bundle like containerd's.

Control groups are of version 2 there, as on most nodes.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Final

from attestors.wire.ssh.certificate import SignedCertificate
from node_access.containers.finding import RUNTIME_ROOT, TASKS
from node_access.containers.tools import ACCOUNTS, BUSYBOX, SFTP_SERVER
from tests.support.access_node import AccessNode
from tests.support.binaries import MissingPart
from tests.support.containers.images import find_busybox
from tests.support.containers.node_mode import IMAGE, NSS_LIBRARY
from tests.support.processes import free_port

USER: Final = "shop_web-0_app"
_IDENTIFIER: Final = "c" * 64
_PROGRAM: Final = "node-access-containers"
_NAMESPACES: Final = ("pid", "mount", "network", "ipc", "uts", "cgroup")
_START: Final = f"""
set -e
systemd-sysusers /usr/lib/sysusers.d/{_PROGRAM}.conf
systemd-tmpfiles --create /usr/lib/tmpfiles.d/{_PROGRAM}.conf
mkdir -p {TASKS}
cp -r /container {TASKS}/{_IDENTIFIER}
runc --root {RUNTIME_ROOT} run --detach --pid-file {TASKS}/{_IDENTIFIER}/init.pid --bundle {TASKS}/{_IDENTIFIER} \
    {_IDENTIFIER} < /dev/null > /dev/null
systemctl start {_PROGRAM}-ssh.socket {_PROGRAM}.service
"""


class ContainersNode(AccessNode):
    """The node, switched on, with its container. Raises ``MissingPart``."""

    def __init__(self, root: Path) -> None:
        for path in (NSS_LIBRARY, SFTP_SERVER, ACCOUNTS, BUSYBOX, Path("/usr/sbin/runc")):
            if not path.exists():
                raise MissingPart(f"{path} is not installed: run tests/provision/provision.sh containers")
        self.containers_port = free_port()
        super().__init__(root)
        with self.closed_on_failure():
            self.machine.run(_START)

    def ssh_to_container(self, certificate: SignedCertificate, *words: str, login: str = USER) -> list[str]:
        """A command line of the client for the sshd of containers."""
        return ["ssh", "-p", str(self.containers_port), *self._without_port(self.ssh(certificate, *words, login=login))]

    def ids(self, word: str) -> list[int]:
        """Processes of the machine whose command line begins so."""
        return self.processes(f"^{word}")

    def connections_to_containers(self) -> str:
        """The units of connections, one a line."""
        self.machine.run(f"systemctl list-units --plain --no-legend --all {shlex.quote(f'{_PROGRAM}-ssh@*')}")
        return self.machine.output().strip()

    def _without_port(self, command: list[str]) -> list[str]:
        at = command.index(f"Port={self.port}")
        return command[1 : at - 1] + command[at + 1 :]

    def _lay_out(self) -> None:
        super()._lay_out()
        shutil.copytree(IMAGE / "etc", self.root / "etc", dirs_exist_ok=True)
        shutil.copytree(IMAGE / "usr", self.root / "image", dirs_exist_ok=True)
        (self.root / "image/lib/node-access/container-session").chmod(0o755)
        for folder in (self.root / "image/lib", self.root / "image/lib/node-access"):
            folder.chmod(0o755)
        (self.root / "etc/nsswitch.conf").write_text("passwd: files extrausers\ngroup: files\nshadow: files\n")
        listen = f"[Socket]\nListenStream=\nListenStream={self.host}:{self.containers_port}\n"
        self._drop_in(f"{_PROGRAM}-ssh.socket", listen)
        paths = " ".join(sorted({str(Path(__file__).parents[3]), sys.prefix, sys.base_prefix}))
        self._drop_in(f"{_PROGRAM}.service", f"[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths={paths}\n")
        (self.root / "programs" / _PROGRAM).symlink_to(Path(sys.prefix) / "bin" / _PROGRAM)
        self._lay_out_container()

    def _lay_out_container(self) -> None:
        bundle = self.root / "container"
        for folder in ("proc", "dev", "bin"):
            (bundle / "rootfs" / folder).mkdir(parents=True)
        shutil.copy(find_busybox(), bundle / "rootfs/bin/sleep")
        (bundle / "config.json").write_text(json.dumps(_specification()))


def _specification() -> dict[str, Any]:
    names = {
        "container-type": "container",
        "sandbox-namespace": "shop",
        "sandbox-name": "web-0",
        "container-name": "app",
    }
    return {
        "ociVersion": "1.0.2",
        "process": {
            "terminal": False,
            "user": {"uid": 65532, "gid": 65532},
            "args": ["/bin/sleep", "999999"],
            "env": ["PATH=/bin"],
            "cwd": "/",
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "hostname": "web-0",
        "mounts": [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["mode=755"]},
            {
                "destination": "/dev/pts",
                "type": "devpts",
                "source": "devpts",
                "options": ["newinstance", "ptmxmode=0666", "mode=0620"],
            },
        ],
        "linux": {
            "cgroupsPath": f"/kubepods/{_IDENTIFIER}",
            "namespaces": [{"type": kind} for kind in _NAMESPACES],
        },
        "annotations": {f"io.kubernetes.cri.{key}": value for key, value in names.items()},
    }
