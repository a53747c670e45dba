from __future__ import annotations

import ssl
import subprocess
import warnings
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.wire.certificate_request import node_subject
from attestors.wire.ssh.signatures import public_key_of
from authenticator.model.chain import load_chain, name_of, public_key_info_of
from tests.support.certificates import CertificateAuthority
from tests.support.node_access import certificate as ssh_certificate
from tests.support.node_access import text_of
from tests.support.openssh import private_key as ssh_key
from tests.unit.authenticator.builders import NOW, certificate, pem_of, private_key

EC_ALGORITHM = bytes.fromhex("06072a8648ce3d0201")
"""id-ecPublicKey, as it stands in a SubjectPublicKeyInfo."""


def of_version_5() -> bytes:
    """A certificate of a version that X.509 does not have."""
    der = certificate().public_bytes(Encoding.DER)
    assert der.count(bytes.fromhex("a003020102")) == 1
    return pem_around(der.replace(bytes.fromhex("a003020102"), bytes.fromhex("a003020104")))


def of_an_unknown_key() -> bytes:
    """A certificate for a key of a kind that nobody knows."""
    der = certificate().public_bytes(Encoding.DER)
    assert der.count(EC_ALGORITHM) == 1
    return pem_around(der.replace(EC_ALGORITHM, EC_ALGORITHM[:-1] + b"\x7f"))


def pem_around(der: bytes) -> bytes:
    return ssl.DER_cert_to_PEM_cert(der).encode("ascii")


def test_every_certificate_is_read_in_its_order() -> None:
    first, second = certificate(), certificate(key=1, not_after=NOW + timedelta(days=1))
    assert load_chain(pem_of(first, second).encode()) == [first, second]


def test_text_behind_a_certificate_is_passed_over() -> None:
    """The controller hands out SSH certificates there; programs that know nothing of them read the certificate."""
    one = certificate()
    text = text_of(ssh_certificate(public_key_of(ssh_key("rsa-3072"))))
    assert load_chain(pem_of(one).encode() + text) == [one]
    shown = subprocess.run(
        ["openssl", "x509", "-noout", "-serial"],
        input=pem_of(one).encode() + text,
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert shown.stdout == b"serial=%X\n" % one.serial_number


def test_a_ca_of_cluster_api_is_read_without_a_word() -> None:
    """Its serial number is 0, of which the library complains; warnings are errors here."""
    [read] = load_chain(CertificateAuthority.like_cluster_api().certificate_pem)
    assert bytes.fromhex("a003020102020100") in read.public_bytes(Encoding.DER)


def test_other_warnings_are_left_as_they_were() -> None:
    before = list(warnings.filters)
    load_chain(pem_of(certificate()).encode())
    assert warnings.filters == before


@pytest.mark.parametrize(
    "pem",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"text", id="text"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----\n", id="no-certificate"),
        pytest.param(of_version_5(), id="version-5"),
    ],
)
def test_what_is_no_chain_is_refused(pem: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_chain(pem)


@pytest.mark.parametrize("node_name", ["worker-1", "n" * 253])
def test_the_name_of_a_node_is_read_without_a_word(node_name: str) -> None:
    """The library complains of what is longer than X.520 allows; warnings are errors here."""
    made = certificate(subject=node_subject(node_name))
    read = x509.load_pem_x509_certificate(pem_of(made).encode())
    assert node_name in name_of(read).rfc4514_string()


def test_the_public_key_of_a_certificate() -> None:
    expected = private_key().public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert public_key_info_of(certificate()) == expected


def test_a_key_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="a key of an unknown kind"):
        public_key_info_of(x509.load_pem_x509_certificate(of_an_unknown_key()))
