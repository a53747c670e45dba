"""The certificate of a canary: what it is good for, and how long."""

from __future__ import annotations

import hashlib
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from signer.authority import IssuingSet, load_certificate_authority
from signer.authority.canary_certificate import CanaryCertificate, issue_canary
from signer.authority.errors import CertificateAuthorityUnavailable
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority

MADE = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256)
LOADED = load_certificate_authority(MADE.secret_data, now=datetime.now(UTC))
AUTHORITY = IssuingSet.of(LOADED)
USER = f"node-attestation:ca-canary:{LOADED.certificate.public_key_hash[7:23]}"


@pytest.fixture(scope="module")
def canary() -> CanaryCertificate:
    return issue_canary(AUTHORITY, datetime.now(UTC))


def test_it_has_no_group_and_lives_ten_minutes(canary: CanaryCertificate) -> None:
    now = datetime.now(UTC)
    certificate = x509.load_pem_x509_certificate(canary.certificate)
    assert [(one.oid, one.value) for one in certificate.subject] == [(NameOID.COMMON_NAME, USER)]
    assert certificate.serial_number == canary.serial_number
    assert certificate.not_valid_after_utc == canary.not_after
    assert canary.not_after <= now + timedelta(minutes=10)
    assert canary.user == USER
    assert "PRIVATE" not in repr(canary)


def test_each_has_a_key_of_its_own(canary: CanaryCertificate) -> None:
    assert issue_canary(AUTHORITY, datetime.now(UTC)).key != canary.key


def test_an_authority_that_is_about_to_expire_issues_none() -> None:
    with pytest.raises(CertificateAuthorityUnavailable):
        issue_canary(AUTHORITY, LOADED.certificate.not_after)


def test_the_digest_is_that_of_the_certificate(canary: CanaryCertificate) -> None:
    der = ssl.PEM_cert_to_DER_cert(canary.certificate.decode())
    assert canary.digest == hashlib.sha256(der).hexdigest()
