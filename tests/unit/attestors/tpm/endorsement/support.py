"""A small hierarchy to attack: root, intermediate, endorsement key certificate, each of which a test can change."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from attestors.tpm.endorsement import (
    EndorsementAuthorities,
    VerifiedEndorsementCertificate,
    load_endorsement_authorities,
    verify_endorsement_certificate,
)
from tests.support import endorsement_certificates as write
from tests.support.endorsement_certificates import Algorithm, Draft, PrivateKey

NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
FIXTURES: Final = Path(__file__).parents[5] / "fixtures"
ROOT_NAME: Final = write.common_name("Test endorsement root")
INTERMEDIATE_NAME: Final = write.common_name("Test endorsement intermediate")
AUTHORITY: Final = (write.authority_constraints(), write.key_usage(write.KEY_CERT_SIGN))
ENDORSEMENT: Final = (
    write.basic_constraints(),
    write.key_usage(write.KEY_AGREEMENT),
    write.purposes(write.EK_CERTIFICATE),
)


@functools.cache
def elliptic_key(label: str) -> ec.EllipticCurvePrivateKey:
    """The same key for the same label, throughout a test run."""
    assert label
    return ec.generate_private_key(ec.SECP256R1())


@functools.cache
def rsa_key(file: str = "rsa-2048") -> rsa.RSAPrivateKey:
    """One of the recorded keys."""
    key = load_pem_private_key(
        (FIXTURES / "keys" / f"{file}.pem").read_bytes(), None, unsafe_skip_rsa_key_validation=True
    )
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def authority_draft(subject: bytes, issuer: bytes, key: PrivateKey, **changes: Any) -> Draft:
    """An authority's certificate; ``changes`` are fields of `Draft`."""
    draft = Draft(issuer, write.public_key_information(key), subject=subject, extensions=AUTHORITY)
    return dataclasses.replace(draft, **changes)


def endorsement_draft(key: PrivateKey | None = None, **changes: Any) -> Draft:
    """The endorsement key certificate by the intermediate."""
    information = write.public_key_information(key or elliptic_key("endorsement"))
    return dataclasses.replace(Draft(INTERMEDIATE_NAME, information, extensions=ENDORSEMENT), **changes)


def root(**changes: Any) -> bytes:
    """Self-signed."""
    key = elliptic_key("root")
    return authority_draft(ROOT_NAME, ROOT_NAME, key, **changes).signed(key, write.SHA256_ECDSA)


def intermediate(**changes: Any) -> bytes:
    """By the root."""
    draft = authority_draft(INTERMEDIATE_NAME, ROOT_NAME, elliptic_key("intermediate"), **changes)
    return draft.signed(elliptic_key("root"), write.SHA256_ECDSA)


def endorsement(
    key: PrivateKey | None = None, signer: PrivateKey | None = None, algorithm: Algorithm | None = None, **changes: Any
) -> bytes:
    """By the intermediate."""
    draft = endorsement_draft(key, **changes)
    return draft.signed(signer or elliptic_key("intermediate"), algorithm or write.SHA256_ECDSA)


@dataclass(frozen=True)
class Attempt:
    """One call of the entry point; `verify` makes it."""

    certificate: bytes = field(default_factory=endorsement)
    key: PrivateKey | None = None
    roots: Sequence[bytes] = field(default_factory=lambda: [root()])
    intermediates: Sequence[bytes] = field(default_factory=lambda: [intermediate()])
    sent: Sequence[bytes] = ()
    at: datetime = NOW
    accept_expired: bool = False

    def authorities(self) -> EndorsementAuthorities:
        return load_endorsement_authorities(
            roots=self.roots, intermediates=self.intermediates, accept_expired=self.accept_expired
        )

    def verify(self) -> VerifiedEndorsementCertificate:
        return verify_endorsement_certificate(
            self.certificate,
            endorsement_key=(self.key or elliptic_key("endorsement")).public_key(),
            authorities=self.authorities(),
            at=self.at,
            intermediates=self.sent,
        )
