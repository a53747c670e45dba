"""Node mode on a node whose kubelet runs Pods: the agent, and sshd with the image's configuration.

sshd's question for principals is answered as ``node-access-sessions`` does there: with the login itself.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from attestors.wire.ssh.certificate import Certificate, CertificateKind, SignedCertificate
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import host_key
from attestors.wire.ssh.options import Extension
from attestors.wire.ssh.principals import HostName, PlainPrincipal
from attestors.wire.ssh.signatures import PrivateKey, public_key_of, sign
from node_access.containers.cli import GROUP
from node_access.containers.tools import ACCOUNTS, BUSYBOX, SFTP_SERVER
from node_access.containers.users import DATABASE
from tests.deploy.embedded import ROOT
from tests.support.binaries import MissingPart
from tests.support.containers.cluster import ContainerCluster
from tests.support.node_access import certificate as host_certificate
from tests.support.openssh import find_openssh, find_sshd, private_key, write_private_key
from tests.support.processes import Program, wait_until

IMAGE: Final = ROOT / "deploy/node/ssh-containers"
AUTHORITY: Final = private_key("ed25519", 180)
GROUP_ID: Final = 64000
PORT: Final = 2022
NSS_LIBRARY: Final = Path("/usr/lib/libnss_extrausers.so.2")
_INSTALL: Final = "run tests/provision/provision.sh containers"
_SECONDS: Final = 60
_ACCOUNTS: Final = {
    "passwd": (
        "root:x:0:0:root:/root:/bin/sh\nsshd:x:65533:65533::/run/sshd:/bin/false\nnobody:x:65534:65534::/:/bin/false\n"
    ),
    "group": f"root:x:0:\nsshd:x:65533:\nnogroup:x:65534:\n{GROUP}:x:{GROUP_ID}:\n",
    "shadow": "root:*:19000:0:99999:7:::\n",
    "nsswitch.conf": "passwd: files extrausers\ngroup: files\nshadow: files\nhosts: files\n",
}


class NodeMode:
    """The agent and sshd, running on the node of a cluster. They end with the node.

    Raises:
        MissingPart: a program is not installed.
    """

    def __init__(self, cluster: ContainerCluster, *options: str, authority: PrivateKey = AUTHORITY) -> None:
        """``options`` are the agent's; ``authority`` is that of users."""
        for path in (NSS_LIBRARY, SFTP_SERVER, ACCOUNTS, BUSYBOX, Path("/usr/bin/python3")):
            if not path.exists():
                raise MissingPart(f"{path} is not installed: {_INSTALL}")
        find_openssh("ssh")
        self.cluster, self.node = cluster, cluster.node
        self._options = options
        self.folder = self.node.folder / "node-mode"
        self.folder.mkdir()
        self.folder.chmod(0o755)
        self.node.folder.chmod(0o755)
        self.authority, self.key = authority, private_key("ed25519", 181)
        self.host_authority = private_key("ed25519", 183)
        """It certifies the node for its name and its full name of Cluster ``production`` in ``team-a``."""
        self._identity = write_private_key(self.folder / "id", self.key)
        self._serial = 0
        self._lay_out()
        self.agent = self.start_agent()
        self._start_sshd()

    def start_agent(self) -> Program:
        """Start the agent, and wait until it serves."""
        command: list[str | Path] = [
            Path(sys.prefix) / "bin/python",
            "-m",
            "node_access.containers.cli",
            "run",
            *self._options,
        ]
        socket_file = self.node.path("/run/node-access-containers/agent")
        socket_file.unlink(missing_ok=True)
        agent = self.node.start("agent", command)
        agent.wait_ready(socket_file.exists)
        return agent

    def log(self, program: str = "agent") -> str:
        """What the agent, or sshd, has said."""
        return self.cluster.log(program)

    def user(self, name: str) -> int:
        """The uid of a container, once it has a user."""
        wait_until(lambda: name in self._users(), f"a user for {name}")
        return self._users()[name]

    def users(self) -> dict[str, int]:
        """All users of containers."""
        return self._users()

    def _users(self) -> dict[str, int]:
        file = self.node.path(str(DATABASE))
        lines = file.read_text("ascii").splitlines() if file.exists() else []
        return {line.split(":")[0]: int(line.split(":")[2]) for line in lines}

    # Clients

    def ssh(self, name: str, *words: str, principal: str = "", program: str = "ssh") -> list[str]:
        """The command line of a client with a certificate for that container, or for ``principal``."""
        self._serial += 1
        now = int(time.time())
        unsigned = Certificate(
            public_key=public_key_of(self.key),
            kind=CertificateKind.USER,
            serial=self._serial,
            key_id=f"grant/{name}",
            principals=(PlainPrincipal(principal or name),),
            valid_after=now - 60,
            valid_before=now + 3600,
            authority=public_key_of(self.authority),
            nonce=os.urandom(32),
            extensions=(Extension.PERMIT_PORT_FORWARDING, Extension.PERMIT_PTY),
        )
        signed = SignedCertificate(unsigned, sign(self.authority, unsigned.signed_bytes))
        file = self.folder / f"{self._serial}-cert.pub"
        file.write_text(f"{signed.line}\n")
        options = [
            *(f"Port={PORT}", f"HostName={self.node.network.address}", "HostKeyAlias=node", f"User={name}"),
            *(f"UserKnownHostsFile={self.folder / 'known_hosts'}", "GlobalKnownHostsFile=none"),
            *("StrictHostKeyChecking=yes", "BatchMode=yes", "ConnectTimeout=20", "IdentitiesOnly=yes"),
            *("IdentityAgent=none", f"IdentityFile={self._identity}", f"CertificateFile={file}", "LogLevel=ERROR"),
        ]
        return [program, "-F", "none", *(word for option in options for word in ("-o", option)), *words]

    def run(
        self, name: str, *command: str, standard_input: bytes = b"", principal: str = ""
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a command in the container of that name."""
        self.user(principal or name)
        return subprocess.run(
            self.ssh(name, "node", *command, principal=principal),
            input=standard_input,
            capture_output=True,
            check=False,
            timeout=_SECONDS,
        )

    def output(self, name: str, *command: str) -> str:
        """The output of a command that succeeds."""
        done = self.run(name, *command)
        assert done.returncode == 0, (done, self.log()[-2000:], self.log("sshd")[-2000:])
        return done.stdout.decode()

    def ask_as(self, uid: int, message: bytes, descriptors: Sequence[int] = ()) -> bytes:
        """What the agent answers to a message, from a process with that uid in the users' group: of a session that is
        started, until it has ended."""
        folder = os.open(self.node.path("/run/node-access-containers"), os.O_RDONLY | os.O_DIRECTORY)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            child = os.fork()
            if child == 0:
                try:
                    os.fchdir(folder)
                    os.setgroups([])
                    os.setgid(GROUP_ID)
                    os.setuid(uid)
                    theirs.sendall(b"answer:" + _asked("agent", message, descriptors))
                except OSError as error:
                    theirs.sendall(f"error:{error.errno}".encode())
                finally:
                    os._exit(0)
            os.close(folder)
            theirs.close()
            answer = b"".join(iter(lambda: ours.recv(4096), b""))
            os.waitpid(child, 0)
        return answer

    # How it is made

    def _lay_out(self) -> None:
        inside = self.node.path
        image = self.folder / "image"
        shutil.copytree(IMAGE / "usr", image)
        (image / "lib/node-access/container-session").chmod(0o755)
        for name, text in _ACCOUNTS.items():
            (self.folder / name).write_text(text)
            self.node.checked("mount", "--bind", self.folder / name, f"/etc/{name}")
        # The image's files over this machine's.
        unpacked = find_sshd().parent.parent
        layers = ":".join(map(str, [image, *([] if unpacked == Path("/usr") else [unpacked]), "/usr"]))
        self.node.checked("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={layers}", "/usr")
        for folder in ("/run/sshd", "/var/lib/extrausers", "/var/lib/node-access-containers"):
            inside(folder).mkdir(mode=0o755)
        write_private_key(self.folder / "host", private_key("ed25519", 182))
        host = host_key(public_key_of(private_key("ed25519", 182)))
        (self.folder / "known_hosts").write_text(f"node {key_line(host)}\n")
        names = (HostName(self.node.name), HostName(f"{self.node.name}.production.team-a"))
        certificate = host_certificate(host, principals=names, authority=self.host_authority, now=int(time.time()))
        (self.folder / "host-cert.pub").write_text(f"{certificate.line}\n")
        (self.folder / "user-authorities").write_text(f"{key_line(public_key_of(self.authority))}\n")
        (self.folder / "revoked").touch()
        (self.folder / "sshd.conf").write_text("".join(self._configuration()))

    def _configuration(self) -> Iterator[str]:
        """The image's, with the files of this folder."""
        replaced = {
            "HostKey": f"{self.folder}/host",
            "HostCertificate": f"{self.folder}/host-cert.pub",
            "TrustedUserCAKeys": f"{self.folder}/user-authorities",
            "RevokedKeys": f"{self.folder}/revoked",
            "AuthorizedPrincipalsCommand": "/bin/echo %u",
            "AuthorizedPrincipalsCommandUser": "nobody",
            "StrictModes": "no",
        }
        text = (IMAGE / "etc/ssh/node-access-containers-sshd.conf").read_text()
        for line in text.splitlines(keepends=True):
            key = line.partition(" ")[0].strip()
            yield f"{key} {replaced.pop(key)}\n" if key in replaced else line
        assert not replaced, replaced

    def _start_sshd(self) -> None:
        listen = f"ListenAddress={self.node.network.address}:{PORT}"
        command: list[str | Path] = ["/usr/sbin/sshd", "-D", "-e", "-f", self.folder / "sshd.conf", "-o", listen]
        sshd = self.node.start("sshd", command)
        sshd.wait_ready(lambda: answers(self.node.network.address))


def forms(text: str, *fields: str) -> dict[str, str]:
    """Those fields of ``/proc/PID/status``."""
    found = dict(re.findall(r"^(\w+):[ \t]*(.*?)\s*$", text, re.MULTILINE))
    return {field: found[field] for field in fields}


def answers(address: str, port: int = PORT) -> bool:
    """Whether something listens there."""
    try:
        socket.create_connection((address, port), 1).close()
    except OSError:
        return False
    return True


def _asked(path: str, message: bytes, descriptors: Sequence[int]) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
        agent.connect(path)
        try:
            socket.send_fds(agent, [message], list(descriptors))
            first = agent.recv(4096)
            return b" ".join([first, agent.recv(4096)]) if first == b"started" else first
        except (BrokenPipeError, ConnectionResetError):  # closed without a word
            return b""
