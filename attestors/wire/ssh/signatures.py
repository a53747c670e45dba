"""Signatures: of certificates, and inside SSHSIG.

===============  ==============================================================================
key              algorithm
===============  ==============================================================================
Ed25519          ``ssh-ed25519`` (RFC 8709)
ECDSA            ``ecdsa-sha2-nistp256``, ``384``, ``521`` with SHA-256, 384, 512 (RFC 5656)
RSA              ``rsa-sha2-512``, made here, and ``rsa-sha2-256`` (RFC 8332); never ``ssh-rsa``, which is SHA-1
FIDO             the key's type (PROTOCOL.u2f); verified here, never made
===============  ==============================================================================
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.wire.ssh.encoding import Reader, mpint, string, uint32
from attestors.wire.ssh.errors import SSHReason, SSHRefused, malformed
from attestors.wire.ssh.keys import (
    MAXIMUM_RSA_BITS,
    Curve,
    ECDSAKey,
    Ed25519Key,
    HostKey,
    KeyType,
    PublicKey,
    RSAKey,
    SecurityKey,
    SecurityKeyEd25519,
    shown_name,
)

PrivateKey: TypeAlias = Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

MAXIMUM_SIGNATURE_BYTES: Final = MAXIMUM_RSA_BITS // 8 + 128
_MAXIMUM_NAME_BYTES: Final = 64
_ED25519_BYTES: Final = 64
_SCALAR_BITS: Final = 521
_USER_PRESENT: Final = 0x01
"""Flag of CTAP: a person touched the token."""


class SignatureAlgorithm(enum.Enum):
    """An algorithm, by its name on the wire."""

    ED25519 = "ssh-ed25519"
    ECDSA_P256 = "ecdsa-sha2-nistp256"
    ECDSA_P384 = "ecdsa-sha2-nistp384"
    ECDSA_P521 = "ecdsa-sha2-nistp521"
    RSA_SHA256 = "rsa-sha2-256"
    RSA_SHA512 = "rsa-sha2-512"
    SECURITY_KEY_ED25519 = "sk-ssh-ed25519@openssh.com"
    SECURITY_KEY_ECDSA_P256 = "sk-ecdsa-sha2-nistp256@openssh.com"


_CURVE_HASHES: Final[Mapping[Curve, hashes.HashAlgorithm]] = {
    Curve.P256: hashes.SHA256(),
    Curve.P384: hashes.SHA384(),
    Curve.P521: hashes.SHA512(),
}
_RSA_HASHES: Final[Mapping[SignatureAlgorithm, hashes.HashAlgorithm]] = {
    SignatureAlgorithm.RSA_SHA256: hashes.SHA256(),
    SignatureAlgorithm.RSA_SHA512: hashes.SHA512(),
}
_ALGORITHMS: Final = {
    one: frozenset(_RSA_HASHES) if one is KeyType.RSA else frozenset({SignatureAlgorithm(one.value)}) for one in KeyType
}


@dataclass(frozen=True, slots=True)
class Touch:
    """What a FIDO token adds to a signature."""

    flags: int
    counter: int


@dataclass(frozen=True, slots=True)
class NoTouch:
    """The key is not on a FIDO token."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A signature, which nothing has verified yet."""

    algorithm: SignatureAlgorithm
    value: bytes = field(repr=False)
    """The inner string: 64 bytes of Ed25519, two numbers of ECDSA, or one of RSA."""
    touch: Touch | NoTouch = NoTouch()

    @property
    def blob(self) -> bytes:
        """The encoded signature."""
        encoded = string(self.algorithm.value.encode("ascii")) + string(self.value)
        if isinstance(self.touch, Touch):
            encoded += bytes([self.touch.flags]) + uint32(self.touch.counter)
        return encoded


def parse_signature(blob: bytes) -> Signature:
    """Parse a signature.

    Raises:
        SSHRefused: ``SignatureAlgorithmUnsupported``, ``TrailingBytes``, ``TooLarge`` or ``Malformed``.
    """
    reader = Reader(blob)
    name = reader.string("the signature's algorithm", maximum=_MAXIMUM_NAME_BYTES)
    try:
        algorithm = SignatureAlgorithm(name.decode("ascii"))
    except (UnicodeDecodeError, ValueError):
        raise SSHRefused(
            SSHReason.SIGNATURE_ALGORITHM_UNSUPPORTED, f"signatures with {shown_name(name)} are not accepted"
        ) from None
    value = reader.string("the signature", maximum=MAXIMUM_SIGNATURE_BYTES)
    touch: Touch | NoTouch = NoTouch()
    if algorithm in (SignatureAlgorithm.SECURITY_KEY_ED25519, SignatureAlgorithm.SECURITY_KEY_ECDSA_P256):
        touch = Touch(reader.uint8("the FIDO flags"), reader.uint32("the FIDO counter"))
    reader.end("the signature")
    return Signature(algorithm, value, touch)


