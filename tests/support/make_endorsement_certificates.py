"""Writes fixtures/tpm/certificates: chains with each manufacturer's quirks, made from new keys.

    python -m tests.support.make_endorsement_certificates fixtures/tpm/certificates

Names are always the same; keys, and so signatures and key identifiers, differ. The README next to the files describes
the quirks.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa

from attestors.wire import pem
from signer.authority.der import encode, integer, sequence
from tests.support.endorsement_certificates import (
    CRITICAL,
    EK_CERTIFICATE,
    EMPTY_NAME,
    FOR_EVER,
    KEY_AGREEMENT,
    KEY_CERT_SIGN,
    KEY_ENCIPHERMENT,
    NULL,
    SHA1_RSA,
    SHA256_ECDSA,
    SHA256_RSA,
    SHA512_ECDSA,
    WRITTEN_OUT_FALSE,
    Algorithm,
    Draft,
    PrivateKey,
    authority_constraints,
    authority_key_identifier,
    basic_constraints,
    common_name,
    extension,
    issuer_location,
    key_usage,
    name,
    name_in_one_set,
    oaep_public_key_information,
    policies,
    public_key_information,
    purposes,
    subject_key_identifier,
    tpm_attributes,
    tpm_name,
    tpm_specification,
)

CERTIFICATE: Final = "endorsement-key-certificate.bin"
PUBLIC_KEY: Final = "endorsement-key.der"
ROOTS: Final = "roots.pem"
INTERMEDIATES: Final = "intermediates.pem"
EXPECTED: Final = "expected.json"

_C, _CN, _O, _OU = "2.5.4.6", "2.5.4.3", "2.5.4.10", "2.5.4.11"
_UTF8_STRING: Final = 0x0C
_VERSION_3_KEYS: Final = b"\x03\x02\x00\x20"
"""keyEncipherment with trailing zero bits written out."""


@dataclass(frozen=True, slots=True)
class Chain:
    """One certificate chain."""

    folder: str
    stored: bytes
    """The content of the NV index."""
    key: PrivateKey
    roots: tuple[bytes, ...]
    intermediates: tuple[bytes, ...] = ()
    tpm: tuple[str, str, str] | None = None


def chains() -> Iterator[Chain]:
    yield from _intel()
    yield _nuvoton()
    yield from _stmicroelectronics()
    yield _google()
    yield from _infineon()
    yield _odd_serial_numbers()
    yield _version_1_root()


def _elliptic(curve: ec.EllipticCurve | None = None) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(curve or ec.SECP256R1())


def _rsa() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _identifier(key: PrivateKey) -> bytes:
    return hashlib.sha256(public_key_information(key)).digest()[:20]


def _authority(
    subject: bytes,
    key: PrivateKey,
    algorithm: Algorithm,
    issuer: bytes | None = None,
    issuer_key: PrivateKey | None = None,
    *more: bytes,
) -> bytes:
    own = (authority_constraints(), key_usage(KEY_CERT_SIGN), subject_key_identifier(_identifier(key)))
    signing = issuer_key or key
    extensions = (*own, authority_key_identifier(_identifier(signing)), *more)
    draft = Draft(issuer or subject, public_key_information(key), subject=subject, extensions=extensions)
    return draft.signed(signing, algorithm)


def _intel() -> Iterator[Chain]:
    root_name = name((_C, "US"), (_O, "Imitation of Intel"), (_OU, "TPM EK root cert signing"), tag=_UTF8_STRING)
    issuer = name((_C, "US"), (_O, "Imitation of Intel"), (_OU, "TPM EK intermediate"), tag=_UTF8_STRING)
    root_key, key = _elliptic(), _elliptic()
    root = _authority(root_name, root_key, SHA256_ECDSA)
    intermediate = _authority(issuer, key, SHA256_ECDSA, root_name, root_key)
    tpm = ("id:494E5443", "SPT", "id:00020000")
    endorsement_keys: tuple[tuple[str, PrivateKey, bytes], ...] = (
        ("intel-rsa", _rsa(), _VERSION_3_KEYS),
        ("intel-elliptic", _elliptic(), KEY_ENCIPHERMENT),
    )
    for folder, endorsement_key, usage in endorsement_keys:
        extensions = (
            basic_constraints(WRITTEN_OUT_FALSE),
            key_usage(usage),
            purposes(EK_CERTIFICATE),
            tpm_specification(WRITTEN_OUT_FALSE),
            tpm_name(name(*tpm_attributes(*tpm), tag=_UTF8_STRING)),
            authority_key_identifier(_identifier(key)),
            issuer_location("https://intermediate.example/ek.cer"),
            policies(),
        )
        draft = Draft(
            issuer,
            public_key_information(endorsement_key),
            not_after=datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC),
            extensions=extensions,
        )
        yield Chain(folder, draft.signed(key, SHA256_ECDSA), endorsement_key, (root,), (intermediate,), tpm)


def _nuvoton() -> Chain:
    root_name = name_in_one_set((_CN, "Imitation of a Nuvoton TPM Root CA"), (_O, "Imitation of Nuvoton"), (_C, "TW"))
    root_key, endorsement_key = _elliptic(), _elliptic(ec.SECP384R1())
    root = _authority(root_name, root_key, SHA256_ECDSA)
    tpm = ("id:4E544300", "NPCT75x", "id:00070002")
    extensions = (
        tpm_name(name_in_one_set(*tpm_attributes(*tpm))),
        basic_constraints(),
        purposes(EK_CERTIFICATE),
        authority_key_identifier(_identifier(root_key)),
        key_usage(KEY_AGREEMENT),
        tpm_specification(),
    )
    draft = Draft(root_name, public_key_information(endorsement_key), extensions=extensions)
    certificate = draft.signed(root_key, SHA256_ECDSA)
    return Chain("nuvoton", certificate + b"\x00" * 300, endorsement_key, (root,), tpm=tpm)


def _stmicroelectronics() -> Iterator[Chain]:
    root_name = name((_O, "Imitation of GlobalSign"), (_CN, "Trusted Platform Module Root CA"))
    in_another_type = name((_O, "Imitation of GlobalSign"), (_CN, "Trusted Platform Module Root CA"), tag=_UTF8_STRING)
    issuer = name((_C, "CH"), (_O, "Imitation of STMicroelectronics"), (_CN, "TPM EK Intermediate CA"))
    root_key, key, endorsement_key = _rsa(), _rsa(), _rsa()
    root = _authority(root_name, root_key, SHA1_RSA)
    intermediate = _authority(issuer, key, SHA256_RSA, in_another_type, root_key, policies(CRITICAL))
    tpm = ("id:53544D20", "ST33HTPHAHE0", "id:00010200")
    extensions = (
        authority_key_identifier(_identifier(key)),
        tpm_name(name(*tpm_attributes(*tpm), tag=_UTF8_STRING)),
        basic_constraints(),
        purposes(EK_CERTIFICATE),
        key_usage(KEY_ENCIPHERMENT),
    )
    draft = Draft(issuer, public_key_information(endorsement_key), not_after=FOR_EVER, extensions=extensions)
    certificate = draft.signed(key, SHA256_RSA)
    padded = certificate + b"\xff" * (1600 - len(certificate))
    yield Chain("stmicroelectronics-padded", padded, endorsement_key, (root,), (intermediate,), tpm)
    bare = (authority_key_identifier(_identifier(key)), policies(), basic_constraints())
    draft = Draft(
        issuer,
        oaep_public_key_information(endorsement_key),
        extensions=(*bare, purposes(EK_CERTIFICATE, critical=CRITICAL)),
    )
    yield Chain("stmicroelectronics-oaep", draft.signed(key, SHA256_RSA), endorsement_key, (root,), (intermediate,))


def _google() -> Chain:
    root_name = name((_O, "Imitation of Google"), (_CN, "EK/AK CA Root"), tag=_UTF8_STRING)
    issuer = name((_O, "Imitation of Google"), (_CN, "EK/AK CA Intermediate"), tag=_UTF8_STRING)
    root_key, key, endorsement_key = _rsa(), _rsa(), _rsa()
    root = _authority(root_name, root_key, SHA256_RSA)
    intermediate = _authority(issuer, key, SHA256_RSA, root_name, root_key)
    instance = sequence(encode(_UTF8_STRING, b"zone"), integer(1), encode(_UTF8_STRING, b"project"), integer(2))
    extensions = (
        key_usage(KEY_ENCIPHERMENT),
        basic_constraints(),
        subject_key_identifier(_identifier(endorsement_key)),
        authority_key_identifier(_identifier(key)),
        extension("1.3.6.1.4.1.11129.2.1.21", instance),
    )
    draft = Draft(
        issuer,
        public_key_information(endorsement_key),
        subject=name((_O, "Imitation of a compute engine"), (_CN, "218557372616137117"), tag=_UTF8_STRING),
        extensions=extensions,
    )
    return Chain("google", draft.signed(key, SHA256_RSA), endorsement_key, (root,), (intermediate,))


def _infineon() -> Iterator[Chain]:
    root_name = name((_C, "DE"), (_O, "Imitation of Infineon"), (_CN, "ECC Root CA 2"), tag=_UTF8_STRING)
    issuer = name((_C, "DE"), (_O, "Imitation of Infineon"), (_CN, "TPM 2.0 ECC CA 056"), tag=_UTF8_STRING)
    root_key, key, endorsement_key = _elliptic(ec.SECP521R1()), _elliptic(ec.SECP521R1()), _elliptic()
    root = _authority(root_name, root_key, SHA512_ECDSA)
    intermediate = _authority(issuer, key, SHA512_ECDSA, root_name, root_key)
    tpm = ("id:49465800", "SLB 9672", "id:0F0B")
    extensions = (
        key_usage(KEY_AGREEMENT),
        tpm_name(name(*tpm_attributes(*tpm), tag=_UTF8_STRING)),
        basic_constraints(),
        policies(),
        authority_key_identifier(_identifier(key)),
        purposes(EK_CERTIFICATE),
    )
    draft = Draft(issuer, public_key_information(endorsement_key), not_after=FOR_EVER, extensions=extensions)
    certificate = draft.signed(key, SHA512_ECDSA)
    stored = b"\x10\x01\x00" + (len(certificate) + 2).to_bytes(2, "big") + b"\x10\x02" + certificate + b"\xff" * 40
    yield Chain("infineon-with-header", stored, endorsement_key, (root,), (intermediate,), tpm)
    old_key = _rsa()
    bare = (tpm_name(name(*tpm_attributes(*tpm), tag=_UTF8_STRING)), basic_constraints(), policies(CRITICAL))
    draft = Draft(issuer, oaep_public_key_information(old_key), extensions=bare)
    yield Chain("infineon-without-usage", draft.signed(key, SHA512_ECDSA), old_key, (root,), (intermediate,), tpm)


def _odd_serial_numbers() -> Chain:
    root_name, issuer = common_name("Root with serial number zero"), common_name("Intermediate")
    root_key, key, endorsement_key = _elliptic(), _elliptic(), _elliptic()
    extensions = (authority_constraints(), key_usage(KEY_CERT_SIGN))
    root = Draft(
        root_name, public_key_information(root_key), subject=root_name, serial=integer(0), extensions=extensions
    ).signed(root_key, SHA256_ECDSA)
    intermediate = _authority(issuer, key, SHA256_ECDSA, root_name, root_key)
    draft = Draft(
        issuer,
        public_key_information(endorsement_key),
        serial=encode(0x02, b"\xff\xff\x85"),
        extensions=(key_usage(KEY_AGREEMENT), purposes(EK_CERTIFICATE)),
    )
    return Chain("odd-serial-numbers", draft.signed(key, SHA256_ECDSA), endorsement_key, (root,), (intermediate,))


def _version_1_root() -> Chain:
    root_name = common_name("Version 1 root")
    root_key, endorsement_key = _rsa(), _elliptic()
    root = Draft(root_name, public_key_information(root_key), subject=root_name, version=1, extensions=None)
    without_parameters = Algorithm(SHA256_RSA.identifier, SHA256_RSA.hash_algorithm)
    draft = Draft(
        root_name,
        public_key_information(endorsement_key),
        subject=EMPTY_NAME,
        extensions=(key_usage(KEY_AGREEMENT), purposes(EK_CERTIFICATE)),
    )
    certificate = draft.signed(root_key, without_parameters, outer=SHA256_RSA)
    return Chain("version-1-root", certificate + NULL, endorsement_key, (root.signed(root_key, SHA256_RSA),))


def write(folder: Path) -> None:
    for chain in chains():
        place = folder / chain.folder
        place.mkdir(parents=True, exist_ok=True)
        (place / CERTIFICATE).write_bytes(chain.stored)
        (place / PUBLIC_KEY).write_bytes(public_key_information(chain.key))
        (place / ROOTS).write_bytes(_as_pem(chain.roots))
        (place / INTERMEDIATES).write_bytes(_as_pem(chain.intermediates))
        manufacturer, model, version = chain.tpm or (None, None, None)
        expected = {"manufacturer": manufacturer, "model": model, "version": version}
        (place / EXPECTED).write_text(json.dumps(expected, indent=2) + "\n")


def _as_pem(certificates: tuple[bytes, ...]) -> bytes:
    return b"".join(pem.encode(pem.Block("CERTIFICATE", certificate)) for certificate in certificates)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.support.make_endorsement_certificates FOLDER")
    write(Path(sys.argv[1]))
