"""The CA's private key: which kinds are accepted, how ``tls.key`` is read, and how each kind signs."""

from __future__ import annotations

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import load_der_private_key

from signer.authority.der import DerError, Tag, encode, object_identifier, read_elements, read_single, sequence
from signer.authority.errors import CertificateAuthorityUnavailable, CertificateAuthorityUnavailableReason
from signer.authority.pem import PemError, PemHeadersError, read_blocks

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
"""PKCS#1 and SEC1 (what Cluster API writes), PKCS#8."""
_MAXIMUM_TEXT_BYTES = 8192
_MAXIMUM_KEY_BYTES = 2600
"""An RSA-4096 key takes 2,375 bytes as PKCS#8. Checking the primes of an RSA-8192 key takes seconds, so the length is
bounded before the library sees it: the Secret is the tenant's."""
_PRIMES = slice(4, 6)
"""Where RSAPrivateKey (RFC 8017 A.1.2) has its two primes."""
_MAXIMUM_PRIME_BYTES = 257
"""Half of 4096 bits, and a sign octet."""
_MINIMUM_RSA_BITS = 2048
_MAXIMUM_RSA_BITS = 4096
_SLOW_RSA_BITS = 3072
_RSA_SHA256 = sequence(object_identifier("1.2.840.113549.1.1.11"), encode(0x05, b""))
_ECDSA: dict[str, tuple[hashes.HashAlgorithm, bytes]] = {
    "secp256r1": (hashes.SHA256(), sequence(object_identifier("1.2.840.10045.4.3.2"))),
    "secp384r1": (hashes.SHA384(), sequence(object_identifier("1.2.840.10045.4.3.3"))),
    "secp521r1": (hashes.SHA512(), sequence(object_identifier("1.2.840.10045.4.3.4"))),
}
"""Hash and AlgorithmIdentifier (RFC 5758 3.2) by curve, the pairs that Go's crypto/x509 signs with."""


def read_private_key(text: bytes | None) -> AuthorityPrivateKey:
    """The private key in ``tls.key``: PKCS#1, PKCS#8 or SEC1, one unencrypted PEM block (None: the key is absent).

    Checking an RSA key's primes takes long: about 35 ms for 2048 bits, 200 ms for 4096. Read once and keep.

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
    key = _load(content)
    if not isinstance(key, AuthorityPrivateKey):
        raise _unsupported("tls.key")
    require_supported_public_key(key.public_key(), "tls.key")
    return key


def _load(content: bytes) -> object:
    # "from None" throughout: the library's own text might one day quote what it read.
    try:
        _refuse_slow_primes(content)
        return load_der_private_key(content, password=None)
    except UnsupportedAlgorithm:
        raise _unsupported("tls.key") from None
    except TypeError:
        raise _encrypted() from None
    except (DerError, ValueError, UserWarning):
        raise CertificateAuthorityUnavailable(
            _Reason.KEY_INVALID, f"tls.key is damaged or not a private key; {_one_block()}"
        ) from None


def _refuse_slow_primes(content: bytes) -> None:
    """The library proves both primes before anything else, whatever the modulus: seconds of CPU for large ones.

    Raises:
        DerError: not DER of a key.
        CertificateAuthorityUnavailable: ``KeyUnsupported``.
    """
    fields = read_elements(read_single(content, Tag.SEQUENCE).content)
    if len(fields) > 2 and fields[1].tag == Tag.SEQUENCE and fields[2].tag == Tag.OCTET_STRING:
        inner = read_elements(fields[2].content)  # PKCS#8 around it
        fields = read_elements(inner[0].content) if inner and inner[0].tag == Tag.SEQUENCE else ()
    numbers = fields[: _PRIMES.stop]
    if len(numbers) < _PRIMES.stop or any(number.tag != Tag.INTEGER for number in numbers):
        return  # no RSA key
    if any(len(prime.content) > _MAXIMUM_PRIME_BYTES for prime in numbers[_PRIMES]):
        raise _unsupported("tls.key")


def require_supported_public_key(public_key: object, secret_key: str) -> AuthorityPublicKey:
    """The CA's public key, if its kind and strength are accepted. ``secret_key`` names the Secret's key in messages.

    Raises:
        CertificateAuthorityUnavailable: ``CertificateAuthorityKeyUnsupported`` or ``CertificateAuthorityKeyWeak``.
    """
    if isinstance(public_key, rsa.RSAPublicKey):
        if public_key.key_size < _MINIMUM_RSA_BITS:
            raise CertificateAuthorityUnavailable(
                _Reason.KEY_WEAK, f"{secret_key} holds an RSA key of {public_key.key_size} bits; {_SUPPORTED}"
            )
        if public_key.key_size <= _MAXIMUM_RSA_BITS:
            return public_key
    elif isinstance(public_key, ec.EllipticCurvePublicKey) and public_key.curve.name in _ECDSA:
        return public_key
    raise _unsupported(secret_key)


def signature_algorithm(key: AuthorityPrivateKey) -> bytes:
    """DER of the AlgorithmIdentifier that `sign` uses with this key."""
    return _RSA_SHA256 if isinstance(key, rsa.RSAPrivateKey) else _ECDSA[key.curve.name][1]


def sign(key: AuthorityPrivateKey, data: bytes) -> bytes:
    """Sign with PKCS#1 v1.5 and SHA-256, or with ECDSA and the hash of the curve's strength. Releases the GIL."""
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(data, padding.PKCS1v15(), hashes.SHA256())
    return key.sign(data, ec.ECDSA(_ECDSA[key.curve.name][0]))


def verify(public_key: AuthorityPublicKey, signature: bytes, data: bytes) -> None:
    """Verify what `sign` made.

    Raises:
        cryptography.exceptions.InvalidSignature: it does not verify.
    """
    if isinstance(public_key, rsa.RSAPublicKey):
        public_key.verify(signature, data, padding.PKCS1v15(), hashes.SHA256())
    else:
        public_key.verify(signature, data, ec.ECDSA(_ECDSA[public_key.curve.name][0]))


def signs_slowly(key: AuthorityPrivateKey) -> bool:
    """Whether issuing with this key takes over half a millisecond, so that an event loop had better use a thread.

    Signature and verification: P-256 0.1 ms, RSA-2048 0.3 ms; P-384 0.6 ms, RSA-3072 0.8 ms, RSA-4096 1.5 ms, and three
    times that on older processors.
    """
    if isinstance(key, rsa.RSAPrivateKey):
        return key.key_size >= _SLOW_RSA_BITS
    return key.curve.name != "secp256r1"


def _one_block() -> str:
    return "put exactly one unencrypted PEM block there (RSA PRIVATE KEY, EC PRIVATE KEY or PRIVATE KEY)"


def _encrypted() -> CertificateAuthorityUnavailable:
    return CertificateAuthorityUnavailable(
        _Reason.KEY_ENCRYPTED, f"tls.key is protected by a passphrase; {_one_block()}"
    )


def _unsupported(secret_key: str) -> CertificateAuthorityUnavailable:
    return CertificateAuthorityUnavailable(
        _Reason.KEY_UNSUPPORTED,
        f"{secret_key} holds a kind or size of key that kubeadm and Cluster API do not use for a CA "
        f"(Ed25519, for example, is none of theirs); {_SUPPORTED}",
    )
