"""The files that say what this node accepts. kubelet-authenticator, the image, or an administrator writes them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import readable_authorities
from attestors.wire.ssh.krl import MAXIMUM_LIST_BYTES, RevocationList, parse_revocation_list
from attestors.wire.ssh.principals import HostName
from node_access.principals import KnownOrNot, Node, NodeName, NotAttested, Revocations, UnknownRevocations

FOLDER: Final = Path("/etc/ssh/node-access")
NODE_NAME_FILE: Final = "node_name"
BREAK_GLASS_FILE: Final = "break_glass_ca_keys"
IMAGE_BREAK_GLASS_FILE: Final = "break_glass_ca_keys_image"
"""Those of the image, besides: kubelet-authenticator never writes it."""
REVOKED_KEYS_FILE: Final = "revoked_keys"
OFFLINE_REVOKED_KEYS_FILE: Final = "revoked_keys_offline"
"""A second list: an administrator writes it, and kubelet-authenticator never does."""
_MAXIMUM_BYTES: Final = 64 * 1024

_Value = TypeVar("_Value")


class UnreadableFile(Exception):
    """A file is missing or malformed; the message says which, and why."""


class _File(Generic[_Value]):
    """A file that is read again only after it has changed."""

    def __init__(self, path: Path, maximum: int, parse: Callable[[bytes], _Value]) -> None:
        self._path, self._maximum, self._parse = path, maximum, parse
        self._known: tuple[tuple[int, ...], _Value] | None = None

    def read(self) -> _Value:
        """Its content.

        Raises:
            UnreadableFile: it is missing, too large or malformed.
        """
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                # A file that changes within one tick of the clock keeps its times; a rename changes the inode.
                version = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
                if self._known is not None and self._known[0] == version:
                    return self._known[1]
                content = file.read(self._maximum + 1)
        except OSError as error:
            raise UnreadableFile(f"{self._path.name}: {error.strerror}") from None
        if len(content) > self._maximum:
            raise UnreadableFile(f"{self._path.name}: larger than {self._maximum} bytes")
        try:
            value = self._parse(content)
        except (SSHRefused, UnicodeDecodeError) as refused:
            raise UnreadableFile(f"{self._path.name}: {refused}") from None
        self._known = (version, value)
        return value

    def exists(self) -> bool:
        """Whether there is one, readable or not."""
        return os.path.lexists(self._path)


class NodeFiles:
    """The files in their folder."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._name = _File(folder / NODE_NAME_FILE, _MAXIMUM_BYTES, _parse_name)
        self._break_glass = [
            _File(folder / name, _MAXIMUM_BYTES, _parse_authorities)
            for name in (BREAK_GLASS_FILE, IMAGE_BREAK_GLASS_FILE)
        ]
        self._revoked = _File(folder / REVOKED_KEYS_FILE, MAXIMUM_LIST_BYTES, _parse_list)
        self._offline = _File(folder / OFFLINE_REVOKED_KEYS_FILE, MAXIMUM_LIST_BYTES, _parse_list)
        self._last: dict[str, RevocationList] = {}

    def node(self) -> Node:
        """What they say now. What cannot be read lets nobody in."""
        try:
            name = self._name.read()
        except UnreadableFile:
            name = NotAttested()
        break_glass = set[str]()
        for file in self._break_glass:
            with contextlib.suppress(UnreadableFile):
                break_glass |= file.read()
        return Node(name, frozenset(break_glass), self.revocations())

    def revocations(self) -> KnownOrNot:
        """What the two lists say. The first must be there, as sshd demands; the second may be."""
        files = {REVOKED_KEYS_FILE: self._revoked}
        if self._offline.exists():
            files[OFFLINE_REVOKED_KEYS_FILE] = self._offline
        unreadable: list[str] = []
        found: dict[str, RevocationList] = {}
        for name, file in files.items():
            try:
                found[name] = file.read()
            except UnreadableFile as failure:
                unreadable.append(str(failure))
                if name in self._last:
                    found[name] = self._last[name]
        self._last = found
        if unreadable:
            return UnknownRevocations(f"nobody is let in: {'; '.join(unreadable)}")
        return Revocations(tuple(found.values()))

    def last_revocations(self) -> Revocations:
        """For sessions that run: of each list, what it said when it could be read."""
        self.revocations()
        return Revocations(tuple(self._last.values()))


def _parse_name(content: bytes) -> NodeName | NotAttested:
    text = content.decode("ascii").removesuffix("\n")
    return NodeName(HostName(text).name) if text else NotAttested()


def _parse_authorities(content: bytes) -> frozenset[str]:
    return frozenset(key.fingerprint for key in readable_authorities(content))


def _parse_list(content: bytes) -> RevocationList:
    return parse_revocation_list(content) if content else RevocationList(version=0, generated=0)
