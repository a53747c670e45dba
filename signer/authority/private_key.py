"""The CA's private key: the accepted kinds, reading ``tls.key``, and signing."""

from __future__ import annotations

from dataclasses import dataclass, field

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import load_der_private_key

from signer.authority.der import (
    DerError,
    Element,
    PemError,
    PemHeadersError,
    Tag,
    encode,
    integer,
    object_identifier,
    read_blocks,
    read_elements,
    read_single,
    sequence,
)
from signer.authority.errors import CertificateAuthorityUnavailable, CertificateAuthorityUnavailableReason

__all__ = [
    "AuthorityPrivateKey",
    "AuthorityPublicKey",
    "read_private_key",
    "require_supported_public_key",
    "sign",
    "signature_algorithm",
    "signs_slowly",
    "verify",
]

AuthorityPrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey
AuthorityPublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey

_Reason = CertificateAuthorityUnavailableReason
_SUPPORTED = "use RSA with 2048 to 4096 bits, or ECDSA on P-256, P-384 or P-521"
_KEY_LABELS = ("RSA PRIVATE KEY", "EC PRIVATE KEY", "PRIVATE KEY")
"""PKCS#1 and SEC1 (which Cluster API writes), and PKCS#8."""
_MAXIMUM_TEXT_BYTES = 8192
_MAXIMUM_KEY_BYTES = 2600
"""An RSA-4096 key takes 2,375 bytes as PKCS#8. A tenant writes the Secret, so the length is checked before the key is
decoded."""
_RSA_ENCRYPTION = object_identifier("1.2.840.113549.1.1.1")
_EC_PUBLIC_KEY = object_identifier("1.2.840.10045.2.1")
_TWO_PRIME, _MULTI_PRIME = integer(0), integer(1)
"""The versions of RSAPrivateKey (RFC 8017 A.1.2)."""
_RSA_NUMBERS = 8
"""Count of its numbers after the version: n, e, d, p, q, dP, dQ, qInv."""
_MINIMUM_RSA_BITS = 2048
_MAXIMUM_RSA_BITS = 4096
_MAXIMUM_PRIME_BITS = _MAXIMUM_RSA_BITS // 2
_MINIMUM_EXPONENT = 3
_MAXIMUM_EXPONENT = 2**31 - 1
"""The exponents that Go's crypto/rsa accepts, and so kubelets and API servers."""
_SLOW_RSA_BITS = 3072
_SIGN_BIT = 0x80
_PROBE = b"the CA's own check of its private key"
_RSA_SHA256 = sequence(object_identifier("1.2.840.113549.1.1.11"), encode(0x05, b""))
_ECDSA: dict[str, tuple[hashes.HashAlgorithm, bytes]] = {
    "secp256r1": (hashes.SHA256(), sequence(object_identifier("1.2.840.10045.4.3.2"))),
    "secp384r1": (hashes.SHA384(), sequence(object_identifier("1.2.840.10045.4.3.3"))),
    "secp521r1": (hashes.SHA512(), sequence(object_identifier("1.2.840.10045.4.3.4"))),
}
"""Hash and AlgorithmIdentifier (RFC 5758 3.2) by curve, the same pairs as in Go's crypto/x509."""


def read_private_key(text: bytes | None) -> AuthorityPrivateKey:
    """The private key in ``tls.key``: PKCS#1, PKCS#8 or SEC1, one unencrypted PEM block. ``text`` None: no such key.

    A test signature shows that private and public key match: 1 ms for RSA-2048, 2 ms for RSA-4096. It is not verified
    that an RSA key's factors are prime, which would take 100 times as long: composite factors weaken only that CA.

    Raises:
        CertificateAuthorityUnavailable: ``KeyMissing``, ``KeyEncrypted``, ``KeyInvalid``, ``KeyUnsupported`` or
            ``KeyWeak`` (each with the prefix ``CertificateAuthority``).
    """
    if text is None or not text.strip():
        raise CertificateAuthorityUnavailable(
            _Reason.KEY_MISSING,
            "tls.key is missing or empty, so nothing can be signed with this CA; put the private key of the first "
            "certificate in tls.crt there, or do not authorise signers that need it for this cluster",
        )
    try:
        blocks = read_blocks(text, maximum_bytes=_MAXIMUM_TEXT_BYTES, maximum_blocks=4)
    except PemHeadersError:
        raise _encrypted() from None
    except PemError as error:
        raise CertificateAuthorityUnavailable(_Reason.KEY_INVALID, f"tls.key {error}; {_one_block()}") from None
    label, content = blocks[0].label, blocks[0].content
    if label == "ENCRYPTED PRIVATE KEY":
        raise _encrypted()
    if len(blocks) != 1 or label not in _KEY_LABELS:
        raise CertificateAuthorityUnavailable(
            _Reason.KEY_INVALID, f"tls.key is not a private key and nothing else; {_one_block()}"
        )
    if len(content) > _MAXIMUM_KEY_BYTES:
        raise CertificateAuthorityUnavailable(
            _Reason.KEY_UNSUPPORTED, f"tls.key holds a key of more than {_MAXIMUM_RSA_BITS} bits; {_SUPPORTED}"
        )
    return _load(content)


