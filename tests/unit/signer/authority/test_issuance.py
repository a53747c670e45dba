from __future__ import annotations

import ipaddress
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from signer.authority import (
    CertificateUsage,
    IssuingSet,
    certificate_validity,
    issue,
    load_certificate_authority,
    new_serial_number,
)
from signer.authority.profiles import BACKDATE, MAXIMUM_KUBELET_DURATION
from tests.unit.signer.authority.support import (
    NOW,
    SERVING,
    authority,
    capi_secret,
    ec_key,
    make,
    openssl,
    openssl_verify,
    pem_key,
    request,
    rsa_key,
)

V4, V6 = ipaddress.ip_address("10.1.2.3"), ipaddress.ip_address("2001:db8::7")
SERVING_FIELDS = {"usages": SERVING, "dns_names": ("worker-1", "worker-1.example.org"), "ip_addresses": (V4, V6)}
CAS: dict[str, Callable[[], object]] = {
    "rsa-2048": rsa_key,
    "p256": ec_key,
    "p384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "p521": lambda: ec.generate_private_key(ec.SECP521R1()),
}


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> None:
    warnings.simplefilter("error")


def load(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


@pytest.mark.parametrize("kind", CAS)
class TestOpensslAgrees:
    def test_client(self, kind: str, tmp_path: Path, release: str) -> None:
        secret = capi_secret(key=CAS[kind]())
        certificate = issue(authority(secret), request())
        openssl_verify(tmp_path, secret["tls.crt"], certificate, "sslclient")
        with pytest.raises(AssertionError, match="purpose"):
            openssl_verify(tmp_path, secret["tls.crt"], certificate, "sslserver")

    def test_serving(self, kind: str, tmp_path: Path, release: str) -> None:
        secret = capi_secret(key=CAS[kind]())
        certificate = issue(authority(secret), request(**SERVING_FIELDS))
        openssl_verify(tmp_path, secret["tls.crt"], certificate, "sslserver")
        with pytest.raises(AssertionError, match="purpose"):
            openssl_verify(tmp_path, secret["tls.crt"], certificate, "sslclient")


@pytest.mark.slow
def test_rsa_4096(tmp_path: Path) -> None:
    secret = capi_secret(key=rsa_key(4096))
    openssl_verify(tmp_path, secret["tls.crt"], issue(authority(secret), request()), "sslclient")


def test_what_openssl_reads(tmp_path: Path) -> None:
    usages = SERVING | {CertificateUsage.KEY_ENCIPHERMENT}
    (tmp_path / "leaf.pem").write_bytes(issue(authority(), request(**SERVING_FIELDS | {"usages": usages})))
    lines = [
        line.strip()
        for line in openssl("x509", "-noout", "-text", "-in", str(tmp_path / "leaf.pem"), "-nameopt", "RFC2253").split(
            "\n"
        )
    ]
    text = "\n".join(lines)
    assert "Version: 3 (0x2)" in text
    assert "6a:5b:4c:3d:2e:1f:00:11:22:33:44:55:66:77:88:99" in text
    assert "Issuer: CN=kubernetes" in text
    assert "Subject: CN=system:node:worker-1,O=system:nodes" in text
    assert "Not Before: Mar  1 11:55:00 2026 GMT" in text
    assert "Not After : Mar  8 12:00:00 2026 GMT" in text
    extensions = lines[lines.index("X509v3 extensions:") + 1 :]
    assert [line for line in extensions if line.startswith("X509v3")] == [
        "X509v3 Basic Constraints: critical",
        "X509v3 Key Usage: critical",
        "X509v3 Extended Key Usage:",
        "X509v3 Authority Key Identifier:",
        "X509v3 Subject Alternative Name:",
    ]
    assert "CA:FALSE" in extensions
    assert "Digital Signature, Key Encipherment" in extensions
    assert "TLS Web Server Authentication" in extensions
    assert "DNS:worker-1, DNS:worker-1.example.org, IP Address:10.1.2.3, IP Address:2001:DB8:0:0:0:0:0:7" in extensions


def test_one_block_and_nothing_else() -> None:
    pem = issue(authority(), request())
    assert pem.startswith(b"-----BEGIN CERTIFICATE-----\n")
    assert pem.endswith(b"\n-----END CERTIFICATE-----\n")
    assert pem.count(b"BEGIN") == 1


def test_a_client_certificate_has_four_extensions() -> None:
    extensions = load(issue(authority(), request())).extensions
    assert [(extension.oid._name, extension.critical) for extension in extensions] == [
        ("basicConstraints", True),
        ("keyUsage", True),
        ("extendedKeyUsage", False),
        ("authorityKeyIdentifier", False),
    ]


def test_the_authority_key_identifier_is_copied() -> None:
    authority_ = authority()
    expected = authority_.client.certificate.subject_key_identifier
    assert expected is not None
    assert expected != x509.SubjectKeyIdentifier.from_public_key(ec_key().public_key())  # Go >= 1.25: SHA-256
    identifier = load(issue(authority_, request())).extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    assert identifier.value == x509.AuthorityKeyIdentifier(expected.digest, None, None)


def test_an_authority_without_a_key_identifier_gets_one_derived() -> None:
    made = make("ca", ec_key())
    certificate = load(issue(authority(made.secret()), request()))
    identifier = certificate.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    assert identifier.value == x509.AuthorityKeyIdentifier.from_issuer_public_key(ec_key().public_key())


@pytest.mark.parametrize("name", ["a" * 53, "a" * 63, "a" * 63 + ".example.org", ".".join(["b" * 60] * 4)])
def test_node_names_beyond_64_characters(name: str, tmp_path: Path) -> None:
    """The library's builder refuses them; the Machine names of Cluster API have up to 63 characters."""
    common_name = f"system:node:{name}"
    with pytest.raises(ValueError, match="length"):
        x509.NameAttribute(NameOID.COMMON_NAME, common_name)
    secret = capi_secret()
    openssl_verify(
        tmp_path, secret["tls.crt"], issue(authority(secret), request(subject_common_name=common_name)), "sslclient"
    )
    subject = openssl("x509", "-noout", "-subject", "-nameopt", "RFC2253", "-in", str(tmp_path / "leaf.pem"))
    assert subject.strip() == f"subject=CN={common_name},O=system:nodes"


labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,10}[a-z0-9])?", fullmatch=True)
hosts = st.lists(labels, min_size=1, max_size=3).map(".".join)


