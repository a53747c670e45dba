"""The host keys of a node's sshd as a CSR extension, each with a proof that the requester holds it.

::

    HostKeys ::= SEQUENCE {
        trustVersion  INTEGER (0..9223372036854775807),  -- that sshd's files on the node hold; 0: none
        keys          SEQUENCE SIZE (1..3) OF SEQUENCE {
            key    OCTET STRING,     -- RFC 4253 section 6.6
            proof  OCTET STRING } }  -- SSHSIG over the CSR's SubjectPublicKeyInfo

The extension is inside what the CSR's signature covers, so a copy of the request cannot hold another host key. A
proof is what ``ssh-keygen -Y sign -n host-key@attestation.cluster.x-k8s.io`` makes of the DER of the CSR's key.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.keys import HostKey, host_key, parse_public_key
from attestors.wire.ssh.signatures import PrivateKey
from attestors.wire.ssh.sshsig import Namespace, SSHSignature, parse_sshsig, sign_message, verify_message

HOST_KEY_NAMESPACE: Final = Namespace("host-key@attestation.cluster.x-k8s.io")
MAXIMUM_HOST_KEYS: Final = 3
MAXIMUM_EXTENSION_BYTES: Final = 6 * 1024
"""Three keys of RSA-4096 take 5.1 KiB. The controller reads a client request with so much, whatever the node's name."""
LARGEST_TRUST_VERSION: Final = 2**63 - 1
_SEQUENCE: Final = 0x30
_INTEGER: Final = 0x02
_OCTET_STRING: Final = 0x04
_LONG_LENGTH: Final = 0x80
_MAXIMUM_LENGTH_BYTES: Final = 2
_MAXIMUM_VERSION_BYTES: Final = 8

Sign: TypeAlias = Callable[[Namespace, bytes], SSHSignature]
"""Signs a message for a namespace, with a key that need not be in this process."""


class HostKeysReason(enum.StrEnum):
    """Why the extension as a whole is refused. A key or a proof is refused with an :class:`SSHReason`."""

    EXTENSION_TOO_LARGE = "ExtensionTooLarge"
    NOT_DER = "NotDER"
    """Another type, or the bytes end early."""
    NOT_CANONICAL_DER = "NotCanonicalDER"
    """A length in more bytes than it needs, or indefinite."""
    BYTES_AFTER_DER = "BytesAfterDER"
    NO_HOST_KEY = "NoHostKey"
    TOO_MANY_HOST_KEYS = "TooManyHostKeys"
    HOST_KEY_REPEATED = "HostKeyRepeated"
    TRUST_VERSION_INVALID = "TrustVersionInvalid"
    """Negative, or more than 63 bits."""


