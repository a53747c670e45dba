from __future__ import annotations

import base64
import hashlib
import typing
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from signer.authority import (
    AuthorityKind,
    CertificateAuthorityUnavailable,
    CertificateAuthorityUnavailableReason,
    IssuanceRefused,
    IssuanceRefusedReason,
    RotatedCertificateAuthority,
    Validity,
    issue,
    load_certificate_authority,
    new_authority,
    new_service_account_key,
)
from signer.authority import authority_certificate as assembly
from signer.authority.issuance import encode_extension
from signer.authority.lenient_certificate import CACertificate, parse_ca_certificate
from signer.authority.private_key import sign
from signer.authority.successor import AUTHORITY_LIFETIME, NodeClientAuthority, new_node_client_authority
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.unit.signer.authority.support import (
    NOW,
    SERVING,
    authority,
    capi_secret,
    ec_key,
    key_usage,
    make,
    openssl_verify,
    request,
    rsa_key,
)

pytestmark = pytest.mark.usefixtures("release")
IDENTIFIER = "abcdefg2"
CERTIFICATE_AUTHORITIES: tuple[RotatedCertificateAuthority, ...] = typing.get_args(RotatedCertificateAuthority)


def old(key: Any = None) -> CACertificate:
    return load_certificate_authority(capi_secret(key=key or ec_key()), now=NOW).certificate


def new(**changes: Any) -> Any:
    options: dict[str, Any] = {"like": old(), "now": NOW, **changes}
    kind = options.pop("kind", AuthorityKind.CLUSTER)
    return new_authority(kind, options.pop("identifier", IDENTIFIER), **options)


def test_every_kind_is_the_suffix_of_a_secret_of_cluster_api() -> None:
    assert [kind.value for kind in AuthorityKind] == ["ca", "etcd", "proxy", "sa"]
    assert set(CERTIFICATE_AUTHORITIES) == set(AuthorityKind) - {AuthorityKind.SERVICE_ACCOUNT}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (AuthorityKind.CLUSTER, "kubernetes-abcdefg2"),
        (AuthorityKind.ETCD, "kubernetes-etcd-abcdefg2"),
        (AuthorityKind.FRONT_PROXY, "kubernetes-front-proxy-abcdefg2"),
    ],
)
def test_each_has_a_name_of_its_own(kind: RotatedCertificateAuthority, name: str) -> None:
    certificate = x509.load_der_x509_certificate(new(kind=kind).certificate.der)
    assert certificate.subject.rfc4514_string() == f"CN={name}" == certificate.issuer.rfc4514_string()


@pytest.mark.parametrize("kind", CERTIFICATE_AUTHORITIES)
def test_the_controller_reads_it(kind: RotatedCertificateAuthority) -> None:
    made = new(kind=kind)
    loaded = load_certificate_authority(made.secret_data, now=NOW)
    assert loaded.certificate == made.certificate
    assert loaded.ca_certificate_hashes == {made.discovery_hash}
    assert made.kind is kind


def test_its_fields() -> None:
    made = new()
    certificate = x509.load_der_x509_certificate(made.certificate.der)
    extensions = {type(item.value): (item.value, item.critical) for item in certificate.extensions}
    public_key = certificate.public_key()
    assert extensions == {
        x509.KeyUsage: (
            x509.KeyUsage(
                digital_signature=True,
                content_commitment=False,
                key_encipherment=True,
                data_encipherment=False,
                key_agreement=False,
                key_cert_sign=True,
                crl_sign=False,
                encipher_only=False,
                decipher_only=False,
            ),
            True,
        ),
        x509.BasicConstraints: (x509.BasicConstraints(ca=True, path_length=None), True),
        x509.SubjectKeyIdentifier: (x509.SubjectKeyIdentifier.from_public_key(public_key), False),
    }
    assert certificate.version is x509.Version.v3
    assert certificate.not_valid_before_utc == NOW - timedelta(hours=1)
    assert certificate.not_valid_after_utc == NOW + timedelta(days=3650)
    assert certificate.serial_number.bit_length() == 127
    assert certificate.serial_number != x509.load_der_x509_certificate(new().certificate.der).serial_number


def test_cluster_apis_key_usage() -> None:
    assert new().certificate.key_usage == old().key_usage


def test_a_lifetime_and_a_time_with_fractions_of_seconds() -> None:
    now = datetime(2026, 3, 1, 13, 0, 0, 999, tzinfo=timezone(timedelta(hours=1)))
    certificate = new(now=now, lifetime=timedelta(days=400, milliseconds=1500)).certificate
    assert certificate.not_before == datetime(2026, 3, 1, 11, 0, 0, tzinfo=UTC)
    assert certificate.not_after == NOW + timedelta(days=400, seconds=1)


@pytest.mark.parametrize("algorithm", EncryptionAlgorithm)
def test_its_key_is_like_the_old_ones(algorithm: EncryptionAlgorithm) -> None:
    secret = new_cluster_certificate_authority(algorithm, now=NOW).secret_data
    like = load_certificate_authority(secret, now=NOW).certificate
    made = new(like=like)
    key, old_key = load_pem_private_key(made.private_key_pem, None), load_pem_private_key(secret["tls.key"], None)
    assert type(key) is type(old_key)
    assert key.public_key() != old_key.public_key()
    if isinstance(key, rsa.RSAPrivateKey) and isinstance(old_key, rsa.RSAPrivateKey):
        assert key.key_size == old_key.key_size
        assert made.private_key_pem.startswith(b"-----BEGIN RSA PRIVATE KEY-----\n")
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(old_key, ec.EllipticCurvePrivateKey):
        assert key.curve.name == old_key.curve.name
        assert made.private_key_pem.startswith(b"-----BEGIN EC PRIVATE KEY-----\n")