@settings(max_examples=60)
@given(
    name=hosts,
    dns_names=st.lists(hosts, max_size=4).map(tuple),
    ip_addresses=st.lists(st.ip_addresses(), min_size=1, max_size=4).map(tuple),
    key_encipherment=st.booleans(),
    serial_number=st.integers(1, (1 << 159) - 1),
    start=st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)),
    seconds=st.integers(1, int((MAXIMUM_KUBELET_DURATION + BACKDATE).total_seconds())),
    key=st.sampled_from(
        [ec_key(50).public_key(), rsa_key().public_key(), ed25519.Ed25519PrivateKey.generate().public_key()]
    ),
)
def test_to_be_signed_bytes_are_those_of_the_librarys_builder(
    name: str,
    dns_names: tuple[str, ...],
    ip_addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...],
    key_encipherment: bool,
    serial_number: int,
    start: datetime,
    seconds: int,
    key: object,
) -> None:
    not_before = start.replace(microsecond=0, tzinfo=UTC)
    not_after = not_before + timedelta(seconds=seconds)
    usages = SERVING | ({CertificateUsage.KEY_ENCIPHERMENT} if key_encipherment else set())
    issuer = make(
        "ca", ec_key(), not_before=datetime(1980, 1, 1, tzinfo=UTC), not_after=datetime(2100, 1, 1, tzinfo=UTC)
    )
    asked = request(
        subject_common_name=f"system:node:{name}",
        dns_names=dns_names,
        ip_addresses=ip_addresses,
        usages=frozenset(usages),
        serial_number=serial_number,
        not_before=not_before,
        not_after=not_after,
        public_key=key,
    )
    expected = (
        x509.CertificateBuilder()
        .issuer_name(issuer.certificate.subject)
        .subject_name(
            x509.Name(
                [
                    x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:nodes"),
                    x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{name}"),
                ]
            )
        )
        .public_key(asked.public_key)
        .serial_number(serial_number)
        .not_valid_before(not_before)
        .not_valid_after(not_after)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(
            x509.KeyUsage(True, False, key_encipherment, False, False, False, False, False, False), critical=True
        )
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ec_key().public_key()), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([*map(x509.DNSName, dns_names), *map(x509.IPAddress, ip_addresses)]),
            critical=False,
        )
        .sign(ec_key(), hashes.SHA256())
    )
    issued = load(issue(authority(issuer.secret()), asked))
    assert issued.tbs_certificate_bytes == expected.tbs_certificate_bytes


