from __future__ import annotations

import ipaddress
import warnings
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa, x25519
from cryptography.x509.oid import ExtendedKeyUsageOID

from signer.authority import (
    CertificateUsage,
    IssuanceRefused,
    IssuanceRefusedReason,
    IssuingSet,
    issuance,
    issue,
)
from tests.unit.signer.authority.support import (
    CLIENT,
    NOW,
    SERVING,
    authority,
    capi_secret,
    ec_key,
    make,
    request,
    rsa_key,
)

Reason = IssuanceRefusedReason
V4 = ipaddress.ip_address("10.1.2.3")


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> None:
    warnings.simplefilter("error")


@pytest.mark.parametrize(
    ("reason", "changes"),
    [
        (Reason.SUBJECT_INVALID, {"organization": "system:masters"}),
        (Reason.SUBJECT_INVALID, {"organization": ""}),
        (Reason.SUBJECT_INVALID, {"subject_common_name": "kubernetes-admin"}),
        (Reason.SUBJECT_INVALID, {"subject_common_name": "system:node:"}),
        (Reason.SUBJECT_INVALID, {"subject_common_name": "xsystem:node:a"}),
        (Reason.SUBJECT_INVALID, {"subject_common_name": "system:node:Upper"}),
        (Reason.SUBJECT_INVALID, {"subject_common_name": "system:node:a\n"}),
        (Reason.SUBJECT_INVALID, {"subject_common_name": "system:node:a..b"}),
        (Reason.SUBJECT_INVALID, {"subject_common_name": "system:node:" + "a" * 254}),
        (Reason.PUBLIC_KEY_UNSUPPORTED, {"public_key": rsa_key(1024).public_key()}),
        (Reason.PUBLIC_KEY_UNSUPPORTED, {"public_key": ec.generate_private_key(ec.SECP256K1()).public_key()}),
        (Reason.PUBLIC_KEY_UNSUPPORTED, {"public_key": x25519.X25519PrivateKey.generate().public_key()}),
        (Reason.USAGES_INVALID, {"usages": frozenset()}),
        (Reason.USAGES_INVALID, {"usages": frozenset({CertificateUsage.CLIENT_AUTH})}),
        (Reason.USAGES_INVALID, {"usages": frozenset({CertificateUsage.DIGITAL_SIGNATURE})}),
        (Reason.USAGES_INVALID, {"usages": CLIENT | SERVING}),
        (Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID, {"dns_names": ("worker-1",)}),
        (Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID, {"ip_addresses": (V4,)}),
        (Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID, {"usages": SERVING}),
        (Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID, {"usages": SERVING, "dns_names": ("*.example.org",)}),
        (Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID, {"usages": SERVING, "dns_names": ("",)}),
        (Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID, {"usages": SERVING, "dns_names": ("a\x00b",)}),
        (Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID, {"usages": SERVING, "dns_names": ("a",) * 65}),
        (
            Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID,
            {"usages": SERVING, "ip_addresses": (ipaddress.IPv6Address("fe80::1%eth0"),)},
        ),
        (
            Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID,
            {"usages": SERVING, "ip_addresses": (V4, ipaddress.IPv6Address("fe80::1%eth0"))},
        ),
        (Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID, {"usages": SERVING, "dns_names": ("a", "*.example.org")}),
        (Reason.SERIAL_NUMBER_INVALID, {"serial_number": 0}),
        (Reason.SERIAL_NUMBER_INVALID, {"serial_number": -1}),
        (Reason.SERIAL_NUMBER_INVALID, {"serial_number": 1 << 159}),
        (Reason.VALIDITY_INVALID, {"not_before": NOW.replace(tzinfo=None)}),
        (Reason.VALIDITY_INVALID, {"not_after": NOW + timedelta(microseconds=1)}),
        (Reason.VALIDITY_INVALID, {"not_before": NOW, "not_after": NOW}),
    ],
)
def test_requests_that_no_kubelet_may_make(reason: IssuanceRefusedReason, changes: dict[str, object]) -> None:
    with pytest.raises(IssuanceRefused) as caught:
        request(**changes)
    assert caught.value.reason is reason


def rsa_of(bits: int) -> rsa.RSAPublicKey:
    """Nobody has the private key."""
    return rsa.RSAPublicNumbers(65537, (1 << (bits - 1)) + 1).public_key()


@pytest.mark.parametrize("bits", [2047, 8193])
def test_an_rsa_key_of_another_size(bits: int) -> None:
    with pytest.raises(IssuanceRefused) as caught:
        request(public_key=rsa_of(bits))
    assert caught.value.reason is Reason.PUBLIC_KEY_UNSUPPORTED


@pytest.mark.parametrize(
    "changes",
    [
        {"public_key": rsa_of(2048)},
        {"public_key": rsa_of(8192)},
        {"public_key": ec.generate_private_key(ec.SECP384R1()).public_key()},
        {"public_key": ec.generate_private_key(ec.SECP521R1()).public_key()},
        {"serial_number": (1 << 159) - 1},
        {"usages": SERVING, "dns_names": ("a",) * 63, "ip_addresses": (V4,)},
        {"subject_common_name": "system:node:" + "a" * 253},
    ],
    ids=["RSA-2048", "RSA-8192", "P-384", "P-521", "serial number", "names", "node name"],
)
def test_what_is_just_allowed(changes: dict[str, object]) -> None:
    issue(authority(), request(**changes))


