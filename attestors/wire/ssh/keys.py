"""Public keys (RFC 4253 section 6.6, RFC 5656, RFC 8709; OpenSSH's PROTOCOL.u2f for FIDO keys).

Refused: DSA, which OpenSSH 10 removed, RSA below 3072 bits, compressed or invalid points, and every type not listed.
"""

from __future__ import annotations

import base64
import enum
import functools
import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from cryptography.hazmat.primitives.asymmetric import ec

from attestors.wire.ssh.encoding import Reader, mpint, string
from attestors.wire.ssh.errors import SSHReason, SSHRefused

MAXIMUM_KEY_BYTES: Final = 2048
"""Length of a blob. RSA-8192 takes 1,047 bytes."""
MINIMUM_RSA_BITS: Final = 3072
MAXIMUM_RSA_BITS: Final = 8192
_MINIMUM_REVOCABLE_RSA_BITS: Final = 1024
"""OpenSSH refuses a whole KRL that holds a shorter key (``SSH_RSA_MINIMUM_MODULUS_SIZE``)."""
_MAXIMUM_EXPONENT_BITS: Final = 32
_ED25519_BYTES: Final = 32
_MAXIMUM_TYPE_BYTES: Final = 64
_MAXIMUM_APPLICATION_BYTES: Final = 255
_NAME: Final = re.compile(rb"[a-z0-9@.-]{1,64}")
_SUPPORTED: Final = "use Ed25519, ECDSA, RSA with 3072 to 8192 bits, or a FIDO key of Ed25519 or ECDSA"


class KeyType(enum.Enum):
    """A type of public key, by its name on the wire."""

    ED25519 = "ssh-ed25519"
    ECDSA_P256 = "ecdsa-sha2-nistp256"
    ECDSA_P384 = "ecdsa-sha2-nistp384"
    ECDSA_P521 = "ecdsa-sha2-nistp521"
    RSA = "ssh-rsa"
    SECURITY_KEY_ED25519 = "sk-ssh-ed25519@openssh.com"
    SECURITY_KEY_ECDSA_P256 = "sk-ecdsa-sha2-nistp256@openssh.com"

    __hash__ = object.__hash__  # Enum's own is a function in Python, and each key's type is looked up several times

    @property
    def certificate_type(self) -> str:
        """The name of certificates for such keys (PROTOCOL.certkeys)."""
        return f"{self.value.removesuffix('@openssh.com')}-cert-v01@openssh.com"


_ENCODED_TYPES: Final = {key_type: string(key_type.value.encode("ascii")) for key_type in KeyType}


class Curve(enum.Enum):
    """A curve of ECDSA, by its name on the wire (RFC 5656 section 10.1)."""

    P256 = "nistp256"
    P384 = "nistp384"
    P521 = "nistp521"

    @property
    def parameters(self) -> ec.EllipticCurve:
        """The curve as :mod:`cryptography` names it."""
        return _CURVES[self]

    @property
    def key_type(self) -> KeyType:
        """The type of keys on this curve."""
        return KeyType(f"ecdsa-sha2-{self.value}")


_CURVES: Final[Mapping[Curve, ec.EllipticCurve]] = {
    Curve.P256: ec.SECP256R1(),
    Curve.P384: ec.SECP384R1(),
    Curve.P521: ec.SECP521R1(),
}


class _Key:
    """What every key has."""

    __slots__ = ()

    @property
    def key_type(self) -> KeyType:
        """The key's type."""
        raise NotImplementedError

    @property
    def fields(self) -> bytes:
        """The blob without its type: what a certificate holds behind the nonce."""
        raise NotImplementedError

    @property
    def blob(self) -> bytes:
        """The encoded key."""
        return _ENCODED_TYPES[self.key_type] + self.fields

    @property
    def fingerprint(self) -> str:
        """As ``ssh-keygen -l`` and sshd's log print it: ``SHA256:`` and Base64 without padding."""
        digest = base64.b64encode(hashlib.sha256(self.blob).digest()).decode("ascii")
        return f"SHA256:{digest.rstrip('=')}"