class HostKeysRefused(ValueError):
    """The extension, a key or a proof is refused; the message says why."""

    def __init__(self, reason: HostKeysReason | SSHReason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


@dataclass(frozen=True, slots=True)
class ClaimedHostKey:
    """A host key with its proof, which nothing has verified yet."""

    key: HostKey
    proof: SSHSignature


@dataclass(frozen=True, slots=True)
class HostKeysClaim:
    """The extension's content. No proof is verified yet.

    Raises:
        HostKeysRefused: ``NoHostKey``, ``TooManyHostKeys``, ``HostKeyRepeated`` or ``TrustVersionInvalid``.
    """

    trust_version: int
    """The version of the trust in the files of the node's sshd; 0 for none."""
    keys: tuple[ClaimedHostKey, ...]

    def __post_init__(self) -> None:
        if not self.keys:
            raise HostKeysRefused(HostKeysReason.NO_HOST_KEY, "the extension holds no host key; leave it out instead")
        if len(self.keys) > MAXIMUM_HOST_KEYS:
            raise _too_many()
        if len({claim.key.blob for claim in self.keys}) < len(self.keys):
            raise HostKeysRefused(HostKeysReason.HOST_KEY_REPEATED, "a host key is there twice")
        if not 0 <= self.trust_version <= LARGEST_TRUST_VERSION:
            raise HostKeysRefused(
                HostKeysReason.TRUST_VERSION_INVALID, f"a trust version is a number from 0 to {LARGEST_TRUST_VERSION}"
            )


def claim_with(private_key: PrivateKey, subject_public_key_info: bytes) -> ClaimedHostKey:
    """Prove, with the private key, that the requester holds this host key.

    Raises:
        HostKeysRefused: ``KeyTypeUnsupported`` or ``KeyTooWeak``.
    """
    return claim_through(
        lambda namespace, message: sign_message(private_key, namespace, message), subject_public_key_info
    )


def claim_through(sign: Sign, subject_public_key_info: bytes) -> ClaimedHostKey:
    """Prove, through a callback that signs, that the requester holds this host key.

    Raises:
        HostKeysRefused: the key cannot be a host key.
    """
    try:
        proof = sign(HOST_KEY_NAMESPACE, subject_public_key_info)
        return ClaimedHostKey(host_key(proof.public_key), proof)
    except SSHRefused as refused:
        raise HostKeysRefused(refused.reason, refused.message) from None


def encode(claim: HostKeysClaim) -> bytes:
    """The extension's value, DER.

    Raises:
        HostKeysRefused: ``ExtensionTooLarge``.
    """
    pairs = [
        _der(_SEQUENCE, _der(_OCTET_STRING, one.key.blob) + _der(_OCTET_STRING, one.proof.blob)) for one in claim.keys
    ]
    value = _der(_SEQUENCE, _der(_INTEGER, _octets(claim.trust_version)) + _der(_SEQUENCE, b"".join(pairs)))
    if len(value) > MAXIMUM_EXTENSION_BYTES:
        raise _too_large(len(value))
    return value


def decode(value: bytes) -> HostKeysClaim:
    """Parse the extension's value. No proof is verified.

    Raises:
        HostKeysRefused: it is not exactly what :func:`encode` writes.
    """
    if len(value) > MAXIMUM_EXTENSION_BYTES:
        raise _too_large(len(value))
    content, rest = _element(value, _SEQUENCE, "the extension's value")
    _require_end(rest, "the extension's value")
    number, content = _element(content, _INTEGER, "the trust version")
    pairs, rest = _element(content, _SEQUENCE, "the list of host keys")
    _require_end(rest, "the list of host keys")
    version = _trust_version(number)
    claims: list[ClaimedHostKey] = []
    while pairs:
        if len(claims) == MAXIMUM_HOST_KEYS:
            raise _too_many()
        pair, pairs = _element(pairs, _SEQUENCE, "a host key")
        claims.append(_claim(pair))
    return HostKeysClaim(version, tuple(claims))


def trust_version_in(value: bytes) -> int:
    """The version of the trust that an extension's value names, whatever the keys in it are.

    Raises:
        HostKeysRefused: it names none in its only form.
    """
    content, _ = _element(value, _SEQUENCE, "the extension's value")
    number, _ = _element(content, _INTEGER, "the trust version")
    return _trust_version(number)


def verify(claim: HostKeysClaim, subject_public_key_info: bytes) -> tuple[HostKey, ...]:
    """The host keys, each proven to be held by the requester whose CSR has this key.

    Raises:
        HostKeysRefused: ``WrongNamespace``, ``SignedByAnotherKey``, ``BadSignature`` or
            ``SignatureAlgorithmUnsupported``.
    """
    try:
        for one in claim.keys:
            verify_message(one.proof, one.key, HOST_KEY_NAMESPACE, subject_public_key_info)
    except SSHRefused as refused:
        raise HostKeysRefused(refused.reason, f"the proof of a host key: {refused.message}") from None
    return tuple(one.key for one in claim.keys)


def _trust_version(octets: bytes) -> int:
    """The INTEGER's value (X.690 section 8.3): in as few octets as possible, and not negative."""
    if not octets:
        raise HostKeysRefused(HostKeysReason.NOT_DER, "the trust version has no octet")
    if octets[0] >= _LONG_LENGTH or len(octets) > _MAXIMUM_VERSION_BYTES:
        raise HostKeysRefused(
            HostKeysReason.TRUST_VERSION_INVALID, f"a trust version is a number from 0 to {LARGEST_TRUST_VERSION}"
        )
    version = int.from_bytes(octets, "big")
    if octets != _octets(version):
        raise HostKeysRefused(HostKeysReason.NOT_CANONICAL_DER, "the trust version is not in its only form")
    return version


def _octets(number: int) -> bytes:
    """The octets of a number that is not negative: its first bit is 0."""
    return number.to_bytes(number.bit_length() // 8 + 1, "big")


def _require_end(rest: bytes, what: str) -> None:
    if rest:
        raise HostKeysRefused(HostKeysReason.BYTES_AFTER_DER, f"{len(rest)} bytes follow {what}")


def _claim(pair: bytes) -> ClaimedHostKey:
    blob, rest = _element(pair, _OCTET_STRING, "a host key's blob")
    proof, rest = _element(rest, _OCTET_STRING, "a host key's proof")
    _require_end(rest, "the proof of a host key")
    try:
        return ClaimedHostKey(host_key(parse_public_key(blob)), parse_sshsig(proof))
    except SSHRefused as refused:
        raise HostKeysRefused(refused.reason, f"a host key: {refused.message}") from None


def _too_many() -> HostKeysRefused:
    return HostKeysRefused(HostKeysReason.TOO_MANY_HOST_KEYS, f"more than {MAXIMUM_HOST_KEYS} host keys")


def _too_large(length: int) -> HostKeysRefused:
    return HostKeysRefused(
        HostKeysReason.EXTENSION_TOO_LARGE,
        f"the host keys and their proofs take {length} bytes, more than {MAXIMUM_EXTENSION_BYTES}: use Ed25519",
    )


def _der(tag: int, content: bytes) -> bytes:
    """One element: definite length, in as few bytes as possible (X.690 section 10.1)."""
    return bytes((tag, *_length(len(content)))) + content


def _length(octets: int) -> bytes:
    if octets < _LONG_LENGTH:
        return bytes((octets,))
    encoded = octets.to_bytes((octets.bit_length() + 7) // 8, "big")
    return bytes((_LONG_LENGTH | len(encoded),)) + encoded


def _element(data: bytes, tag: int, what: str) -> tuple[bytes, bytes]:
    """The content of the first element, which must have that tag, and what follows it."""
    if len(data) < 2 or data[0] != tag:
        raise HostKeysRefused(HostKeysReason.NOT_DER, f"{what} is missing or of another type")
    start, length = 2, data[1]
    if length >= _LONG_LENGTH:
        octets = length - _LONG_LENGTH
        start += octets
        length = int.from_bytes(data[2:start], "big")
        if not 0 < octets <= _MAXIMUM_LENGTH_BYTES or data[1:start] != _length(length):
            raise HostKeysRefused(HostKeysReason.NOT_CANONICAL_DER, f"the length of {what} is not in its only form")
    if start + length > len(data):
        raise HostKeysRefused(HostKeysReason.NOT_DER, f"{what} ends early")
    return data[start : start + length], data[start + length :]