def test_usages_are_called_as_kubernetes_calls_them() -> None:
    assert {usage.value for usage in CertificateUsage} == {
        *("digital signature", "key encipherment", "client auth", "server auth")
    }


class TestOutsideTheAuthority:
    ca = authority(make("ca", ec_key(), not_before=NOW, not_after=NOW + timedelta(days=1)).secret())

    def test_the_edges_are_inside(self) -> None:
        issue(self.ca, request(not_before=NOW - timedelta(minutes=5), not_after=NOW + timedelta(days=1)))

    @pytest.mark.parametrize(
        "changes",
        [
            {"not_after": NOW + timedelta(days=1, seconds=1)},
            {"not_before": NOW - timedelta(minutes=5, seconds=1), "not_after": NOW + timedelta(hours=1)},
        ],
        ids=["outlives-it", "precedes-it"],
    )
    def test_beyond_the_edges(self, changes: dict[str, object]) -> None:
        with pytest.raises(IssuanceRefused) as caught:
            issue(self.ca, request(**changes))
        assert caught.value.reason is Reason.OUTSIDE_AUTHORITY_VALIDITY


@pytest.mark.parametrize(
    ("permitted", "accepted"),
    [
        ([ExtendedKeyUsageOID.CLIENT_AUTH], True),
        ([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE], True),
        ([ExtendedKeyUsageOID.SERVER_AUTH], False),
    ],
)
def test_extended_key_usage_of_the_authority(permitted: list[x509.ObjectIdentifier], accepted: bool) -> None:
    restricted = authority(make("ca", ec_key(), extra=((x509.ExtendedKeyUsage(permitted), False),)).secret())
    if accepted:
        issue(restricted, request())
        return
    with pytest.raises(IssuanceRefused) as caught:
        issue(restricted, request())
    assert caught.value.reason is Reason.USAGE_NOT_PERMITTED_BY_AUTHORITY


class TestSelfCheck:
    @pytest.fixture(autouse=True)
    def encode_anew(self) -> Iterator[None]:
        """What certificates have in common is encoded once: not before a fault is put in, nor kept with it."""
        for kept in (issuance._usage_extensions, issuance._authority_key_identifier):
            kept.cache_clear()
        yield
        for kept in (issuance._usage_extensions, issuance._authority_key_identifier):
            kept.cache_clear()

    def refused(self, authority_: IssuingSet) -> str:
        with pytest.raises(IssuanceRefused) as caught:
            issue(authority_, request())
        assert caught.value.reason is Reason.SELF_CHECK_FAILED
        return caught.value.message

    def test_a_key_that_is_not_the_authoritys(self) -> None:
        signing = authority().client
        assert "signature" in self.refused(IssuingSet.of(replace(signing, private_key=ec_key(1))))

    def test_a_faulty_signature(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def faulty(key: object, data: bytes) -> bytes:
            return bytes(256)

        monkeypatch.setattr("signer.authority.issuance.sign", faulty)
        assert "signature" in self.refused(authority(capi_secret(key=rsa_key())))

    @pytest.mark.parametrize("part", ["time", "integer", "octet_string"])
    def test_an_encoding_that_cannot_be_read_back(self, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
        authority_, asked = authority(), request()
        monkeypatch.setattr(f"signer.authority.der.{part}", lambda *_: b"\x05\x01\x00")
        with pytest.raises(IssuanceRefused) as caught:
            issue(authority_, asked)
        assert caught.value.reason is Reason.SELF_CHECK_FAILED

    def test_another_extension_than_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def always_critical(value: x509.ExtensionType, critical: bool) -> bytes:
            return real(value, True)

        from signer.authority.issuance import encode_extension as real

        monkeypatch.setattr("signer.authority.issuance.encode_extension", always_critical)
        assert "differs from the request" in self.refused(authority())

    def test_another_serial_number_than_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        authority_ = authority()
        monkeypatch.setattr("signer.authority.der.integer", lambda value: b"\x02\x01\x07")
        assert "differs from the request" in self.refused(authority_)

    @pytest.mark.parametrize(
        "changes",
        [
            {"public_key": ec_key(101).public_key()},
            {"not_before": NOW - timedelta(minutes=6)},
            {"not_after": NOW + timedelta(days=8)},
        ],
        ids=lambda changes: ",".join(changes),
    )
    def test_another_certificate_than_asked_for(
        self, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = issuance._tbs_certificate

        def another(signing: Any, algorithm: bytes, asked: Any, extensions: Any) -> bytes:
            return real(signing, algorithm, replace(asked, **changes), extensions)

        monkeypatch.setattr("signer.authority.issuance._tbs_certificate", another)
        assert "differs from the request" in self.refused(authority())