@dataclass(frozen=True, slots=True)
class Ed25519Key(_Key):
    """An Ed25519 key.

    Raises:
        SSHRefused: ``KeyInvalid``: not 32 bytes.
    """

    point: bytes

    def __post_init__(self) -> None:
        _require_ed25519(self.point)

    @property
    def key_type(self) -> KeyType:
        """The key's type."""
        return KeyType.ED25519

    @property
    def fields(self) -> bytes:
        """The point."""
        return string(self.point)


@dataclass(frozen=True, slots=True)
class ECDSAKey(_Key):
    """An ECDSA key.

    Raises:
        SSHRefused: ``KeyInvalid``: not an uncompressed point on the curve.
    """

    curve: Curve
    point: bytes
    """Uncompressed (SEC 1 section 2.3.3)."""

    def __post_init__(self) -> None:
        _require_point(self.curve, self.point)

    @property
    def key_type(self) -> KeyType:
        """The key's type."""
        return self.curve.key_type

    @property
    def fields(self) -> bytes:
        """Curve and point."""
        return string(self.curve.value.encode("ascii")) + string(self.point)


@dataclass(frozen=True, slots=True)
class RSAKey(_Key):
    """An RSA key.

    Raises:
        SSHRefused: ``KeyTooWeak``, ``TooLarge`` or ``KeyInvalid``.
    """

    exponent: int
    modulus: int

    def __post_init__(self) -> None:
        _require_rsa(self.exponent, self.modulus, minimum_bits=MINIMUM_RSA_BITS)

    @property
    def key_type(self) -> KeyType:
        """The key's type."""
        return KeyType.RSA

    @property
    def fields(self) -> bytes:
        """Exponent and modulus, in that order."""
        return mpint(self.exponent) + mpint(self.modulus)


@dataclass(frozen=True, slots=True)
class WeakRSAKey(_Key):
    """An RSA key of 1024 to 3071 bits. It can be revoked, and nothing else.

    Raises:
        SSHRefused: ``KeyTooWeak`` or ``KeyInvalid``.
    """

    exponent: int
    modulus: int

    def __post_init__(self) -> None:
        _require_rsa(self.exponent, self.modulus, minimum_bits=_MINIMUM_REVOCABLE_RSA_BITS)
        if self.modulus.bit_length() >= MINIMUM_RSA_BITS:
            raise SSHRefused(SSHReason.KEY_INVALID, "this RSA key is not weak")

    @property
    def key_type(self) -> KeyType:
        """The key's type."""
        return KeyType.RSA

    @property
    def fields(self) -> bytes:
        """Exponent and modulus, in that order."""
        return mpint(self.exponent) + mpint(self.modulus)


@dataclass(frozen=True, slots=True)
class SecurityKeyEd25519(_Key):
    """An Ed25519 key on a FIDO token.

    Raises:
        SSHRefused: ``KeyInvalid``.
    """

    point: bytes
    application: str
    """``ssh:`` and, where the user chose so, more."""

    def __post_init__(self) -> None:
        _require_ed25519(self.point)
        _require_application(self.application)

    @property
    def key_type(self) -> KeyType:
        """The key's type."""
        return KeyType.SECURITY_KEY_ED25519

    @property
    def fields(self) -> bytes:
        """Point and application."""
        return string(self.point) + string(self.application.encode("ascii"))


@dataclass(frozen=True, slots=True)
class SecurityKeyECDSA(_Key):
    """An ECDSA P-256 key on a FIDO token.

    Raises:
        SSHRefused: ``KeyInvalid``.
    """

    point: bytes
    application: str
    """``ssh:`` and, where the user chose so, more."""

    def __post_init__(self) -> None:
        _require_point(Curve.P256, self.point)
        _require_application(self.application)

    @property
    def key_type(self) -> KeyType:
        """The key's type."""
        return KeyType.SECURITY_KEY_ECDSA_P256

    @property
    def fields(self) -> bytes:
        """Curve, point and application."""
        return string(Curve.P256.value.encode("ascii")) + string(self.point) + string(self.application.encode("ascii"))