def public_key_of(private_key: PrivateKey) -> HostKey:
    """The public half.

    Raises:
        SSHRefused: ``KeyTypeUnsupported`` (another curve) or ``KeyTooWeak``.
    """
    if isinstance(private_key, Ed25519PrivateKey):
        return Ed25519Key(private_key.public_key().public_bytes_raw())
    if isinstance(private_key, rsa.RSAPrivateKey):
        numbers = private_key.public_key().public_numbers()
        return RSAKey(numbers.e, numbers.n)
    return ECDSAKey(
        _curve_of(private_key),
        private_key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint),
    )


def sign(private_key: PrivateKey, data: bytes) -> Signature:
    """Sign.

    Signing the same data twice gives the same bytes, also with ECDSA (RFC 6979) if OpenSSL, from 3.2 on, supports that.

    Raises:
        SSHRefused: ``KeyTypeUnsupported``: another curve.
    """
    if isinstance(private_key, Ed25519PrivateKey):
        return Signature(SignatureAlgorithm.ED25519, private_key.sign(data))
    if isinstance(private_key, rsa.RSAPrivateKey):
        return Signature(SignatureAlgorithm.RSA_SHA512, private_key.sign(data, padding.PKCS1v15(), hashes.SHA512()))
    curve = _curve_of(private_key)
    r, s = decode_dss_signature(private_key.sign(data, _ecdsa(_CURVE_HASHES[curve])))
    return Signature(SignatureAlgorithm(curve.key_type.value), mpint(r) + mpint(s))


def verify(key: PublicKey, signature: Signature, data: bytes) -> None:
    """Verify a signature. That of a FIDO key counts only if a person touched the token.

    Raises:
        SSHRefused: ``BadSignature``, ``UserNotPresent``, or ``SignatureAlgorithmUnsupported``: an algorithm that is
            not the key's.
    """
    if signature.algorithm not in _ALGORITHMS[key.key_type]:
        raise SSHRefused(
            SSHReason.SIGNATURE_ALGORITHM_UNSUPPORTED,
            f"a key of type {key.key_type.value} does not sign with {signature.algorithm.value}",
        )
    try:
        _verify(key, signature, data)
    except InvalidSignature:
        raise SSHRefused(SSHReason.BAD_SIGNATURE, "the signature does not verify") from None


def _verify(key: PublicKey, signature: Signature, data: bytes) -> None:
    if isinstance(key, Ed25519Key):
        Ed25519PublicKey.from_public_bytes(key.point).verify(signature.value, data)
    elif isinstance(key, ECDSAKey):
        _verify_ecdsa(key.curve, key.point, signature.value, data)
    elif isinstance(key, RSAKey):
        public = rsa.RSAPublicNumbers(key.exponent, key.modulus).public_key()
        public.verify(signature.value, data, padding.PKCS1v15(), _RSA_HASHES[signature.algorithm])
    else:
        _verify_touched(key, signature, data)


def _verify_touched(key: SecurityKey, signature: Signature, data: bytes) -> None:
    """PROTOCOL.u2f, "SSH U2F signatures"."""
    if not isinstance(signature.touch, Touch):
        raise malformed("the signature of a FIDO key lacks flags and counter")
    if not signature.touch.flags & _USER_PRESENT:
        raise SSHRefused(SSHReason.USER_NOT_PRESENT, "the FIDO token signed without a touch")
    signed = b"".join(
        (
            hashlib.sha256(key.application.encode("ascii")).digest(),
            bytes([signature.touch.flags]),
            uint32(signature.touch.counter),
            hashlib.sha256(data).digest(),
        )
    )
    if isinstance(key, SecurityKeyEd25519):
        Ed25519PublicKey.from_public_bytes(key.point).verify(signature.value, signed)
    else:
        _verify_ecdsa(Curve.P256, key.point, signature.value, signed)


def _verify_ecdsa(curve: Curve, point: bytes, value: bytes, data: bytes) -> None:
    reader = Reader(value)
    r = reader.mpint("the number r", maximum_bits=_SCALAR_BITS)
    s = reader.mpint("the number s", maximum_bits=_SCALAR_BITS)
    reader.end("the numbers of the signature")
    key = ec.EllipticCurvePublicKey.from_encoded_point(curve.parameters, point)
    key.verify(encode_dss_signature(r, s), data, ec.ECDSA(_CURVE_HASHES[curve]))


def _curve_of(private_key: ec.EllipticCurvePrivateKey) -> Curve:
    for curve in Curve:
        if curve.parameters.name == private_key.curve.name:
            return curve
    raise SSHRefused(SSHReason.KEY_TYPE_UNSUPPORTED, "the ECDSA key is not on P-256, P-384 or P-521; use Ed25519")


def _ecdsa(algorithm: hashes.HashAlgorithm) -> ec.ECDSA:
    try:
        return ec.ECDSA(algorithm, deterministic_signing=True)
    except UnsupportedAlgorithm:
        return ec.ECDSA(algorithm)  # OpenSSL before 3.2: a repeated signature differs
