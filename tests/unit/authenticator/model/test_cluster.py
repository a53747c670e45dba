from __future__ import annotations

import hashlib
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from authenticator.model.cluster import BearerToken, Bootstrap, ClientCertificate, InvalidCluster
from tests.unit.authenticator.builders import (
    TOKEN,
    authority,
    bootstrap,
    certificate,
    cluster,
    key_pem,
    pem_of,
    secret_line,
)
from tests.unit.authenticator.model.test_chain import of_an_unknown_key, of_version_5


def fingerprint(pem: str) -> str:
    public = x509.load_pem_x509_certificate(pem.encode()).public_key()
    return hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def test_it_is_named_by_its_ca() -> None:
    assert cluster().ca_cert_hash.text == f"sha256:{fingerprint(authority())}"


def test_the_first_of_several_cas_names_it() -> None:
    assert cluster(certificate_authority=authority(1) + authority()).ca_cert_hash == cluster(1).ca_cert_hash


@pytest.mark.parametrize(
    ("server", "host", "port", "path"),
    [
        ("https://api.example:6443", "api.example", 6443, ""),
        ("https://api.example", "api.example", 443, ""),
        ("https://api.example:6443/", "api.example", 6443, ""),
        ("https://api.example/clusters/a/", "api.example", 443, "/clusters/a"),
        ("https://api.example/X/", "api.example", 443, "/X"),
        ("https://[2001:db8::1]:6443", "2001:db8::1", 6443, ""),
        ("https://192.0.2.7:6443", "192.0.2.7", 6443, ""),
        ("HTTPS://API.example", "api.example", 443, ""),
    ],
)
def test_addresses(server: str, host: str, port: int, path: str) -> None:
    made = cluster(server=server)
    assert (made.host, made.port, made.path) == (host, port, path)


@pytest.mark.parametrize(
    "server",
    [
        "",
        "api.example:6443",
        "http://api.example",
        "unix:///run/api",
        "https://",
        "https://:6443",
        "https:///path",
        "https://[",
        "https://[::1",
        "https://api.example:port",
        "https://api.example:65536",
        "https://api.example:-1",
        "https://api.example?x=y",
        "https://api.example#x",
        "https://user@api.example",
        "https://user:password@api.example",
        "https://:password@api.example",
        "https://ex\uff03ample",
        "https://\u00e4pi.example",
        "https://api.example/a b",
        "https://api.example\n",
        " https://api.example",
        "https://api.example/\x7f",
    ],
)
def test_what_is_no_address_is_refused(server: str) -> None:
    with pytest.raises(InvalidCluster, match=r"^the API server's address must be https://host\[:port\]$"):
        cluster(server=server)


@pytest.mark.parametrize(
    "pem",
    [
        pytest.param("", id="none"),
        pytest.param("text", id="text"),
        pytest.param("\u00e4", id="not-ascii"),
        pytest.param(key_pem(), id="a-key"),
        pytest.param(of_version_5().decode(), id="version-5"),
        pytest.param(of_an_unknown_key().decode(), id="unknown-key"),
    ],
)
def test_what_is_no_ca_is_refused(pem: str) -> None:
    with pytest.raises(InvalidCluster, match="CA certificate is unreadable"):
        cluster(certificate_authority=pem)


# Credentials


def test_a_digest_tells_one_credential_from_another() -> None:
    held = ClientCertificate(pem_of(certificate()), key_pem())
    digests = {
        bootstrap().digest,
        bootstrap("abcdef.fedcba9876543210").digest,
        Bootstrap(cluster(), held).digest,
        Bootstrap(cluster(), ClientCertificate(held.certificate, key_pem(1))).digest,
        Bootstrap(cluster(), ClientCertificate(pem_of(certificate(key=1)), held.key)).digest,
        Bootstrap(cluster(), ClientCertificate(held.certificate[:-1], f"\n{held.key}")).digest,
    }
    assert len(digests) == 6
    assert all(len(digest) == 64 for digest in digests)


def test_the_same_credential_has_the_same_digest_at_another_address() -> None:
    moved = Bootstrap(cluster(server="https://elsewhere.example", tls_server_name="x"), BearerToken(TOKEN))
    assert moved.digest == bootstrap().digest


def test_the_digest_is_the_credentials_and_not_the_authoritys() -> None:
    """A CA bundle that was changed makes no new credential of a used one."""
    assert bootstrap(number=1).digest == bootstrap().digest


def test_a_cluster_is_known_by_any_of_its_authorities() -> None:
    old, new = cluster(), bootstrap(number=1).cluster
    both = cluster(certificate_authority=new.certificate_authority + old.certificate_authority)
    assert both.shares_authority_with(old)
    assert old.shares_authority_with(both)
    assert not old.shares_authority_with(new)


def test_the_digest_stays() -> None:
    """Stored by every released node: another one would take a used token in again."""
    expected = hashlib.sha256()
    for part in (TOKEN,):
        expected.update(len(part).to_bytes(8, "big") + part.encode())
    assert bootstrap().digest == expected.hexdigest()


@pytest.mark.parametrize(
    ("value", "secret"),
    [
        (BearerToken(TOKEN), TOKEN),
        (bootstrap(), TOKEN),
        (ClientCertificate("certificate", key_pem()), secret_line(key_pem())),
        (Bootstrap(cluster(), ClientCertificate("certificate", key_pem())), secret_line(key_pem())),
    ],
    ids=["token", "bootstrap", "certificate", "bootstrap-certificate"],
)
def test_nothing_shows_a_secret(value: Any, secret: str) -> None:
    assert secret not in repr(value)
    assert secret not in str(value)