HostKey: TypeAlias = Ed25519Key | ECDSAKey | RSAKey
"""A key that signs without a person: a host's."""
SecurityKey: TypeAlias = SecurityKeyEd25519 | SecurityKeyECDSA
PublicKey: TypeAlias = HostKey | SecurityKey
RevocableKey: TypeAlias = PublicKey | WeakRSAKey


def host_key(key: PublicKey) -> HostKey:
    """The key as that of a host.

    Raises:
        SSHRefused: ``SecurityKeyNotAllowed``.
    """
    if isinstance(key, SecurityKeyEd25519 | SecurityKeyECDSA):
        raise SSHRefused(
            SSHReason.SECURITY_KEY_NOT_ALLOWED,
            "a FIDO key cannot be a host key: sshd would need a touch for each login; use an Ed25519 key",
        )
    return key


@functools.lru_cache(maxsize=512)  # a request names a host key as key, as its proof's, and in its certificate
def parse_public_key(blob: bytes) -> PublicKey:
    """Parse a blob.

    Raises:
        SSHRefused: ``KeyTypeUnsupported``, ``KeyTooWeak``, ``KeyInvalid``, ``TrailingBytes``, ``TooLarge``,
            ``NotCanonical`` or ``Malformed``.
    """
    key = parse_revocable_key(blob)
    if isinstance(key, WeakRSAKey):
        raise _too_weak(key.modulus.bit_length(), MINIMUM_RSA_BITS)
    return key


def parse_revocable_key(blob: bytes) -> RevocableKey:
    """Parse the blob of a key that shall be revoked: RSA from 1024 bits counts, too.

    Raises:
        SSHRefused: see :func:`parse_public_key`.
    """
    if len(blob) > MAXIMUM_KEY_BYTES:
        raise SSHRefused(SSHReason.TOO_LARGE, f"a public key of {len(blob)} bytes, more than {MAXIMUM_KEY_BYTES}")
    reader = Reader(blob)
    key = read_key_fields(reader, read_key_type(reader))
    reader.end("the public key")
    return key


def read_key_type(reader: Reader) -> KeyType:
    """Read the name of a type.

    Raises:
        SSHRefused: ``KeyTypeUnsupported``, ``TooLarge`` or ``Malformed``.
    """
    return key_type_named(reader.string("the key's type", maximum=_MAXIMUM_TYPE_BYTES))


