from __future__ import annotations

import shutil
import subprocess
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from attestors.wire import certificate_request, provider_id
from attestors.wire.names import MAXIMUM_CERTIFICATE_REQUEST_BYTES, PROVIDER_ID_OID
from attestors.wire.provider_id import InvalidProviderID
from tests.unit.attestors.support import PROVIDER_ID, machine_key_pair

LONG_NODE_NAME = ".".join(["a" * 62, "b" * 62, "c" * 62, "d" * 63])
"""253 characters, the most that Kubernetes allows."""


def build(node_name: str = "node-1", **more: object) -> x509.CertificateSigningRequest:
    der = certificate_request.build(machine_key_pair(), node_name=node_name, provider_id=PROVIDER_ID, **more)  # type: ignore[arg-type]
    return x509.load_der_x509_csr(der)


def openssl(der: bytes, folder: Path, *options: str) -> str:
    """What `openssl req` says of the request, with ``-verify``; it ends with an error if the signature is wrong."""
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    file = folder / "request.der"
    file.write_bytes(der)
    command = [program, "req", "-inform", "DER", "-in", str(file), "-noout", "-verify", *options]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    assert "verify OK" in result.stdout + result.stderr
    return result.stdout


def test_the_subject_is_the_nodes() -> None:
    assert [(name.oid, name.value) for name in build().subject] == [
        (NameOID.ORGANIZATION_NAME, "system:nodes"),
        (NameOID.COMMON_NAME, "system:node:node-1"),
    ]
    assert all(len(list(name)) == 1 for name in build().subject.rdns)


def test_carries_the_provider_id_and_nothing_else() -> None:
    [extension] = build().extensions
    assert extension.oid.dotted_string == PROVIDER_ID_OID == "1.3.6.1.4.1.11129.2.1.21"
    assert not extension.critical
    assert isinstance(extension.value, x509.UnrecognizedExtension)
    assert provider_id.decode(extension.value.value) == PROVIDER_ID


def test_no_more_than_the_controller_reads() -> None:
    names = [f"{'a' * 60}.name-{number:03}.example" for number in range(100)]
    assert 8000 < len(build(dns_names=names[:99]).public_bytes(Encoding.DER)) <= MAXIMUM_CERTIFICATE_REQUEST_BYTES
    with pytest.raises(certificate_request.TooManyNames, match=r"has 8\d{3} bytes with its 100 DNS names and 1 addr"):
        build(dns_names=names, ip_addresses=[IPv4Address("192.0.2.1")])


def test_the_oid_of_the_provider_id_can_be_another() -> None:
    [extension] = build(provider_id_oid="1.2.3.4").extensions
    assert extension.oid.dotted_string == "1.2.3.4"


def test_carries_alternative_names_when_asked_for() -> None:
    addresses = (IPv4Address("192.0.2.1"), IPv6Address("2001:db8::1"))
    names = (
        build(dns_names=["node-1.example.org"], ip_addresses=addresses)
        .extensions.get_extension_for_class(x509.SubjectAlternativeName)
        .value
    )
    assert names.get_values_for_type(x509.DNSName) == ["node-1.example.org"]
    assert names.get_values_for_type(x509.IPAddress) == list(addresses)
    assert len(list(names)) == 3


@pytest.mark.parametrize("kind", ["P-256", "P-384", "RSA-2048"])
def test_openssl_reads_the_same_and_verifies_the_signature(kind: str, tmp_path: Path) -> None:
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
    if kind == "RSA-2048":
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    else:
        key = ec.generate_private_key(ec.SECP256R1() if kind == "P-256" else ec.SECP384R1())
    der = certificate_request.build(
        key,
        node_name="node-1",
        provider_id=PROVIDER_ID,
        dns_names=["node-1.example.org"],
        ip_addresses=[IPv4Address("192.0.2.1")],
    )
    text = openssl(der, tmp_path, "-text")
    assert "Subject: O = system:nodes, CN = system:node:node-1\n" in text.replace("O=", "O = ").replace("CN=", "CN = ")
    assert "DNS:node-1.example.org, IP Address:192.0.2.1" in text
    assert f"{PROVIDER_ID_OID}:" in text
    assert PROVIDER_ID in text
    assert "sha256" in text.lower()


@pytest.mark.parametrize("length", [51, 52, 53, 63, 253])
def test_long_node_names_are_written_in_full(length: int, tmp_path: Path) -> None:
    """With ``system:node:`` a name of 53 characters passes the 64 of X.520; Kubernetes allows 253."""
    name = LONG_NODE_NAME[-length:]
    assert not name.startswith(".")
    der = certificate_request.build(machine_key_pair(), node_name=name, provider_id=PROVIDER_ID)
    assert f"CN=system:node:{name},O=system:nodes\n" in openssl(der, tmp_path, "-subject", "-nameopt", "RFC2253")
    assert f"system:node:{name}".encode() in der


@pytest.mark.parametrize("text", ["", " ", "aws://x ", "aws://x\n"])
def test_refuses_what_is_no_provider_id(text: str) -> None:
    with pytest.raises(InvalidProviderID):
        certificate_request.build(machine_key_pair(), node_name="node-1", provider_id=text)
