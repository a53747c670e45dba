"""Detached signatures by SSH keys (OpenSSH's PROTOCOL.sshsig), as ``ssh-keygen -Y sign`` makes them.

The namespace says what a signature is for. A signature made for another use never counts.
"""

from __future__ import annotations

import enum
import hashlib
import re
from dataclasses import dataclass
from typing import Final

from attestors.wire.ssh.encoding import Reader, from_base64, string, to_base64, uint32
from attestors.wire.ssh.errors import SSHReason, SSHRefused, malformed
from attestors.wire.ssh.keys import MAXIMUM_KEY_BYTES, PublicKey, parse_public_key
from attestors.wire.ssh.signatures import (
    MAXIMUM_SIGNATURE_BYTES,
    PrivateKey,
    Signature,
    parse_signature,
    public_key_of,
    sign,
    verify,
)

MAXIMUM_SSHSIG_BYTES: Final = 8 * 1024
_MAGIC: Final = b"SSHSIG"
_VERSION: Final = 1
_NAMESPACE: Final = re.compile(r"[!-~]{1,128}", re.ASCII)
_MAXIMUM_NAMESPACE_BYTES: Final = 128
_MAXIMUM_HASH_NAME_BYTES: Final = 16
_BEGIN: Final = "-----BEGIN SSH SIGNATURE-----\n"
_END: Final = "\n-----END SSH SIGNATURE-----\n"
_COLUMNS: Final = 70


class HashAlgorithm(enum.Enum):
    """The hash of the message, by its name on the wire and in :mod:`hashlib`."""

    SHA256 = "sha256"
    SHA512 = "sha512"


@dataclass(frozen=True, slots=True)
class Namespace:
    """What signatures are for, such as ``host-key@example.org``.

    Raises:
        SSHRefused: ``Malformed``: empty, too long, or with white space or non-ASCII characters.
    """

    text: str

    def __post_init__(self) -> None:
        if _NAMESPACE.fullmatch(self.text) is None:
            raise malformed("a namespace is 1 to 128 printable ASCII characters without spaces")


@dataclass(frozen=True, slots=True)
class SSHSignature:
    """A detached signature, which nothing has verified yet."""

    public_key: PublicKey
    namespace: Namespace
    hash_algorithm: HashAlgorithm
    signature: Signature

    @property
    def blob(self) -> bytes:
        """The encoded signature."""
        return b"".join(
            (
                _MAGIC,
                uint32(_VERSION),
                string(self.public_key.blob),
                string(self.namespace.text.encode("ascii")),
                string(b""),  # reserved
                string(self.hash_algorithm.value.encode("ascii")),
                string(self.signature.blob),
            )
        )

    @property
    def armored(self) -> str:
        """The text form, as ``ssh-keygen`` writes and reads it."""
        encoded = to_base64(self.blob)
        lines = [encoded[start : start + _COLUMNS] for start in range(0, len(encoded), _COLUMNS)]
        return _BEGIN + "\n".join(lines) + _END


def sign_message(private_key: PrivateKey, namespace: Namespace, message: bytes) -> SSHSignature:
    """Sign with SHA-512 as the message's hash.

    Raises:
        SSHRefused: as :func:`attestors.wire.ssh.signatures.public_key_of`.
    """
    algorithm = HashAlgorithm.SHA512
    signature = sign(private_key, _signed_bytes(namespace, algorithm, message))
    return SSHSignature(public_key_of(private_key), namespace, algorithm, signature)


def verify_message(signed: SSHSignature, expected: PublicKey, namespace: Namespace, message: bytes) -> None:
    """Require that ``expected`` has signed ``message`` for ``namespace``.

    Raises:
        SSHRefused: ``WrongNamespace``, ``SignedByAnotherKey``, or as :func:`attestors.wire.ssh.signatures.verify`.
    """
    if signed.namespace != namespace:
        raise SSHRefused(
            SSHReason.WRONG_NAMESPACE,
            f"the signature is for {signed.namespace.text}, and not for {namespace.text}: sign again for that",
        )
    if signed.public_key != expected:
        raise SSHRefused(
            SSHReason.SIGNED_BY_ANOTHER_KEY,
            f"{signed.public_key.fingerprint} has signed, and not {expected.fingerprint}",
        )
    verify(expected, signed.signature, _signed_bytes(namespace, signed.hash_algorithm, message))


def parse_sshsig(blob: bytes) -> SSHSignature:
    """Parse an encoded signature.

    Raises:
        SSHRefused: ``Malformed``, ``TooLarge``, ``TrailingBytes``, ``SignatureAlgorithmUnsupported``, or as
            :func:`~attestors.wire.ssh.keys.parse_public_key`.
    """
    if len(blob) > MAXIMUM_SSHSIG_BYTES:
        raise SSHRefused(SSHReason.TOO_LARGE, f"a signature has at most {MAXIMUM_SSHSIG_BYTES} bytes")
    reader = Reader(blob)
    if reader.take(len(_MAGIC), "the preamble") != _MAGIC:
        raise malformed("the preamble is not SSHSIG")
    version = reader.uint32("the version")
    if version != _VERSION:
        raise malformed(f"signatures of version {version} are not known here")
    public_key = parse_public_key(reader.string("the public key", maximum=MAXIMUM_KEY_BYTES))
    namespace = Namespace(reader.text("the namespace", maximum=_MAXIMUM_NAMESPACE_BYTES))
    reader.string("the reserved field", maximum=0)
    name = reader.text("the hash's name", maximum=_MAXIMUM_HASH_NAME_BYTES)
    try:
        algorithm = HashAlgorithm(name)
    except ValueError:
        raise SSHRefused(
            SSHReason.SIGNATURE_ALGORITHM_UNSUPPORTED, f"the message's hash {name!a} is neither sha256 nor sha512"
        ) from None
    signature = parse_signature(reader.string("the signature", maximum=MAXIMUM_SIGNATURE_BYTES))
    reader.end("the signature")
    return SSHSignature(public_key, namespace, algorithm, signature)


def parse_armored(text: str) -> SSHSignature:
    """Parse the text form, exactly as ``ssh-keygen`` writes it.

    Raises:
        SSHRefused: ``Malformed``, ``NotCanonical`` (other line lengths), or as :func:`parse_sshsig`.
    """
    if len(text) > 2 * MAXIMUM_SSHSIG_BYTES:
        raise SSHRefused(SSHReason.TOO_LARGE, "the text is longer than any signature")
    if not (text.startswith(_BEGIN) and text.endswith(_END) and len(text) > len(_BEGIN) + len(_END)):
        raise malformed("not the text of an SSH signature: its first or last line is missing")
    body = text[len(_BEGIN) : -len(_END)]
    signed = parse_sshsig(from_base64(body.replace("\n", ""), "the signature"))
    if signed.armored != text:
        raise SSHRefused(SSHReason.NOT_CANONICAL, f"the lines of the signature are not {_COLUMNS} characters long")
    return signed


def _signed_bytes(namespace: Namespace, algorithm: HashAlgorithm, message: bytes) -> bytes:
    return b"".join(
        (
            _MAGIC,
            string(namespace.text.encode("ascii")),
            string(b""),
            string(algorithm.value.encode("ascii")),
            string(hashlib.new(algorithm.value, message).digest()),
        )
    )
