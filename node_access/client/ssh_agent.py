"""The person's ssh-agent (draft-miller-ssh-agent): a Unix socket, or OpenSSH's named pipe on Windows."""

from __future__ import annotations

import socket
import sys
from collections.abc import Mapping
from typing import Final, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.encoding import Reader, string, uint32
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.keys import Ed25519Key
from node_access.client.errors import ClientFailed

VARIABLE: Final = "SSH_AUTH_SOCK"
WINDOWS_PIPE: Final = r"\\.\pipe\openssh-ssh-agent"
_SUCCESS: Final = 6
_REQUEST_IDENTITIES: Final = 11
_IDENTITIES_ANSWER: Final = 12
_ADD_CONSTRAINED: Final = 25
_REMOVE: Final = 18
_CONSTRAIN_LIFETIME: Final = 1
_MAXIMUM_ANSWER: Final = 256 * 1024
_MAXIMUM_LIFETIME: Final = 2**32 - 1
_SECONDS: Final = 10.0
_LENGTH_BYTES: Final = 4


class NoAgent(ClientFailed):
    """There is no ssh-agent, or it does not do what it is asked for. The message says which."""


def agent_address(environment: Mapping[str, str], platform: str = sys.platform) -> str:
    """Where the agent listens.

    Raises:
        NoAgent: the environment names none.
    """
    found = environment.get(VARIABLE, "")
    if not found and platform == "win32":
        return WINDOWS_PIPE
    if not found:
        raise NoAgent(f"no ssh-agent runs here: {VARIABLE} is not set")
    return found


class SSHAgent:
    """An agent. Each call is a connection of its own."""

    def __init__(self, address: str) -> None:
        self._address = address

    def listed(self) -> tuple[bytes, ...]:
        """The blobs of its keys and certificates.

        Raises:
            NoAgent: it does not answer, or does not list them.
        """
        reader = Reader(self._ask(bytes([_REQUEST_IDENTITIES])))
        try:
            if reader.uint8("the kind") != _IDENTITIES_ANSWER:
                raise NoAgent("the ssh-agent does not list its keys; it may be locked")
            found = []
            for _ in range(reader.uint32("the count")):
                found.append(reader.string("a key", maximum=_MAXIMUM_ANSWER))
                reader.string("a comment", maximum=_MAXIMUM_ANSWER)
        except SSHRefused as error:
            raise NoAgent(f"the ssh-agent's answer is malformed: {error.message}") from error
        return tuple(found)

    def add_key(self, key: Ed25519PrivateKey, comment: str, lifetime_seconds: int) -> None:
        """Hand over a key, which the agent forgets after its lifetime.

        Raises:
            NoAgent: it refuses.
        """
        public = _public(key)
        fields = (b"ssh-ed25519", public, _private(key) + public, comment.encode("utf-8"))
        self._add(fields, lifetime_seconds)

    def add_certificate(
        self, key: Ed25519PrivateKey, signed: SignedCertificate, comment: str, lifetime_seconds: int
    ) -> None:
        """Hand over a certificate with its key, for programs that ask the agent alone.

        Raises:
            NoAgent: it refuses.
        """
        public = _public(key)
        named = signed.certificate.public_key.key_type.certificate_type.encode("ascii")
        fields = (named, signed.blob, public, _private(key) + public, comment.encode("utf-8"))
        self._add(fields, lifetime_seconds)

    def remove(self, blob: bytes) -> None:
        """Have it forget a key or a certificate.

        Raises:
            NoAgent: it does not answer. That it does not have the key is no error.
        """
        self._ask(bytes([_REMOVE]) + string(blob))

    def _add(self, fields: tuple[bytes, ...], lifetime_seconds: int) -> None:
        lifetime = min(max(1, lifetime_seconds), _MAXIMUM_LIFETIME)
        constraint = bytes([_CONSTRAIN_LIFETIME]) + uint32(lifetime)
        if self._ask(bytes([_ADD_CONSTRAINED]) + b"".join(map(string, fields)) + constraint) != bytes([_SUCCESS]):
            raise NoAgent("the ssh-agent does not take a key with a lifetime")

    def _ask(self, request: bytes) -> bytes:
        try:
            if self._address.startswith("\\\\"):
                with open(self._address, "r+b", buffering=0) as pipe:
                    return _exchange(pipe, request)
            if sys.platform == "win32":
                raise NoAgent(f"{VARIABLE} names no pipe")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(_SECONDS)
                connection.connect(self._address)
                with connection.makefile("rwb", buffering=0) as stream:
                    return _exchange(stream, request)
        except (OSError, ValueError) as error:
            raise NoAgent(f"the ssh-agent does not answer: {error}") from error


class _Stream(Protocol):
    def read(self, size: int, /) -> bytes | None: ...
    def write(self, content: memoryview, /) -> int | None: ...


def _exchange(stream: _Stream, request: bytes) -> bytes:
    content = memoryview(string(request))
    while content:
        content = content[stream.write(content) or 0 :]
    length = int.from_bytes(_take(stream, _LENGTH_BYTES), "big")
    if not 0 < length <= _MAXIMUM_ANSWER:
        raise ValueError("an answer of another length than answers have")
    return _take(stream, length)


def _take(stream: _Stream, length: int) -> bytes:
    found = b""
    while len(found) < length:
        chunk = stream.read(length - len(found))
        if not chunk:
            raise ValueError("it closed the connection")
        found += chunk
    return found


def _public(key: Ed25519PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)


def _private(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())


def public_key_of(key: Ed25519PrivateKey) -> Ed25519Key:
    """The public half."""
    return Ed25519Key(_public(key))
