"""A node with the image files of ``deploy/node/ssh``: systemd, sshd, one unit for each connection, and our programs.

It is a machine in a scratch root. Its users are root and alice, and its port is one of the host's loopback.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from attestors.wire.ssh.certificate import Certificate, CertificateKind, SignedCertificate, parse_certificate_line
from attestors.wire.ssh.key_line import key_line, parse_key_file
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.krl import RevocationList, encode_revocation_list
from attestors.wire.ssh.options import Extension
from attestors.wire.ssh.principals import HostName, LoginOnNode, UserPrincipal
from attestors.wire.ssh.signatures import PrivateKey, public_key_of, sign
from tests.deploy.embedded import ROOT
from tests.deploy.machine import bind, make_image
from tests.deploy.running_machine import (
    HOST_FILES,
    INTERPRETER,
    MANAGER,
    TARGET,
    Power,
    RunningMachine,
    handing_over,
    setting_up,
)
from tests.support.binaries import MissingPart
from tests.support.closing import ClosedAtTheEnd
from tests.support.openssh import find_openssh, find_sshd, private_key, write_private_key
from tests.support.processes import free_port, wait_until

IMAGE: Final = ROOT / "deploy/node/ssh"
NODE: Final = "worker-1"
USER: Final = "alice"
HOST: Final = "127.0.0.1"
PERMITTED: Final = (Extension.PERMIT_PORT_FORWARDING, Extension.PERMIT_PTY)
PROGRAM: Final = "node-access-sessions"
FOLDER: Final = "/etc/ssh/node-access"
_SLICE: Final = "nodeaccess.slice"
_UNITS: Final = "etc/systemd/system"
_OTHER_UNITS: Final = {
    TARGET: "[Unit]\nRequires=systemd-journald.socket\nAfter=systemd-journald.socket\nWants=ready.service\n",
    "ready.service": "[Service]\nType=oneshot\nExecStart=/bin/touch /run/ready\n",
    **{f"{name}.target": f"[Unit]\nDescription={name}\n" for name in ("sysinit", "basic", "network-online", "sockets")},
}
_PREPARE: Final = f"""
set -e
mkdir -p /dev/pts
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts /dev/pts
ln -s pts/ptmx /dev/ptmx
systemd-sysusers /usr/lib/sysusers.d/node-access.conf
systemd-tmpfiles --create /usr/lib/tmpfiles.d/node-access.conf
mkdir -p /root /home/{USER}
chown {USER} /home/{USER}
systemctl daemon-reload
systemctl start node-access-ssh.socket {PROGRAM}.service
"""
_ACCOUNT: Final = f"{USER}:x:1500:1500::/home/{USER}:/bin/sh\n"
_SECONDS: Final = 60
_PYTHON: Final = "/usr/bin/python3"


class AccessNode(ClosedAtTheEnd):
    """The node, switched on."""

    def __init__(self, root: Path, *, openssh: Path | None = None, host: str = HOST) -> None:
        """Start it in a folder that does not exist yet. ``openssh`` is the prefix of another build; ``host`` is the
        address of this host at which its sshd listens.

        Raises ``MissingPart``.
        """
        if os.geteuid() != 0:
            raise MissingPart("a node with sshd needs root")
        if not os.access(_PYTHON, os.X_OK):
            raise MissingPart(f"the principals command needs {_PYTHON}")
        self._sshd = openssh / "sbin/sshd" if openssh else find_sshd()
        self._openssh = openssh
        self.sshd = str(self._sshd if openssh else "/usr/sbin/sshd")
        """Its path in the machine."""
        find_openssh("ssh")
        self.host = host
        self.port = free_port()
        self.root = root
        self.user_authority = private_key("ed25519", 80)
        self.break_glass = private_key("ed25519", 81)
        self.key = private_key("ed25519", 82)
        self.client = root.parent / f"{root.name}-client"
        self.client.mkdir()
        self._identity = write_private_key(self.client / "id", self.key)
        self._serial = int(time.time())
        self._lay_out()
        power = Power(root, "\n".join([*setting_up(root, {}, {}), *self._overlay(), *handing_over(root, NODE)]))
        self.machine = RunningMachine(root, power)
        with self.closed_on_failure():
            power.on()
            self.machine.run(_PREPARE)
            public = root / "etc/ssh/ssh_host_ed25519_key.pub"
            if not public.exists():
                raise AssertionError(self.machine.output() + self.machine.log("node-access-host-key.service"))
            self._certify_host(parse_key_file(public.read_bytes()))
            wait_until((root / "run/node-access/principals").exists, "the sessions daemon")

    def close(self) -> None:
        """Switch it off."""
        self.machine.power.off()

    # What is in its files.

    def file(self, name: str) -> Path:
        """A file of kubelet-authenticator's folder."""
        return self.root / FOLDER.lstrip("/") / name

    def reset(self) -> None:
        """The files, and the daemon, as they were after the start."""
        authorities = (self.user_authority, self.break_glass)
        lines = [key_line(public_key_of(one)) for one in authorities]
        self.file("trusted_user_ca_keys").write_text("".join(f"{line}\n" for line in lines))
        self.file("break_glass_ca_keys").write_text(f"{lines[1]} of the safe\n")
        self.file("node_name").write_text(f"{NODE}\n")
        for name in ("revoked_keys_offline", "break_glass_ca_keys_image"):
            self.file(name).unlink(missing_ok=True)
        self.revoke()

    def revoke(self, name: str = "revoked_keys", **entries: Any) -> None:
        """Replace a list by one rename."""
        content = encode_revocation_list(RevocationList(version=1, generated=int(time.time()), **entries))
        partial = self.file(f".{name}.new")
        partial.write_bytes(content)
        partial.replace(self.file(name))

    # Certificates and clients.

    def certificate(
        self,
        *principals: UserPrincipal,
        seconds: float = 3600,
        key_id: str = "grant/alice",
        by: PrivateKey | None = None,
        key: PrivateKey | None = None,
        valid_before: int = 0,
    ) -> SignedCertificate:
        """A user certificate; by default for alice on this node."""
        authority = by or self.user_authority
        self._serial += 1
        now = int(time.time())
        unsigned = Certificate(
            public_key=public_key_of(key or self.key),
            kind=CertificateKind.USER,
            serial=self._serial,
            key_id=key_id,
            principals=principals or (LoginOnNode(USER, NODE),),
            valid_after=now - 60,
            valid_before=valid_before or int(now + seconds),
            authority=public_key_of(authority),
            nonce=os.urandom(32),
            extensions=PERMITTED,
        )
        return SignedCertificate(unsigned, sign(authority, unsigned.signed_bytes))

    def ssh(
        self,
        certificate: SignedCertificate,
        *words: str,
        login: str = USER,
        program: str = "ssh",
        agent: Path | None = None,
    ) -> list[str]:
        """A command line of the client, which has the key itself or asks an agent. ``words`` follow its options."""
        file = self.client / f"{certificate.certificate.serial}-cert.pub"
        file.write_text(f"{certificate.line}\n")
        options = [
            *(f"Port={self.port}", f"HostName={self.host}", f"HostKeyAlias={NODE}", f"User={login}"),
            *(f"UserKnownHostsFile={self.client / 'known_hosts'}", "GlobalKnownHostsFile=none"),
            *("StrictHostKeyChecking=yes", "BatchMode=yes", "ConnectTimeout=20"),
        ]
        if agent is not None:
            options.append(f"IdentityAgent={agent}")
        else:
            options += ["IdentitiesOnly=yes", "IdentityAgent=none", f"IdentityFile={self._identity}"]
            options.append(f"CertificateFile={file}")
        return [program, "-F", "none", *(word for option in options for word in ("-o", option)), *words]

    def log_in(
        self, certificate: SignedCertificate, *words: str, login: str = USER
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the node."""
        return subprocess.run(
            self.ssh(certificate, NODE, *words, login=login),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
        )

    # What is seen on it.

    def connections(self) -> set[str]:
        """The units of connections."""
        self.machine.run("systemctl list-units --plain --no-legend --all 'node-access-ssh@*'")
        return {line.split()[0] for line in self.machine.output().splitlines()}

    def sessions(self) -> list[dict[str, Any]]:
        """The daemon's records; ``serial`` is that of the session's certificate."""
        found = []
        for path in (self.root / "run/node-access/sessions").glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # over since
                record = json.loads(path.read_text())
                record["serial"] = parse_certificate_line(record["certificate"]).certificate.serial
                ends = [record["certificate"], *record["prolongedBy"]]
                record["deadline"] = max(parse_certificate_line(one).certificate.valid_before for one in ends)
                found.append(record)
        return found

    def listing(self) -> dict[str, Any]:
        """What ``node-access-sessions list`` prints."""
        self.machine.run(f"/usr/local/bin/{PROGRAM} list")
        found = json.loads(self.machine.output())
        assert isinstance(found, dict)
        return found

    def processes(self, word: str) -> list[int]:
        """Processes of the node whose command line has that word."""
        self.machine.run(f"pgrep -f -- {shlex.quote(word)} || true")
        return [int(line) for line in self.machine.output().split()]

    def journal(self) -> str:
        """Everything."""
        self.machine.run("journalctl --no-pager --output=cat")
        return self.machine.output()

    # How it is made.

    def _certify_host(self, key: PublicKey) -> None:
        authority = private_key("ed25519", 85)
        now = int(time.time())
        unsigned = Certificate(
            public_key=key,
            kind=CertificateKind.HOST,
            serial=1,
            key_id=NODE,
            principals=(HostName(NODE),),
            valid_after=now - 60,
            valid_before=now + 3600,
            authority=public_key_of(authority),
            nonce=os.urandom(32),
        )
        signed = SignedCertificate(unsigned, sign(authority, unsigned.signed_bytes))
        self.file("ssh_host_ed25519_key-cert.pub").write_text(f"{signed.line}\n")
        known = f"@cert-authority {NODE} {key_line(public_key_of(authority))}\n"
        (self.client / "known_hosts").write_text(known)

    def _lay_out(self) -> None:
        make_image(self.root, kubelet="/usr/local/bin/kubelet", stand_ins={})
        shutil.copytree(IMAGE / "etc", self.root / "etc", dirs_exist_ok=True)
        shutil.copytree(IMAGE / "usr", self.root / "image")
        for unit, text in _OTHER_UNITS.items():
            (self.root / _UNITS / unit).write_text(text, encoding="utf-8")
        paths = " ".join(sorted({str(ROOT), sys.prefix, sys.base_prefix}))
        self._drop_in(f"{PROGRAM}.service", INTERPRETER.format(paths=paths))
        self._drop_in("node-access-ssh.socket", f"[Socket]\nListenStream=\nListenStream={self.host}:{self.port}\n")
        if self._openssh is not None:
            command = f"ExecStart=-{self.sshd} -i -f /etc/ssh/node-access-sshd.conf"
            self._drop_in("node-access-ssh@.service", f"[Service]\nExecStart=\n{command}\n")
        (self.root / "programs" / PROGRAM).symlink_to(Path(sys.prefix) / "bin" / PROGRAM)
        (self.root / "etc/systemd/system.conf").write_text(MANAGER, encoding="utf-8")
        for file in HOST_FILES:
            shutil.copy(f"/{file}", self.root / file)
        with (self.root / "etc/passwd").open("a") as accounts:
            accounts.write(_ACCOUNT)
        (self.root / "etc/shadow").write_text(f"root:*:19000:0:99999:7:::\n{USER}:*:19000:0:99999:7:::\n")
        (self.root / "etc/machine-id").write_text(f"{os.urandom(16).hex()}\n", encoding="utf-8")
        (self.root / "etc/hosts").write_text(f"127.0.0.1 localhost {NODE}\n", encoding="utf-8")
        for folder in (self.root, self.root / "image", self.root / "image/lib"):
            folder.chmod(0o755)
        self.reset()

    def _drop_in(self, unit: str, text: str) -> None:
        folder = self.root / _UNITS / f"{unit}.d"
        folder.mkdir()
        (folder / "90-test.conf").write_text(text, encoding="utf-8")

    def _overlay(self) -> Iterator[str]:
        """``/usr`` is the host's, with the image's files and, if sshd is only unpacked, Debian's package over it."""
        layers = [
            self.root / "image",
            *([] if self._sshd.parent.parent == Path("/usr") else [self._sshd.parent.parent]),
        ]
        quoted = shlex.quote(str(self.root))
        yield f"mount -t overlay overlay -o lowerdir={':'.join(map(str, [*layers, '/usr']))} {quoted}/usr"
        yield f"mount --bind {quoted}/programs {quoted}/usr/local/bin"
        if self._openssh is not None:
            yield bind(self._openssh, self.root)
