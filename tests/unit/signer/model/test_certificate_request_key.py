"""The key of a request: its facts, and exactly the bytes that stand there."""

from __future__ import annotations

import warnings

import pytest

from signer.model.certificate_request import KeyKind, PublicKeyFacts, SelfSignature, parse_certificate_request
from tests.support.cpu_time import within_cpu_seconds
from tests.unit.signer.builders import (
    ec_key,
    extension,
    integer,
    node_subject,
    oid,
    pkcs10,
    public_key_info,
    rsa_key,
    rsa_public_key_info,
    sequence,
    tlv,
)


@pytest.fixture(autouse=True)
def _without_any_warning() -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


class TestKey:
    def test_rsa(self) -> None:
        view = parse_certificate_request(pkcs10(rsa_key("rsa-2048")))
        assert view.key == PublicKeyFacts(KeyKind.RSA, 2048, 65537, "")
        assert view.subject_public_key_info == public_key_info(rsa_key("rsa-2048"))
        assert view.signature_is_valid() is SelfSignature.VALID

    def test_long_rsa_key_and_subject(self) -> None:
        # Lengths of one, two and three octets stand before the key.
        key = rsa_public_key_info((1 << 8191) + 1, 65537)
        for name in ("n" * length for length in (1, *range(70, 100), 253)):
            view = parse_certificate_request(pkcs10(subject=node_subject(name), public_key=key))
            assert view.key == PublicKeyFacts(KeyKind.RSA, 8192, 65537, "")
            assert view.subject_public_key_info == key

    def test_key_of_another_kind(self) -> None:
        unknown = sequence(sequence(oid("1.2.3.4")), tlv(0x03, b"\0x"))
        view = parse_certificate_request(pkcs10(public_key=unknown))
        assert view.key == PublicKeyFacts(KeyKind.OTHER, 0, 0, "")
        assert view.key == PublicKeyFacts(KeyKind.OTHER)
        assert view.subject_public_key_info == b""
        assert view.signature_is_valid() is SelfSignature.INVALID

    @pytest.mark.parametrize("kind", ["1.3.101.112", "1.3.101.110"], ids=["Ed25519", "X25519"])
    def test_the_library_is_not_asked_for_a_key_of_another_kind(self, kind: str) -> None:
        known = sequence(sequence(oid(kind)), tlv(0x03, b"\0" + bytes(range(32))))
        view = parse_certificate_request(pkcs10(public_key=known))
        assert (view.key, view.public_key, view.subject_public_key_info) == (PublicKeyFacts(KeyKind.OTHER), None, b"")

    def test_key_elsewhere_does_not_count(self) -> None:
        point = public_key_info(ec_key())[-64:]
        compressed = bytes((2 + point[-1] % 2,)) + point[:32]
        key = sequence(sequence(oid("1.2.840.10045.2.1"), oid("1.2.840.10045.3.1.7")), tlv(0x03, b"\0" + compressed))
        hidden = extension("1.2.3.4", public_key_info(ec_key()))
        view = parse_certificate_request(pkcs10(public_key=key, extensions=[hidden]))
        assert (view.key, view.subject_public_key_info) == (PublicKeyFacts(KeyKind.OTHER), b"")

    def test_a_key_of_another_kind_takes_no_time(self) -> None:
        """Of X9.42 Diffie-Hellman with a subgroup: the library takes two seconds over this one."""
        number = integer((1 << 20_000) - 3)
        group = sequence(oid("1.2.840.10046.2.1"), sequence(number, integer(2), number))
        der = pkcs10(public_key=sequence(group, tlv(0x03, b"\0" + integer((1 << 20_000) - 7))))
        view = within_cpu_seconds(0.3, lambda: parse_certificate_request(der))
        assert view.key == PublicKeyFacts(KeyKind.OTHER)
