"""A TPM's statements made by hand, with private keys that no TPM holds: well formed, wrong wherever a test wants."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from attestors.tpm import constants as tpm
from attestors.tpm.attestation_key import ENDORSEMENT_TEMPLATES, EndorsementTemplate
from attestors.tpm.constants import Curve, HashAlgorithm, ObjectAttribute, SignatureAlgorithm
from attestors.tpm.quote import ANY_PCR_VALUES, Nonce, PCRPolicy, VerifiedQuote, verify_quote
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.selection import PCR, PCRSelection
from attestors.tpm.statement import ClockInfo, QuoteStatement
from attestors.tpm.structures import (
    CRYPTOGRAPHY_CURVES,
    CRYPTOGRAPHY_HASHES,
    ECCKey,
    ECDSASignature,
    PublicArea,
    RSAKey,
    RSASignature,
    Scheme,
    Signature,
    decode_public,
)

FIXTURES: Final = Path(__file__).parents[4] / "fixtures"
PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey

AK_ATTRIBUTES: Final = tpm.ATTESTATION_KEY_REQUIRED | ObjectAttribute.USER_WITH_AUTH
RSASSA: Final = Scheme(SignatureAlgorithm.RSASSA, HashAlgorithm.SHA256)
RSAPSS: Final = Scheme(SignatureAlgorithm.RSAPSS, HashAlgorithm.SHA256)
ECDSA: Final = Scheme(SignatureAlgorithm.ECDSA, HashAlgorithm.SHA256)
SELECTION: Final = PCRSelection.parse("sha256:0,1,7")
EXTRA_DATA: Final = bytes(range(32))
SHORT: Final = 379
"""Number of a key on P-256 whose x begins with a zero byte."""
CLOCK: Final = ClockInfo(clock=123_456, reset_count=7, restart_count=1, safe=True)


@functools.cache
def recording() -> Any:
    """What a software TPM said; see ``fixtures/tpm/README.md``."""
    return json.loads((FIXTURES / "tpm" / "swtpm.json").read_text("utf-8"))


@functools.cache
def rsa_key(name: str = "rsa-2048") -> rsa.RSAPrivateKey:
    """A key of ``fixtures/keys``."""
    key = load_pem_private_key((FIXTURES / "keys" / f"{name}.pem").read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


@functools.cache
def ecc_key(curve: Curve = Curve.NIST_P256, number: int = 1234567) -> ec.EllipticCurvePrivateKey:
    """A key on this curve; another one for another number."""
    return ec.derive_private_key(number, CRYPTOGRAPHY_CURVES[curve])


def public_key_of(key: PrivateKey) -> RSAKey | ECCKey:
    """The public half as a TPM would write it."""
    if isinstance(key, rsa.RSAPrivateKey):
        modulus = key.public_key().public_numbers().n
        return RSAKey(key.key_size, 0, modulus.to_bytes(key.key_size // 8, "big"))
    curve = next(curve for curve, parameters in CRYPTOGRAPHY_CURVES.items() if parameters.name == key.curve.name)
    point = key.public_key().public_numbers()
    return ECCKey(curve, *(number.to_bytes(curve.coordinate_bytes, "big") for number in (point.x, point.y)))


def attestation_area(key: PrivateKey | None = None, scheme: Scheme | None = RSASSA, **changes: Any) -> PublicArea:
    """The public area of a good attestation key, or of one with ``changes``."""
    area = PublicArea(HashAlgorithm.SHA256, AK_ATTRIBUTES, b"", None, scheme, public_key_of(key or rsa_key()))
    return replace(area, **changes)


def recorded_endorsement_area(title: str) -> PublicArea:
    """The endorsement key of the software TPM."""
    recorded = {credential["template"]: credential for credential in recording()["credentials"]}
    return decode_public(bytes.fromhex(recorded[title]["endorsementKey"]))


def endorsement_template(title: str) -> EndorsementTemplate:
    return next(template for template in ENDORSEMENT_TEMPLATES if template.title == title)


def endorsement_private_key(title: str) -> PrivateKey:
    """A private key that fits a template; there is none of 3072 bits."""
    kind = endorsement_template(title).kind
    return ecc_key(kind, 7654321) if isinstance(kind, Curve) else rsa_key(f"rsa-{kind}")


def endorsement_area(title: str = "L-1", **changes: Any) -> PublicArea:
    """The public area of an endorsement key of that template, or of one with ``changes``."""
    template = endorsement_template(title)
    if title == "H-6":
        return replace(recorded_endorsement_area(title), **changes)
    area = PublicArea(
        template.name_algorithm,
        template.attributes,
        template.authorization_policy,
        template.symmetric_key_bits,
        None,
        public_key_of(endorsement_private_key(title)),
    )
    return replace(area, **changes)


def value_of(pcr: PCR) -> bytes:
    """What this register holds in these tests."""
    return hashlib.new(pcr.bank.text, str(pcr).encode()).digest()


def values_of(selection: PCRSelection) -> bytes:
    return b"".join(value_of(pcr) for pcr in selection.registers())


def sign(key: PrivateKey, scheme: Scheme, message: bytes) -> Signature:
    digest = CRYPTOGRAPHY_HASHES[scheme.hash]
    if isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(message, ec.ECDSA(digest)))
        size = (key.key_size + 7) // 8
        return Signature(scheme, ECDSASignature(r.to_bytes(size, "big"), s.to_bytes(size, "big")))
    if scheme.algorithm is SignatureAlgorithm.RSASSA:
        return Signature(scheme, RSASignature(key.sign(message, padding.PKCS1v15(), digest)))
    pss = padding.PSS(padding.MGF1(digest), padding.PSS.DIGEST_LENGTH)
    return Signature(scheme, RSASignature(key.sign(message, pss, digest)))


def fields_of_beginnings(decode: Callable[[bytes], object], good: bytes) -> list[str]:
    """Which field each beginning of ``good`` ends inside, as the decoder says: neighbours that are the same, once."""
    fields: list[str] = []
    for length in range(len(good)):
        with pytest.raises(MalformedStructure) as refused:
            decode(good[:length])
        field = str(refused.value).partition(": ends inside ")[2]
        if fields[-1:] != [field]:
            fields.append(field)
    return fields


@dataclass(frozen=True, slots=True)
class Evidence:
    """The four parts that a node sends."""

    ak_public: bytes
    quote: bytes
    signature: bytes
    pcr_values: bytes

    def verify(
        self,
        selection: PCRSelection = SELECTION,
        extra_data: bytes = EXTRA_DATA,
        pcr_policy: PCRPolicy = ANY_PCR_VALUES,
    ) -> VerifiedQuote[Nonce]:
        return verify_quote(
            ak_public=self.ak_public,
            quote=self.quote,
            signature=self.signature,
            pcr_values=self.pcr_values,
            selection=selection,
            extra_data=Nonce(extra_data),
            pcr_policy=pcr_policy,
        )


def statement_of(
    selection: PCRSelection = SELECTION,
    extra_data: bytes = EXTRA_DATA,
    digest_hash: HashAlgorithm = HashAlgorithm.SHA256,
) -> QuoteStatement:
    digest = hashlib.new(digest_hash.text, values_of(selection)).digest()
    return QuoteStatement(b"\x00\x0b" + bytes(32), extra_data, CLOCK, 0x2019102300163636, selection, digest)


def evidence_of(
    key: PrivateKey | None = None,
    scheme: Scheme = RSASSA,
    *,
    selection: PCRSelection = SELECTION,
    mangle: Callable[[bytes], bytes] = lambda quote: quote,
    area: PublicArea | None = None,
) -> Evidence:
    """Good evidence, but for what ``mangle`` did to the statement before it was signed."""
    key = key or rsa_key()
    quote = mangle(statement_of(selection, digest_hash=scheme.hash).encode())
    signature = sign(key, scheme, quote).encode()
    return Evidence((area or attestation_area(key, scheme)).encode(), quote, signature, values_of(selection))
