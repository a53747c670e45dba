"""Names of the control plane: in its API servers' certificates, and in the operator's list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtensionOID

from signer.model.control_plane_names import (
    DEFAULT_RESERVED_NAMES,
    MAXIMUM_CERTIFICATES,
    ControlPlaneReport,
    InvalidReservedNames,
    ReservedNames,
    UnreadableServerCertificate,
    names_in,
)
from signer.testing.api.authorities import Issuer, load_certificates

ISSUER = Issuer.new()


def certificate(*names: str, addresses: tuple[str, ...] = ()) -> bytes:
    pem, _ = ISSUER.serving(names, addresses)
    (found,) = load_certificates(pem)
    return found.public_bytes(Encoding.DER)


VERSION_3, VERSION_8 = bytes.fromhex("a003020102"), bytes.fromhex("a003020107")


def with_an_unknown_feature() -> bytes:
    """A certificate with a TLS feature (RFC 7633) that the library does not know. TLS accepts it."""
    key, name, now = ec.generate_private_key(ec.SECP256R1()), x509.Name([]), datetime.now(UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + timedelta(days=1))
    feature = x509.UnrecognizedExtension(ExtensionOID.TLS_FEATURE, bytes.fromhex("3003020107"))
    return builder.add_extension(feature, critical=False).sign(key, SHA256()).public_bytes(Encoding.DER)


def test_names_and_addresses_in_canonical_form() -> None:
    shown = certificate("API.Example", "*.apps.example", addresses=("192.0.2.1", "2001:db8:0::1"))
    assert names_in(shown) == {"api.example", "*.apps.example", "192.0.2.1", "2001:db8::1"}
    assert names_in(certificate()) == frozenset()


def test_before_any_certificate_nothing_is_known() -> None:
    report = ControlPlaneReport()
    assert "has not seen the API server's certificate yet" in report.unknown
    report.saw(certificate("api.example", "*.apps.example"))
    assert report.unknown == ""
    asked = ("api.example", "x.apps.example", "apps.example", "y.x.apps.example", "other.example")
    assert report.names_among(asked) == {"api.example", "x.apps.example"}


def test_several_api_servers_behind_one_endpoint() -> None:
    """Each certificate has the names of its own node."""
    report = ControlPlaneReport()
    for number in range(MAXIMUM_CERTIFICATES + 1):
        report.saw(certificate(f"cp-{number}"))
    names = [f"cp-{number}" for number in range(MAXIMUM_CERTIFICATES + 1)]
    assert report.names_among(names) == set(names[1:])


def test_what_cannot_be_read_is_unknown_until_one_can() -> None:
    report = ControlPlaneReport()
    shown = certificate("api.example")
    report.saw(shown)
    for unreadable in (b"none", shown[:-1], with_an_unknown_feature(), shown.replace(VERSION_3, VERSION_8)):
        with pytest.raises(UnreadableServerCertificate, match="cannot be read"):
            names_in(unreadable)
        report.saw(unreadable)
        assert "its certificate cannot be read" in report.unknown
    report.saw(shown)
    assert report.unknown == ""


@pytest.mark.parametrize(
    "name", ["konnectivity-server", "konnectivity-server.kube-system", "etcd-0.etcd", "m1.etcd", "etcd-12.example.com"]
)
def test_reserved_by_default(name: str) -> None:
    assert DEFAULT_RESERVED_NAMES.has(name)


@pytest.mark.parametrize("name", ["worker-1", "worker.etcd.example.com", "etcdish", "my-etcd-1", "kube-proxy"])
def test_not_reserved_by_default(name: str) -> None:
    assert not DEFAULT_RESERVED_NAMES.has(name)


def test_the_operators_own_list() -> None:
    reserved = ReservedNames.parse(["registry", "vault-*"])
    assert [reserved.has(name) for name in ("registry.corp", "vault-1", "vault", "etcd")] == [True, True, False, False]
    assert not ReservedNames.parse([]).has("etcd")


@pytest.mark.parametrize(
    "value", [None, "etcd", {}, [7], ["Etcd"], ["*"], ["a*b"], ["etcd.kube-system"], [""], ["-a"], ["a"] * 65], ids=repr
)
def test_what_is_no_list_of_labels(value: Any) -> None:
    with pytest.raises(InvalidReservedNames, match="must be a list of"):
        ReservedNames.parse(value)