def test_a_retry_gives_the_same_certificate() -> None:
    """To the byte with RSA; ECDSA signatures differ, what they sign does not."""
    rsa_authority = authority(capi_secret(key=rsa_key()))
    assert issue(rsa_authority, request()) == issue(rsa_authority, request())
    first, second = (load(issue(authority(), request())) for _ in range(2))
    assert first.tbs_certificate_bytes == second.tbs_certificate_bytes


def test_the_issuers_name_is_copied_byte_for_byte(tmp_path: Path) -> None:
    """PrintableString, T61String and several attributes in one RDN survive; Go compares encoded names."""
    (tmp_path / "key").write_bytes(pem_key(ec_key()))
    openssl(
        *("req", "-x509", "-key", str(tmp_path / "key"), "-subj", "/C=DE/O=x+OU=y/CN=kub\xe9", "-days", "3650"),
        *("-multivalue-rdn", "-addext", "keyUsage=critical,keyCertSign", "-out", str(tmp_path / "crt")),
    )
    pem = (tmp_path / "crt").read_bytes()
    now = load(pem).not_valid_before_utc
    signing = load_certificate_authority({"tls.crt": pem, "tls.key": (tmp_path / "key").read_bytes()}, now=now)
    certificate = issue(IssuingSet.of(signing), request(not_before=now, not_after=now + timedelta(days=1)))
    assert signing.certificate.subject in load(certificate).tbs_certificate_bytes
    openssl_verify(tmp_path, pem, certificate, "sslclient", at=now + timedelta(hours=1))


def test_an_intermediate_signs_and_its_root_verifies(tmp_path: Path) -> None:
    root = make("root", ec_key(1))
    own = make("own", ec_key(2), root)
    certificate = issue(authority(own.secret(root)), request())
    (tmp_path / "root.pem").write_bytes(root.pem)
    (tmp_path / "own.pem").write_bytes(own.pem)
    (tmp_path / "leaf.pem").write_bytes(certificate)
    openssl(
        *(
            "verify",
            "-purpose",
            "sslclient",
            "-attime",
            str(int(NOW.timestamp())),
            "-CAfile",
            str(tmp_path / "root.pem"),
        ),
        *("-untrusted", str(tmp_path / "own.pem"), str(tmp_path / "leaf.pem")),
    )


def test_from_plan_to_certificate(tmp_path: Path) -> None:
    secret = capi_secret()
    authority_ = authority(secret)
    validity = certificate_validity(NOW, timedelta(days=7), 86400, authority_.client.certificate.not_after)
    certificate = issue(
        authority_,
        request(serial_number=new_serial_number(), not_before=validity.not_before, not_after=validity.not_after),
    )
    openssl_verify(tmp_path, secret["tls.crt"], certificate, "sslclient", at=NOW + timedelta(hours=23, minutes=54))
    with pytest.raises(AssertionError, match="expired"):
        openssl_verify(tmp_path, secret["tls.crt"], certificate, "sslclient", at=NOW + timedelta(hours=24))
