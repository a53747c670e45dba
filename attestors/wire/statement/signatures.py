"""Which signatures count: those of the kinds of keys that CAs and controllers have, one algorithm for each.

=====================  ==============================================================================
key                    algorithm
=====================  ==============================================================================
RSA, 2048 to 4096      RSASSA-PKCS1-v1_5 with SHA-256 (RFC 8017 section 8.2)
ECDSA P-256, 384, 521  ECDSA with SHA-256, SHA-384, SHA-512 (RFC 5758 section 3.2)
Ed25519                Ed25519 (RFC 8032), for controllers only
=====================  ==============================================================================

These are the algorithms with which the same CAs sign certificates, so no key has a second kind of use that its holder
must support. PSS would not make forgery harder here.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

AuthorityKey: TypeAlias = rsa.RSAPublicKey | ec.EllipticCurvePublicKey
VerificationKey: TypeAlias = AuthorityKey | Ed25519PublicKey

_RSA_BITS: Final = range(2048, 4097)
_LARGEST_EXPONENT: Final = 2**31 - 1
"""Go's bound. A larger exponent would make verification slow."""
_CURVES: Final[dict[str, hashes.HashAlgorithm]] = {
    "secp256r1": hashes.SHA256(),
    "secp384r1": hashes.SHA384(),
    "secp521r1": hashes.SHA512(),
}


class UnsupportedKey(ValueError):
    """A CA's key is of another kind or size."""


def authority_key(key: object) -> AuthorityKey:
    """A CA's key, if its kind is accepted.

    Raises:
        UnsupportedKey: it is not.
    """
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size in _RSA_BITS and key.public_numbers().e <= _LARGEST_EXPONENT:
            return key
    elif isinstance(key, ec.EllipticCurvePublicKey) and key.curve.name in _CURVES:
        return key
    raise UnsupportedKey("the key is not RSA with 2048 to 4096 bits, nor ECDSA on P-256, P-384 or P-521")


def verify(key: VerificationKey, signature: bytes, data: bytes) -> None:
    """Verify a signature.

    Raises:
        InvalidSignature: it does not verify.
    """
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
        elif isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, data, ec.ECDSA(_CURVES[key.curve.name]))
        else:
            key.verify(signature, data)
    except UnsupportedAlgorithm as error:
        raise InvalidSignature from error