def _load(content: bytes) -> AuthorityPrivateKey:
    # "from None" everywhere: a future library's error text might quote the key.
    try:
        _require_plausible(content)
        # Otherwise the library proves the primes with the GIL held: one tenant's key would delay all clusters by
        # seconds.
        key = load_der_private_key(content, password=None, unsafe_skip_rsa_key_validation=True)
        if not isinstance(key, AuthorityPrivateKey):
            raise _unsupported("tls.key")
        require_supported_public_key(key.public_key(), "tls.key")
        # Consistent numbers alone do not make a key: an RSA key's factors may be composite.
        verify(key.public_key(), sign(key, _PROBE), _PROBE)
        return key
    except CertificateAuthorityUnavailable:
        raise
    except UnsupportedAlgorithm:
        raise _unsupported("tls.key") from None
    except Exception:  # noqa: BLE001 - DerError, InvalidSignature, and ValueError, InternalError, UserWarning by chance
        raise _invalid() from None


def _require_plausible(content: bytes) -> None:
    """Refuse keys for which the library takes long, or which it does not check.

    Raises:
        DerError: not DER of a private key, or RSA numbers that do not make a key.
        CertificateAuthorityUnavailable: ``KeyEncrypted``, ``KeyUnsupported`` or ``KeyWeak``.
    """
    fields = read_elements(read_single(content, Tag.SEQUENCE).content)
    match tuple(element.tag for element in fields[:3]):
        case (Tag.INTEGER, Tag.INTEGER, *_):  # PKCS#1
            _require_sound_rsa(fields)
        case (Tag.INTEGER, Tag.OCTET_STRING, *_):  # SEC1 (RFC 5915 3)
            return
        case (Tag.INTEGER, Tag.SEQUENCE, Tag.OCTET_STRING):  # PKCS#8 (RFC 5958 2)
            identifier = read_elements(fields[1].content)[:1]
            if not identifier or identifier[0].tag != Tag.OBJECT_IDENTIFIER:
                raise DerError("no algorithm identifier")
            if identifier[0].encoded == _RSA_ENCRYPTION:
                _require_sound_rsa(read_elements(read_single(fields[2].content, Tag.SEQUENCE).content))
            elif identifier[0].encoded != _EC_PUBLIC_KEY:
                raise _unsupported("tls.key")
        case (Tag.SEQUENCE, Tag.OCTET_STRING):  # EncryptedPrivateKeyInfo under the wrong label
            raise _encrypted()
        case _:
            raise DerError("not a private key")


@dataclass(frozen=True, slots=True)
class _RSANumbers:
    """RSAPrivateKey without its version, in its order."""

    n: int
    e: int
    d: int = field(repr=False)
    p: int = field(repr=False)
    q: int = field(repr=False)
    d_p: int = field(repr=False)
    d_q: int = field(repr=False)
    q_inverse: int = field(repr=False)


def _require_sound_rsa(fields: tuple[Element, ...]) -> None:
    """All of a key's numbers are consistent (RFC 8017 3.2); p and q need not be prime. Takes microseconds.

    Odd factors and reduced exponents also limit the library's computing time.

    Raises:
        DerError: not RSAPrivateKey, or numbers that do not fit.
        CertificateAuthorityUnavailable: ``KeyUnsupported`` (multi-prime, too large) or ``KeyWeak``.
    """
    version = fields[0].encoded if fields else b""
    if version == _MULTI_PRIME:
        raise _unsupported("tls.key")
    if version != _TWO_PRIME or len(fields) != 1 + _RSA_NUMBERS:
        raise DerError("not an RSAPrivateKey")
    key = _RSANumbers(*(_natural(element) for element in fields[1:]))
    if max(key.p.bit_length(), key.q.bit_length()) > _MAXIMUM_PRIME_BITS:
        raise _unsupported("tls.key")
    _require_supported_rsa(key.n.bit_length(), key.e, "tls.key")
    if key.p % 2 == 0 or key.q % 2 == 0 or min(key.p, key.q) == 1 or key.p == key.q or key.n != key.p * key.q:
        raise DerError("the modulus is not the product of two odd primes")
    if key.d >= key.n or key.d * key.e % (key.p - 1) != 1 or key.d * key.e % (key.q - 1) != 1:
        raise DerError("the exponents do not belong together")
    if key.d_p != key.d % (key.p - 1) or key.d_q != key.d % (key.q - 1):
        raise DerError("the CRT exponents do not belong to the private one")
    if key.q_inverse >= key.p or key.q_inverse * key.q % key.p != 1:
        raise DerError("the CRT coefficient does not belong to the primes")


