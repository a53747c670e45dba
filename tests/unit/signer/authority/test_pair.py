from __future__ import annotations

import typing
from datetime import timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from signer.authority import (
    AuthorityKind,
    CertificateAuthorityUnavailable,
    CertificateAuthorityUnavailableReason,
    RotatedCertificateAuthority,
    new_service_account_key,
    require_pair,
    require_service_account_pair,
)
from tests.unit.signer.authority.support import NOW, capi_secret, ec_key, key_usage, make, pem_key, rsa_key

pytestmark = pytest.mark.usefixtures("release")
Reason = CertificateAuthorityUnavailableReason
KINDS: tuple[RotatedCertificateAuthority, ...] = typing.get_args(RotatedCertificateAuthority)
BUNDLES: tuple[RotatedCertificateAuthority, ...] = (AuthorityKind.ETCD, AuthorityKind.FRONT_PROXY)
KEY = capi_secret(0)["tls.key"]
OURS, THEIRS = capi_secret(0)["tls.crt"], capi_secret(1)["tls.crt"]


def refused(secret: dict[str, bytes], kind: RotatedCertificateAuthority, **options: Any) -> Any:
    with pytest.raises(CertificateAuthorityUnavailable) as caught:
        require_pair(kind, secret, **{"now": NOW, **options})
    assert "tls.crt" in caught.value.message or "tls.key" in caught.value.message
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
def test_one_certificate_and_its_key(kind: RotatedCertificateAuthority) -> None:
    authority = require_pair(kind, capi_secret(0), now=NOW)
    assert authority.certificate.public_key == ec_key(0).public_key()


@pytest.mark.parametrize("kind", BUNDLES)
def test_a_bundle_that_begins_with_the_keys_certificate(kind: RotatedCertificateAuthority) -> None:
    authority = require_pair(kind, {"tls.crt": OURS + THEIRS, "tls.key": KEY}, now=NOW)
    assert authority.certificate.public_key == ec_key(0).public_key()


@pytest.mark.parametrize("certificates", [OURS + THEIRS, THEIRS + OURS, OURS + OURS])
def test_the_clusters_ca_is_no_bundle(certificates: bytes) -> None:
    error = refused({"tls.crt": certificates, "tls.key": KEY}, AuthorityKind.CLUSTER)
    assert error.reason is Reason.INVALID
    assert "holds 2 certificates" in error.message
    assert "<cluster>-trust" in error.message


@pytest.mark.parametrize("kind", BUNDLES)
def test_a_bundle_that_begins_with_another_certificate(kind: RotatedCertificateAuthority) -> None:
    error = refused({"tls.crt": THEIRS + OURS, "tls.key": KEY}, kind)
    assert error.reason is Reason.KEY_MISMATCH
    assert "first certificate in tls.crt" in error.message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("secret", "reason"),
    [
        ({"tls.crt": THEIRS, "tls.key": KEY}, Reason.KEY_MISMATCH),
        ({"tls.key": KEY}, Reason.CERTIFICATE_MISSING),
        ({"tls.crt": OURS}, Reason.KEY_MISSING),
        ({"tls.crt": OURS + b"x", "tls.key": KEY}, Reason.INVALID),
        (make("leaf", ec_key(0), ca=False).secret(), Reason.NOT_AN_AUTHORITY),
        (make("leaf", ec_key(0), usage=key_usage(key_cert_sign=False)).secret(), Reason.NOT_AN_AUTHORITY),
    ],
)
def test_no_pair(kind: RotatedCertificateAuthority, secret: dict[str, bytes], reason: Reason) -> None:
    assert refused(secret, kind).reason is reason


@pytest.mark.parametrize("kind", KINDS)
def test_an_expired_one(kind: RotatedCertificateAuthority) -> None:
    assert refused(capi_secret(0), kind, now=NOW + timedelta(days=3651)).reason is Reason.EXPIRED


def public_key(key: Any) -> bytes:
    return bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@pytest.mark.parametrize("key", [ec_key(0), rsa_key()], ids=["ecdsa", "rsa"])
def test_service_account_keys(key: Any) -> None:
    other = public_key(ec_key(1))
    made = new_service_account_key(like=key.public_key())
    require_service_account_pair(made.secret_data)
    for public_keys in (public_key(key), public_key(key) + other, make("sa", key).pem + other):
        assert require_service_account_pair({"tls.crt": public_keys, "tls.key": pem_key(key)}) == key.public_key()


@pytest.mark.parametrize(
    ("public_keys", "reason", "message"),
    [
        (b"", Reason.CERTIFICATE_MISSING, "missing"),
        (public_key(ec_key(1)), Reason.KEY_MISMATCH, "first public key"),
        (public_key(ec_key(1)) + public_key(ec_key(0)), Reason.KEY_MISMATCH, "first public key"),
        (make("sa", ec_key(1)).pem, Reason.KEY_MISMATCH, "first public key"),
        (pem_key(ec_key(0)), Reason.INVALID, "PEM block 1 of tls.crt"),
        (public_key(ec_key(0)) + pem_key(ec_key(0)), Reason.INVALID, "PEM block 2 of tls.crt"),
        (public_key(ec_key(0)) + b"x", Reason.INVALID, "text after"),
        (public_key(ec_key(0)) * 17, Reason.INVALID, "16 PEM blocks"),
        (
            public_key(ec_key(0)) + b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n",
            Reason.INVALID,
            "2",
        ),
    ],
)
def test_no_service_account_pair(public_keys: bytes, reason: Reason, message: str) -> None:
    with pytest.raises(CertificateAuthorityUnavailable, match=message) as caught:
        require_service_account_pair({"tls.crt": public_keys, "tls.key": pem_key(ec_key(0))})
    assert caught.value.reason is reason
    assert "PRIVATE" not in str(caught.value)


def test_no_service_account_key() -> None:
    with pytest.raises(CertificateAuthorityUnavailable) as caught:
        require_service_account_pair({"tls.crt": public_key(ec_key(0))})
    assert caught.value.reason is Reason.KEY_MISSING