def key_type_named(name: bytes) -> KeyType:
    """The type of that name.

    Raises:
        SSHRefused: ``KeyTypeUnsupported``.
    """
    try:
        return KeyType(name.decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        raise SSHRefused(
            SSHReason.KEY_TYPE_UNSUPPORTED, f"keys of type {shown_name(name)} are not accepted; {_SUPPORTED}"
        ) from None


def shown_name(name: bytes) -> str:
    """A type's or algorithm's name for a message. Other bytes may be a secret, and are not quoted."""
    return name.decode("ascii") if _NAME.fullmatch(name) else "(not shown)"


def read_key_fields(reader: Reader, key_type: KeyType) -> RevocableKey:
    """Read what follows the type.

    Raises:
        SSHRefused: see :func:`parse_public_key`.
    """
    return _READERS[key_type](reader)


def _read_ed25519(reader: Reader) -> Ed25519Key:
    return Ed25519Key(_point(reader))


def _read_ecdsa(curve: Curve) -> Callable[[Reader], ECDSAKey]:
    return lambda reader: ECDSAKey(_curve(reader, curve), _point(reader))


def _read_rsa(reader: Reader) -> RSAKey | WeakRSAKey:
    exponent = reader.mpint("the RSA exponent", maximum_bits=_MAXIMUM_EXPONENT_BITS)
    modulus = reader.mpint("the RSA modulus", maximum_bits=MAXIMUM_RSA_BITS)
    return (RSAKey if modulus.bit_length() >= MINIMUM_RSA_BITS else WeakRSAKey)(exponent, modulus)


def _read_security_key_ed25519(reader: Reader) -> SecurityKeyEd25519:
    return SecurityKeyEd25519(_point(reader), _application(reader))


def _read_security_key_ecdsa(reader: Reader) -> SecurityKeyECDSA:
    _curve(reader, Curve.P256)
    return SecurityKeyECDSA(_point(reader), _application(reader))


_READERS: Final[Mapping[KeyType, Callable[[Reader], RevocableKey]]] = {
    KeyType.ED25519: _read_ed25519,
    KeyType.ECDSA_P256: _read_ecdsa(Curve.P256),
    KeyType.ECDSA_P384: _read_ecdsa(Curve.P384),
    KeyType.ECDSA_P521: _read_ecdsa(Curve.P521),
    KeyType.RSA: _read_rsa,
    KeyType.SECURITY_KEY_ED25519: _read_security_key_ed25519,
    KeyType.SECURITY_KEY_ECDSA_P256: _read_security_key_ecdsa,
}


def _point(reader: Reader) -> bytes:
    return reader.string("the public point", maximum=MAXIMUM_KEY_BYTES)


def _curve(reader: Reader, expected: Curve) -> Curve:
    if reader.string("the curve", maximum=_MAXIMUM_TYPE_BYTES) != expected.value.encode("ascii"):
        raise SSHRefused(SSHReason.KEY_INVALID, f"the curve is not {expected.value}, as the key's type says")
    return expected


def _application(reader: Reader) -> str:
    content = reader.string("the FIDO application", maximum=_MAXIMUM_APPLICATION_BYTES)
    return content.decode("ascii", "replace")  # which the key's constructor refuses


def _require_ed25519(point: bytes) -> None:
    if len(point) != _ED25519_BYTES:
        raise SSHRefused(SSHReason.KEY_INVALID, f"an Ed25519 key has {_ED25519_BYTES} bytes, not {len(point)}")


def _require_point(curve: Curve, point: bytes) -> None:
    try:
        if not point.startswith(b"\x04"):
            raise ValueError("compressed, or the point at infinity")
        ec.EllipticCurvePublicKey.from_encoded_point(curve.parameters, point)
    except ValueError:
        raise SSHRefused(SSHReason.KEY_INVALID, f"not an uncompressed point on {curve.value}") from None


def _require_application(application: str) -> None:
    if not (0 < len(application) <= _MAXIMUM_APPLICATION_BYTES and application.isascii() and application.isprintable()):
        raise SSHRefused(SSHReason.KEY_INVALID, "the FIDO application is not 1 to 255 printable ASCII characters")


def _require_rsa(exponent: int, modulus: int, *, minimum_bits: int) -> None:
    bits = modulus.bit_length()
    if bits < minimum_bits:
        raise _too_weak(bits, minimum_bits)
    if bits > MAXIMUM_RSA_BITS:
        raise SSHRefused(SSHReason.TOO_LARGE, f"an RSA key of {bits} bits, more than {MAXIMUM_RSA_BITS}")
    if exponent < 3 or exponent.bit_length() > _MAXIMUM_EXPONENT_BITS or exponent % 2 == 0 or modulus % 2 == 0:
        raise SSHRefused(SSHReason.KEY_INVALID, "RSA exponent and modulus must be odd, the exponent from 3 to 2^32")


def _too_weak(bits: int, minimum: int) -> SSHRefused:
    return SSHRefused(SSHReason.KEY_TOO_WEAK, f"an RSA key of {bits} bits, fewer than {minimum}; {_SUPPORTED}")