def _natural(element: Element) -> int:
    """An INTEGER of at least 0 in its shortest form (X.690 8.3.2). The limit of the key's length applies.

    Raises:
        DerError: it is not.
    """
    content = element.content
    if element.tag != Tag.INTEGER or not content or content[0] >= _SIGN_BIT:
        raise DerError("not an INTEGER of at least 0")
    if len(content) > 1 and content[0] == 0 and content[1] < _SIGN_BIT:
        raise DerError("an INTEGER with leading zeros")
    return int.from_bytes(content, "big")


def require_supported_public_key(public_key: object, secret_key: str) -> AuthorityPublicKey:
    """The CA's public key, if its kind and strength are accepted. ``secret_key`` names the Secret's key in messages.

    Raises:
        CertificateAuthorityUnavailable: ``CertificateAuthorityKeyUnsupported`` or ``CertificateAuthorityKeyWeak``.
    """
    if isinstance(public_key, rsa.RSAPublicKey):
        _require_supported_rsa(public_key.key_size, public_key.public_numbers().e, secret_key)
        return public_key
    if isinstance(public_key, ec.EllipticCurvePublicKey) and public_key.curve.name in _ECDSA:
        return public_key
    raise _unsupported(secret_key)


def _require_supported_rsa(bits: int, exponent: int, secret_key: str) -> None:
    if bits < _MINIMUM_RSA_BITS:
        raise CertificateAuthorityUnavailable(
            _Reason.KEY_WEAK, f"{secret_key} holds an RSA key of {bits} bits; {_SUPPORTED}"
        )
    if bits > _MAXIMUM_RSA_BITS or not _MINIMUM_EXPONENT <= exponent <= _MAXIMUM_EXPONENT or exponent % 2 == 0:
        raise _unsupported(secret_key)


def signature_algorithm(key: AuthorityPrivateKey) -> bytes:
    """DER of the AlgorithmIdentifier that `sign` uses with this key."""
    return _RSA_SHA256 if isinstance(key, rsa.RSAPrivateKey) else _ECDSA[key.curve.name][1]


def sign(key: AuthorityPrivateKey, data: bytes) -> bytes:
    """Sign with PKCS#1 v1.5 and SHA-256, or with ECDSA and the hash of the curve's strength. Releases the GIL.

    Signing the same data twice gives the same bytes, even with ECDSA (RFC 6979) if OpenSSL supports that.
    """
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    return key.sign(data, _ecdsa(_ECDSA[key.curve.name][0]))


def _ecdsa(algorithm: hashes.HashAlgorithm) -> ec.ECDSA:
    try:
        return ec.ECDSA(algorithm, deterministic_signing=True)
    except UnsupportedAlgorithm:
        return ec.ECDSA(algorithm)  # OpenSSL before 3.2: a repeated signature differs, and the caller plans anew


def verify(public_key: AuthorityPublicKey, signature: bytes, data: bytes) -> None:
    """Verify a signature of `sign`.

    Raises:
        cryptography.exceptions.InvalidSignature: it does not verify.
    """
    if isinstance(public_key, rsa.RSAPublicKey):
        public_key.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
    else:
        public_key.verify(signature, data, ec.ECDSA(_ECDSA[public_key.curve.name][0]))


def signs_slowly(key: AuthorityPrivateKey) -> bool:
    """Whether issuing with this key takes more than 0.5 ms, so that an event loop should use a thread.

    Signature and verification take: P-256 0.1 ms, RSA-2048 0.3 ms; P-384 0.6 ms, RSA-3072 0.8 ms, RSA-4096 1.5 ms;
    three times as long on older processors.
    """
    if isinstance(key, rsa.RSAPrivateKey):
        return key.key_size >= _SLOW_RSA_BITS
    return key.curve.name != "secp256r1"


def _one_block() -> str:
    return "put exactly one unencrypted PEM block there (RSA PRIVATE KEY, EC PRIVATE KEY or PRIVATE KEY)"


def _invalid() -> CertificateAuthorityUnavailable:
    return CertificateAuthorityUnavailable(
        _Reason.KEY_INVALID, f"tls.key is damaged or not a private key; {_one_block()}"
    )


def _encrypted() -> CertificateAuthorityUnavailable:
    return CertificateAuthorityUnavailable(
        _Reason.KEY_ENCRYPTED, f"tls.key is protected by a passphrase; {_one_block()}"
    )


def _unsupported(secret_key: str) -> CertificateAuthorityUnavailable:
    return CertificateAuthorityUnavailable(
        _Reason.KEY_UNSUPPORTED,
        f"{secret_key} holds a kind or size of key that kubeadm and Cluster API do not use for a CA, such as Ed25519; "
        f"{_SUPPORTED}",
    )
