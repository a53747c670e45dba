"""TPM2_MakeCredential in software: encrypts a secret for one TPM, which can read it only if it holds a given object.

TPM 2.0 Library, Part 1: section 24 (credential protection), 11.4.10.2 (KDFa), 11.4.10.3 (KDFe), annexes B.4 (OAEP) and
C.6.1 (ECDH); TPM2B_ID_OBJECT and TPM2B_ENCRYPTED_SECRET are in Part 2, 12.4.3 and 11.4.3. The hash algorithm is always
the endorsement key's name algorithm, whatever the object's is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

# The TPM uses CFB; the data is one short secret under its own key, followed by an HMAC.
from cryptography.hazmat.decrepit.ciphers.modes import CFB
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.hmac import HMAC
from cryptography.hazmat.primitives.kdf.concatkdf import ConcatKDFHash
from cryptography.hazmat.primitives.kdf.kbkdf import KBKDFHMAC, CounterLocation, Mode

from attestors.tpm.attestation_key import AttestationKey, EndorsementKey
from attestors.tpm.constants import Curve, HashAlgorithm
from attestors.tpm.reader import sized
from attestors.tpm.structures import CRYPTOGRAPHY_CURVES, CRYPTOGRAPHY_HASHES, ECCKey, RSAKey

RandomBytes = Callable[[int], bytes]
"""Returns that many unpredictable bytes, such as ``secrets.token_bytes``."""

_IDENTITY: Final = b"IDENTITY"
_STORAGE: Final = b"STORAGE"
_INTEGRITY: Final = b"INTEGRITY"
_COUNTER_BYTES: Final = 4
_EXTRA_RANDOM_BYTES: Final = 8
"""Make a scalar modulo the order practically uniform (FIPS 186-4, B.4.1)."""
_ORDERS: Final[Mapping[Curve, int]] = MappingProxyType(
    {
        Curve.NIST_P256: 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551,
        Curve.NIST_P384: int(
            "ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973", 16
        ),
    }
)
"""Orders of the curves of endorsement keys (SP 800-186, 3.2.1)."""


class InvalidSecret(ValueError):
    """The secret is empty, or larger than the digest of the endorsement key's name algorithm."""


@dataclass(frozen=True, slots=True)
class Credential:
    """Input of TPM2_ActivateCredential. Public: only the TPM with the endorsement key can decrypt it."""

    id_object: bytes
    """TPM2B_ID_OBJECT: the HMAC and the encrypted secret."""
    encrypted_secret: bytes
    """TPM2B_ENCRYPTED_SECRET: the seed of both keys, encrypted for the endorsement key."""


def make_credential(
    endorsement_key: EndorsementKey, attestation_key: AttestationKey, secret: bytes, *, random_bytes: RandomBytes
) -> Credential:
    """Encrypt ``secret`` so that only a TPM that holds both keys can read it.

    It takes checked keys and not a bare name: a credential for a key that signs arbitrary data would prove nothing
    about what that key signs.

    Raises:
        InvalidSecret: ``secret`` is empty or too large for this endorsement key.
    """
    algorithm = endorsement_key.public.name_algorithm
    if not 0 < len(secret) <= algorithm.digest_bytes:
        raise InvalidSecret(f"a secret for this endorsement key has 1 to {algorithm.digest_bytes} bytes")
    seed, encrypted_seed = _make_seed(endorsement_key, random_bytes)
    name = attestation_key.name
    storage_key = _kdfa(algorithm, seed, _STORAGE, name, endorsement_key.template.symmetric_key_bits // 8)
    encryptor = Cipher(AES(storage_key), CFB(bytes(AES.block_size // 8))).encryptor()
    identity = encryptor.update(sized(secret)) + encryptor.finalize()
    integrity = HMAC(_kdfa(algorithm, seed, _INTEGRITY, b"", algorithm.digest_bytes), CRYPTOGRAPHY_HASHES[algorithm])
    integrity.update(identity + name)
    return Credential(sized(sized(integrity.finalize()) + identity), sized(encrypted_seed))


def _make_seed(endorsement_key: EndorsementKey, random_bytes: RandomBytes) -> tuple[bytes, bytes]:
    """A seed, and the content of TPM2B_ENCRYPTED_SECRET from which the TPM recovers it."""
    algorithm, public = endorsement_key.public.name_algorithm, endorsement_key.public.key
    if isinstance(public, RSAKey):
        return _rsa_seed(public, algorithm, random_bytes)
    return _ecc_seed(public, algorithm, random_bytes)


def _rsa_seed(public: RSAKey, algorithm: HashAlgorithm, random_bytes: RandomBytes) -> tuple[bytes, bytes]:
    seed = random_bytes(algorithm.digest_bytes)
    digest = CRYPTOGRAPHY_HASHES[algorithm]
    # The OAEP label ends with a zero byte (Part 1, B.4). The key derivation functions add theirs themselves.
    oaep = padding.OAEP(padding.MGF1(digest), digest, _IDENTITY + b"\0")
    return seed, public.public_key().encrypt(seed, oaep)


def _ecc_seed(public: ECCKey, algorithm: HashAlgorithm, random_bytes: RandomBytes) -> tuple[bytes, bytes]:
    size = public.curve.coordinate_bytes
    scalar = int.from_bytes(random_bytes(size + _EXTRA_RANDOM_BYTES), "big") % (_ORDERS[public.curve] - 1) + 1
    ephemeral = ec.derive_private_key(scalar, CRYPTOGRAPHY_CURVES[public.curve])
    point = ephemeral.public_key().public_numbers()
    x, y = point.x.to_bytes(size, "big"), point.y.to_bytes(size, "big")
    # The ephemeral point is padded to the curve's size (Part 1, C.8); the TPM uses its own as stored and shown.
    context = _IDENTITY + b"\0" + x + public.x
    derivation = ConcatKDFHash(CRYPTOGRAPHY_HASHES[algorithm], algorithm.digest_bytes, context)
    return derivation.derive(ephemeral.exchange(ec.ECDH(), public.public_key())), sized(x) + sized(y)


def _kdfa(algorithm: HashAlgorithm, key: bytes, label: bytes, context: bytes, size: int) -> bytes:
    return KBKDFHMAC(
        algorithm=CRYPTOGRAPHY_HASHES[algorithm],
        mode=Mode.CounterMode,
        length=size,
        rlen=_COUNTER_BYTES,
        llen=_COUNTER_BYTES,
        location=CounterLocation.BeforeFixed,
        label=label,
        context=context,
        fixed=None,
    ).derive(key)
