"""An ordinary sshd on the node of a cluster: root's login with a key, and OpenSSH's SFTP server. For comparisons."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from node_access.containers.tools import SFTP_SERVER
from tests.support.containers.node_mode import NodeMode, answers
from tests.support.openssh import find_openssh, private_key, write_private_key

PORT: Final = 2200
_CONFIGURATION: Final = """\
HostKey {folder}/host
AuthorizedKeysFile {folder}/keys
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
Subsystem sftp {server}
"""


class PlainSSHServer:
    """It runs beside that of containers, and ends with the node."""

    def __init__(self, mode: NodeMode) -> None:
        node = mode.node
        self._address = node.network.address
        self.folder = node.folder / "plain-sshd"
        self.folder.mkdir()
        host, person = private_key("ed25519", 190), private_key("ed25519", 191)
        write_private_key(self.folder / "host", host)
        self._identity = write_private_key(self.folder / "id", person)
        (self.folder / "keys").write_text(f"{key_line(public_key_of(person))}\n")
        (self.folder / "known_hosts").write_text(f"node {key_line(public_key_of(host))}\n")
        (self.folder / "sshd.conf").write_text(_CONFIGURATION.format(folder=self.folder, server=SFTP_SERVER))
        listen = f"ListenAddress={self._address}:{PORT}"
        command: list[str | Path] = ["/usr/sbin/sshd", "-D", "-e", "-f", self.folder / "sshd.conf", "-o", listen]
        node.start("plain-sshd", command).wait_ready(lambda: answers(self._address, PORT))

    def scp(self, *words: str) -> list[str]:
        """The words of scp; the host is ``node``."""
        options = [
            *(f"Port={PORT}", f"HostName={self._address}", "HostKeyAlias=node", "User=root", "IdentityAgent=none"),
            *(f"UserKnownHostsFile={self.folder / 'known_hosts'}", "GlobalKnownHostsFile=none", "BatchMode=yes"),
            *("StrictHostKeyChecking=yes", "IdentitiesOnly=yes", f"IdentityFile={self._identity}"),
        ]
        return [str(find_openssh("scp")), "-F", "none", *(word for one in options for word in ("-o", one)), *words]
