"""The files of sshd that this program writes: checked before they are in place, and replaced by one rename each.

=============================  ==================================================================================
``<host key>-cert.pub``        sshd's HostCertificate, for each host key
``trusted_user_ca_keys``       sshd's TrustedUserCAKeys: online and break-glass authorities, and those of the image
``break_glass_ca_keys``        the break-glass authorities, whose certificates open plain logins (:mod:`node_access`)
``revoked_keys``               sshd's RevokedKeys; made empty with the first trust, and replaced by trust bundles
``known_hosts``                the CAs of this cluster's hosts, for clients on this machine
``node_name``                  the attested name, which principals of users' certificates may name
=============================  ==================================================================================

sshd refuses each login while RevokedKeys is missing. A list that disappears later is restored only from the bundle in
force: an empty one would let revoked certificates in.

An image may bring break-glass authorities of its own, in ``break_glass_ca_keys_image``. This program never writes that
file, and keeps its keys in ``trusted_user_ca_keys``.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

from attestors.wire.node_access import Trust
from attestors.wire.ssh.certificate import MAXIMUM_CERTIFICATE_BYTES, SignedCertificate, parse_certificate_file
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_line, readable_authorities
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.krl import RevocationList, encode_revocation_list, parse_revocation_list
from attestors.wire.ssh.krl.revocation_list import MAXIMUM_LIST_BYTES
from authenticator.model.node_access import AcceptedAccess
from authenticator.store.files import read_bounded, remove, write_atomically

USER_AUTHORITIES_FILE: Final = "trusted_user_ca_keys"
BREAK_GLASS_FILE: Final = "break_glass_ca_keys"
IMAGE_BREAK_GLASS_FILE: Final = "break_glass_ca_keys_image"
REVOKED_KEYS_FILE: Final = "revoked_keys"
KNOWN_HOSTS_FILE: Final = "known_hosts"
NODE_NAME_FILE: Final = "node_name"
_ANY_HOST: Final = "@cert-authority * "
_PUBLIC: Final = 0o644
_OTHERS_MAY_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH
_MAXIMUM_BYTES: Final = 64 * 1024
_MAXIMUM_IMAGE_BYTES: Final = 32 * 1024
_TIMEOUT_SECONDS: Final = 10.0

_Read = TypeVar("_Read")


class UnwrittenFiles(Exception):
    """The files could not be checked or written; those in place are complete. The message says why."""


class SSHDFiles:
    """The folder with the files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def certificate_file(self, host_key: Path) -> Path:
        """Where the certificate of that host key is."""
        return self.folder / f"{host_key.name}-cert.pub"

    def certificate(self, host_key: Path) -> tuple[SignedCertificate, ...]:
        """The certificate in place; none if it is missing or unreadable."""
        try:
            content = read_bounded(self.certificate_file(host_key), 2 * MAXIMUM_CERTIFICATE_BYTES)
            return (parse_certificate_file(content),)
        except (OSError, SSHRefused):
            return ()

    def lacks_revocation_list(self) -> bool:
        """Whether RevokedKeys is missing or unreadable: sshd then refuses each login."""
        try:
            content = read_bounded(self.folder / REVOKED_KEYS_FILE, MAXIMUM_LIST_BYTES)
            if content:  # an image brings an empty file, which sshd reads as a list of nothing
                parse_revocation_list(content)
        except (OSError, SSHRefused):
            return True
        return False

    def install(
        self, accepted: AcceptedAccess, host_keys: dict[PublicKey, Path], *, node_name: str, is_first: bool, now: int
    ) -> None:
        """Write what differs. ``host_keys`` are this machine's, by public key, and certified for ``node_name``.

        Raises:
            UnwrittenFiles: a file cannot be written, or OpenSSH does not read it.
        """
        with self._reporting():
            self._open()
            revoked = self.folder / REVOKED_KEYS_FILE
            if is_first and not os.path.lexists(revoked):
                write_atomically(revoked, _empty_list(now), mode=_PUBLIC, check=_check_revocation_list)
            self._write_trust(accepted.trust)
            for certificate in accepted.host_certificates:
                host_key = host_keys[certificate.certificate.public_key]
                self._write(self.certificate_file(host_key).name, [certificate.line], _check_certificate)
            self._write(NODE_NAME_FILE, [node_name], lambda _: None)

    def differ(self, revocation_list: bytes, trust: Trust | None) -> tuple[str, ...]:
        """The names of the files that are not as they should be; those of ``trust`` only if it is given.

        They are left out, too, if the image's file is in their way: :meth:`install_bundle` reports it.
        """
        wanted = [(REVOKED_KEYS_FILE, revocation_list)]
        if trust is not None:
            with contextlib.suppress(UnwrittenFiles):
                wanted += [(name, _content(lines)) for name, lines, _ in self._files_of(trust)]
        return tuple(name for name, content in wanted if not self._has(name, content))

    def install_bundle(self, revocation_list: bytes, trust: Trust | None) -> None:
        """Write what differs: revocations first, so that no new authority counts without them.

        Raises:
            UnwrittenFiles: a file cannot be written, or OpenSSH does not read it.
        """
        with self._reporting():
            self._open()
            if not self._has(REVOKED_KEYS_FILE, revocation_list):
                revoked = self.folder / REVOKED_KEYS_FILE
                write_atomically(revoked, revocation_list, mode=_PUBLIC, check=_check_revocation_list)
            if trust is not None:
                self._write_trust(trust)

    def withdraw(self, host_keys: tuple[Path, ...]) -> None:
        """Trust only the image's own authorities any more, and claim no name: this machine left the cluster.

        Raises:
            UnwrittenFiles: a file cannot be written.
        """
        with self._reporting():
            if not self.folder.exists():
                return
            self._open()
            authorities: tuple[PublicKey, ...] = ()
            with contextlib.suppress(UnwrittenFiles):  # what cannot be read does not keep the cluster's there
                authorities = self._authorities_of_image()
            self._write(USER_AUTHORITIES_FILE, list(map(key_line, authorities)), lambda _: None)
            self._write(BREAK_GLASS_FILE, [], lambda _: None)
            self._write(KNOWN_HOSTS_FILE, [], lambda _: None)
            self._write(NODE_NAME_FILE, [], lambda _: None)
            for host_key in host_keys:
                remove(self.certificate_file(host_key))

    def _open(self) -> None:
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir(mode=0o755)
        found = self.folder.stat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & _OTHERS_MAY_WRITE:
            raise UnwrittenFiles(f"{self.folder} must be a folder that nobody but uid {os.geteuid()} may write to")

    def _write_trust(self, trust: Trust) -> None:
        for name, lines, check in self._files_of(trust):
            self._write(name, lines, check)

    def _files_of(self, trust: Trust) -> tuple[tuple[str, list[str], Callable[[Path], None]], ...]:
        """Name, lines and check of each file of the trust, in the order in which they are written.

        A plain login needs an authority in both files of users. With this order, a key that becomes an online authority
        opens none before it is trusted as that; and one that stays a break-glass authority is in both at every moment.
        """
        of_image = self._authorities_of_image()
        if not {*trust.user_authorities, *trust.host_authorities}.isdisjoint(of_image):
            raise UnwrittenFiles(
                f"{IMAGE_BREAK_GLASS_FILE} has an online authority of the cluster, which would open plain logins: "
                f"remove it from there"
            )
        trusted = dict.fromkeys((*trust.all_user_authorities, *of_image))
        return (
            (KNOWN_HOSTS_FILE, [_ANY_HOST + key_line(key) for key in trust.host_authorities], _check_known_hosts),
            (BREAK_GLASS_FILE, list(map(key_line, trust.break_glass_authorities)), _check_authorities),
            (USER_AUTHORITIES_FILE, list(map(key_line, trusted)), _check_authorities),
        )

    def _authorities_of_image(self) -> tuple[PublicKey, ...]:
        """The break-glass authorities that the image brought.

        Raises:
            UnwrittenFiles: the file is there, and cannot be read.
        """
        try:
            return readable_authorities(read_bounded(self.folder / IMAGE_BREAK_GLASS_FILE, _MAXIMUM_IMAGE_BYTES))
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise UnwrittenFiles(f"{IMAGE_BREAK_GLASS_FILE}: {error.strerror}") from None

    def _write(self, name: str, lines: list[str], check: Callable[[Path], None]) -> None:
        content = _content(lines)
        if not self._has(name, content):
            write_atomically(self.folder / name, content, mode=_PUBLIC, check=check)

    def _has(self, name: str, content: bytes) -> bool:
        with contextlib.suppress(OSError):
            return read_bounded(self.folder / name, MAXIMUM_LIST_BYTES) == content
        return False

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnwrittenFiles(f"cannot write {error.filename or self.folder}: {error.strerror}") from None