def test_p_521() -> None:
    key = ec.generate_private_key(ec.SECP521R1())
    assert load_certificate_authority(new(like=old(key)).secret_data, now=NOW).certificate.may_sign_certificates


def test_a_kind_of_key_that_is_not_supported() -> None:
    made = make("old", ed25519.Ed25519PrivateKey.generate(), usage=key_usage(key_cert_sign=True))
    like = parse_ca_certificate(made.certificate.public_bytes(Encoding.DER))
    with pytest.raises(CertificateAuthorityUnavailable) as caught:
        new(like=like)
    assert caught.value.reason is CertificateAuthorityUnavailableReason.KEY_UNSUPPORTED


@pytest.mark.parametrize(
    "changes",
    [
        {"identifier": "abcdefg"},
        {"identifier": "abcdefg1"},
        {"identifier": "ABCDEFG2"},
        {"identifier": "abcdefg2\n"},
        {"identifier": "abcdefg22"},
        {"now": NOW.replace(tzinfo=None)},
        {"lifetime": timedelta(minutes=9)},
        {"lifetime": -timedelta(days=1)},
    ],
)
def test_bugs_of_the_caller(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"identifier|aware|lifetime"):
        new(**changes)


@pytest.mark.parametrize("key", [ec_key(), rsa_key()], ids=["ecdsa", "rsa"])
def test_openssl_accepts_what_it_signs(key: Any, tmp_path: Path) -> None:
    made = new(like=old(key))
    leaf = issue(authority(made.secret_data), request())
    openssl_verify(tmp_path, made.certificate_pem, leaf, "sslclient")


def test_the_key_is_not_shown() -> None:
    made, key = new(), new_service_account_key(like=ec_key().public_key())
    for text in (repr(made), str(made), repr(key)):
        assert "PRIVATE" not in text


def test_a_faulty_signature_is_not_published(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "sign", lambda key, data: sign(ec_key(7), data))
    with pytest.raises(IssuanceRefused) as caught:
        new()
    assert caught.value.reason is IssuanceRefusedReason.SELF_CHECK_FAILED


def test_what_is_read_back_must_be_what_was_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    certificate = new().certificate
    contents = assembly.AuthorityContents(
        issuer=certificate.subject,
        subject=certificate.subject,
        subject_public_key_info=certificate.subject_public_key_info,
        validity=Validity(NOW, NOW + timedelta(seconds=1)),
        extensions=[(item.value, item.critical) for item in certificate.extensions],
    )
    assembly.sign_authority_certificate(contents, ec_key())
    in_fractions = Validity(NOW, NOW + timedelta(milliseconds=1))
    with pytest.raises(IssuanceRefused):
        assembly.sign_authority_certificate(replace(contents, validity=in_fractions), ec_key())
    monkeypatch.setattr(assembly, "encode_extension", lambda value, critical: encode_extension(value, not critical))
    with pytest.raises(IssuanceRefused):
        assembly.sign_authority_certificate(contents, ec_key())


@pytest.mark.parametrize("key", [ec_key(), rsa_key()], ids=["ecdsa", "rsa"])
def test_a_key_for_service_account_tokens(key: Any) -> None:
    made = new_service_account_key(like=key.public_key())
    public_key = load_pem_public_key(made.public_key_pem)
    assert load_pem_private_key(made.private_key_pem, None).public_key() == public_key
    assert type(public_key) is type(key.public_key())
    assert public_key != key.public_key()
    assert made.public_key_pem.startswith(b"-----BEGIN PUBLIC KEY-----\n")
    information = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    digest = base64.urlsafe_b64decode(made.key_id + "=")
    assert digest == hashlib.sha256(information).digest()
    assert made.secret_data == {"tls.crt": made.public_key_pem, "tls.key": made.private_key_pem}


class TestNodeClientAuthority:
    """A CA for client certificates of nodes alone."""

    @pytest.fixture
    def made(self) -> NodeClientAuthority:
        return new_node_client_authority("abcdefgh", like=old(), now=NOW)

    def test_it_says_what_it_is_for(self, made: NodeClientAuthority) -> None:
        assert made.certificate.subject.endswith(b"kubernetes-node-client-abcdefgh")
        assert made.certificate.basic_constraints == x509.BasicConstraints(ca=True, path_length=0)
        assert made.certificate.extended_key_usage == x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        assert made.certificate.may_sign_certificates
        assert made.certificate.not_after - NOW == AUTHORITY_LIFETIME
        assert "PRIVATE" not in repr(made)

    def test_it_signs_clients_and_no_server(self, made: NodeClientAuthority, tmp_path: Path) -> None:
        data = {"tls.crt": made.certificate_pem, "tls.key": made.private_key_pem}
        issuing = authority(data)
        openssl_verify(tmp_path, made.certificate_pem, issue(issuing, request()), "sslclient")
        with pytest.raises(IssuanceRefused) as refused:
            issue(issuing, request(usages=SERVING, dns_names=("worker-1",)))
        assert refused.value.reason is IssuanceRefusedReason.USAGE_NOT_PERMITTED_BY_AUTHORITY

    @pytest.mark.parametrize("changes", [{"now": NOW.replace(tzinfo=None)}, {"lifetime": timedelta(seconds=1)}])
    def test_bugs_of_the_caller(self, changes: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match=r"aware|lifetime"):
            new_node_client_authority("abcdefgh", **{"like": old(), "now": NOW, **changes})
        with pytest.raises(ValueError, match="8 characters"):
            new_node_client_authority("ABCDEFGH", like=old(), now=NOW)
