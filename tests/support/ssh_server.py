"""A real sshd, unprivileged in nothing but the machine's files: it sees accounts of its own and an empty ``/run``.

Debian's sshd runs as root with the user ``sshd`` beside it. In a mount namespace, ``/etc/passwd`` has that user, and
``/etc/shadow`` lets root in without a password.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.signatures import public_key_of
from tests.support.binaries import MissingPart, build_cache
from tests.support.closing import ClosedAtTheEnd
from tests.support.openssh import find_openssh, find_sshd, private_key, write_private_key
from tests.support.processes import Program, Programs, free_port

HOST: Final = "127.0.0.1"
NODE: Final = "worker-1"
_SECONDS: Final = 60
_ACCOUNTS: Final = """\
root:x:0:0:root:{home}:/bin/sh
sshd:x:65533:65533::/run/sshd:/bin/false
bastion:x:65532:65532::/:/bin/false
"""
_SHADOW: Final = "root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\nbastion:*:19000:0:99999:7:::\n"
_CONFIGURATION: Final = """\
ListenAddress {host}
Port {port}
HostKey {folder}/host
HostCertificate {folder}/host-cert.pub
TrustedUserCAKeys {folder}/user-authorities
RevokedKeys {folder}/revoked.krl
AuthorizedPrincipalsFile {folder}/principals
AuthorizedKeysFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
PermitRootLogin prohibit-password
StrictModes no
PidFile none
LogLevel DEBUG2
Subsystem sftp internal-sftp
"""
_START: Final = """\
set -e
mount --bind {folder}/passwd /etc/passwd
mount --bind {folder}/shadow /etc/shadow
mount -t tmpfs tmpfs /run
mkdir /run/sshd
exec "$@"
"""


class SSHServer(ClosedAtTheEnd):
    """sshd of one node. Its files are those that an agent would write, and may be changed while it runs."""

    def __init__(self, *, user_authority: PublicKey, host: str = HOST, first_lines: str = "") -> None:
        """Start it; it trusts that authority, and has no host certificate. Of the options in ``first_lines``, where
        ``{folder}`` is its folder, sshd takes those. Raises ``MissingPart``.
        """
        self.host = host
        sshd = find_sshd()
        find_openssh("ssh")
        if os.geteuid() != 0:
            raise MissingPart("sshd needs root")
        self._programs = Programs("node-attestation-sshd-")
        self.folder = self._programs.folder
        with self._programs.closed_on_failure():
            self.folder.chmod(0o755)
            self.host_key = private_key("ed25519", 70)
            write_private_key(self.folder / "host", self.host_key)
            self.host_certificate = self.folder / "host-cert.pub"
            self.revoked = self.folder / "revoked.krl"
            self.principals = self.folder / "principals"
            self.revoked.touch()
            self.principals.write_text(f"root\nroot@{NODE}\nroot@*\n")
            (self.folder / "host.pub").write_text(f"{key_line(public_key_of(self.host_key))}\n")
            (self.folder / "user-authorities").write_text(f"{key_line(user_authority)}\n")
            (self.folder / "passwd").write_text(_ACCOUNTS.format(home=self.folder))
            (self.folder / "shadow").write_text(_SHADOW)
            self._sshd = sshd
            self._first_lines = first_lines.format(folder=self.folder)
            self._port, self._program = self._start()

    def restart(self) -> None:
        """After a change of the host certificate."""
        self._programs.stop(self._program)
        self._port, self._program = self._start()

    @property
    def port(self) -> int:
        """Where it listens now."""
        return self._port

    def log(self) -> str:
        """What sshd has logged."""
        return self._program.log.read_text(errors="replace")

    def forget_log(self) -> None:
        """What comes now is of the next login."""
        os.truncate(self._program.log, 0)

    def options(self, *, host_authority: PublicKey | None = None) -> list[str]:
        """Options for ssh: where the server is, and which host key or authority counts."""
        known = self.folder / "known-hosts"
        if host_authority is not None:
            known.write_text(f"@cert-authority * {key_line(host_authority)}\n")
        else:
            known.write_text(f"{NODE} {key_line(public_key_of(self.host_key))}\n")
        options = (
            *(f"Port={self._port}", f"HostName={self.host}", f"HostKeyAlias={NODE}", f"UserKnownHostsFile={known}"),
            *("GlobalKnownHostsFile=none", "StrictHostKeyChecking=yes", "BatchMode=yes", "ConnectTimeout=20"),
        )
        return ["-F", "none", *(word for option in options for word in ("-o", option))]

    def close(self) -> None:
        """Stop it."""
        self._programs.close()

    def _start(self) -> tuple[int, Program]:
        port = free_port()
        configuration = self.folder / "sshd_config"
        configuration.write_text(
            self._first_lines + _CONFIGURATION.format(host=self.host, port=port, folder=self.folder)
        )
        start = self.folder / "start"
        start.write_text(_START.format(folder=self.folder))
        program = self._programs.start(
            "sshd",
            ["unshare", "--mount", "sh", start, self._sshd, "-D", "-e", "-f", configuration],
            {"LD_LIBRARY_PATH": ":".join(map(str, _libraries()))},
        )
        listening = f"Server listening on {self.host} port {port}."  # of this start: the log may have earlier ones
        program.wait_ready(lambda: listening in program.log.read_text(errors="replace"))
        return port, program


def _libraries() -> list[Path]:
    """Where the unpacked packages have theirs."""
    root = build_cache().parent / "openssh-server"
    return [folder for name in ("lib", "usr/lib") for folder in sorted((root / name).glob("*-linux-gnu*"))]


def run_ssh(*arguments: str | Path, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run ``ssh`` without a terminal."""
    return subprocess.run(
        [find_openssh("ssh"), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=_SECONDS,
        env={**os.environ, **(environment or {})},
    )