def _content(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _empty_list(now: int) -> bytes:
    return encode_revocation_list(RevocationList(version=0, generated=now))


def _check_certificate(file: Path) -> None:
    _require(parse_certificate_file, read_bounded(file, 2 * MAXIMUM_CERTIFICATE_BYTES), file)
    _require_openssh(file, "-L", "-f", str(file))


def _check_revocation_list(file: Path) -> None:
    _require(parse_revocation_list, read_bounded(file, MAXIMUM_LIST_BYTES), file)
    _require_openssh(file, "-Q", "-l", "-f", str(file))


def _check_authorities(file: Path) -> None:
    lines = _lines_of(file)
    for line in lines:
        _require(parse_key_line, line, file)
    if lines:  # ssh-keygen reads no empty file
        _require_openssh(file, "-l", "-f", str(file))


def _check_known_hosts(file: Path) -> None:
    for line in _lines_of(file):
        _require(parse_key_line, line.removeprefix(_ANY_HOST), file)


def _lines_of(file: Path) -> list[str]:
    return read_bounded(file, _MAXIMUM_BYTES).decode("ascii").splitlines()


def _require(parse: Callable[[_Read], object], content: _Read, file: Path) -> None:
    try:
        parse(content)
    except SSHRefused as refused:
        raise UnwrittenFiles(f"{file.name}: {refused}") from None


def _require_openssh(file: Path, *arguments: str) -> None:
    """Let this machine's own OpenSSH read the file, if it is installed."""
    program = shutil.which("ssh-keygen")
    if program is None:
        return
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and only paths of ours
            [program, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired):
        raise UnwrittenFiles(f"{file.name}: ssh-keygen does not end, and so cannot check it") from None
    if done.returncode:
        raise UnwrittenFiles(f"{file.name}: ssh-keygen does not read it")
