from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID

from attestors.wire.certificate_request import node_subject
from attestors.wire.names import Purpose
from authenticator.model.certificate import (
    MAXIMUM_CERTIFICATE_BYTES,
    UnusableCertificate,
    accept,
    check_pair,
    is_of_node,
    load_key,
    new_key,
    public_key_info,
)
from authenticator.model.pair import Pair
from tests.unit.authenticator.builders import (
    CLIENT,
    NODE,
    NOW,
    SERVING,
    certificate,
    key_pem,
    pair,
    pem_of,
    private_key,
    secret_line,
)
from tests.unit.authenticator.model.test_chain import EC_ALGORITHM, of_an_unknown_key, of_version_5, pem_around

LONG_NAME = "n" * 60 + ".example"


def accepted(
    issued: x509.Certificate | bytes,
    *,
    key: str = "",
    purpose: Purpose = Purpose.CLIENT,
    node_name: str = NODE,
    dns_names: tuple[str, ...] = (),
    ip_addresses: tuple[str, ...] = (),
) -> Pair:
    data = issued if isinstance(issued, bytes) else pem_of(issued).encode("ascii")
    return accept(
        data,
        key or key_pem(),
        node_name=node_name,
        purpose=purpose,
        dns_names=dns_names,
        ip_addresses=ip_addresses,
        now=NOW,
    )


def subject(*attributes: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(oid, text) for oid, text in attributes])


def with_the_usage_twice() -> bytes:
    """A certificate whose two extensions are one and the same."""
    names = (x509.DNSName("a"),)
    der = certificate(names=names).public_bytes(Encoding.DER)
    usage, alternative = bytes.fromhex("0603551d25"), bytes.fromhex("0603551d11")
    assert der.count(alternative) == 1
    return pem_around(der.replace(alternative, usage))


def with_a_name_of_an_unknown_kind() -> bytes:
    """A certificate with an ``x400Address`` among its names."""
    der = certificate(names=[x509.DNSName("planted")]).public_bytes(Encoding.DER)
    assert der.count(b"\x82\x07planted") == 1
    return pem_around(der.replace(b"\x82\x07planted", b"\xa3\x07planted"))


def with_a_time_that_there_is_not(which: str, time: bytes) -> bytes:
    """A certificate whose ``notBefore`` or ``notAfter`` no calendar has."""
    moment = datetime(2051, 1, 1, tzinfo=UTC)  # of which on times have a year of four digits
    changes: dict[str, Any] = {which: moment} | (
        {"not_after": moment + timedelta(days=1)} if which == "not_before" else {}
    )
    der = certificate(**changes).public_bytes(Encoding.DER)
    assert der.count(b"\x18\x0f20510101000000Z") == 1
    return pem_around(der.replace(b"\x18\x0f20510101000000Z", b"\x18\x0f" + time))


# Keys


def test_a_new_key_is_the_kubelets_kind_and_never_the_same() -> None:
    one, other = new_key(), new_key()
    key = load_pem_private_key(one.encode(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert one.startswith("-----BEGIN PRIVATE KEY-----\n")
    assert one != other


def test_a_key_is_read_back() -> None:
    assert public_key_info(load_key(key_pem())) == private_key().public_key().public_bytes(
        Encoding.DER, PublicFormat.SubjectPublicKeyInfo
    )


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("\u00e4", id="not-ascii"),
        pytest.param(pem_of(certificate()), id="a-certificate"),
        pytest.param(key_pem()[:-40], id="cut-off"),
        pytest.param(
            ed25519.Ed25519PrivateKey.generate()
            .private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
            .decode(),
            id="another-kind",
        ),
        pytest.param(
            pem_around(
                private_key()
                .private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
                .replace(EC_ALGORITHM, EC_ALGORITHM[:-1] + b"\x7f")
            )
            .decode()
            .replace("CERTIFICATE", "PRIVATE KEY"),
            id="unknown-kind",
        ),
    ],
)
def test_what_is_no_key_of_ours_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        load_key(text)


# What was issued


def test_a_certificate_for_this_key_name_and_use_is_accepted() -> None:
    issued = certificate()
    found = accepted(issued)
    assert (found.certificate, found.key) == (pem_of(issued), key_pem())
    assert found.not_after == int(issued.not_valid_after_utc.timestamp())


def test_a_serving_certificate_is_accepted_for_serving() -> None:
    issued = certificate(usages=[SERVING], names=[x509.DNSName(NODE)])
    assert accepted(issued, purpose=Purpose.SERVING, dns_names=(NODE,)).certificate == pem_of(issued)


def test_the_whole_chain_is_kept_and_nothing_else() -> None:
    chain = pem_of(certificate(), certificate(key=3))
    surrounded = f"text before\n{chain}text behind\n{key_pem(5)}".encode("ascii")
    assert accepted(surrounded).certificate == chain


def test_a_long_node_name_is_no_objection() -> None:
    issued = certificate(subject=node_subject(LONG_NAME))
    assert accepted(issued, node_name=LONG_NAME).key == key_pem()


def test_the_order_of_the_subject_does_not_matter() -> None:
    turned = subject((NameOID.COMMON_NAME, f"system:node:{NODE}"), (NameOID.ORGANIZATION_NAME, "system:nodes"))
    assert accepted(certificate(subject=turned)).key == key_pem()


def test_another_key_is_refused() -> None:
    with pytest.raises(UnusableCertificate, match="it is for another key"):
        accepted(certificate(key=1))


def test_a_stored_key_that_cannot_be_read_is_refused() -> None:
    """A damaged file must end in a new key and a new request, not in the same error for ever."""
    with pytest.raises(UnusableCertificate, match="the stored key"):
        accepted(certificate(), key="damaged")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(node_subject("worker-2"), id="another-node"),
        pytest.param(subject((NameOID.COMMON_NAME, f"system:node:{NODE}")), id="without-the-group"),
        pytest.param(
            subject((NameOID.ORGANIZATION_NAME, "system:masters"), (NameOID.COMMON_NAME, f"system:node:{NODE}")),
            id="another-group",
        ),
        pytest.param(
            subject(
                (NameOID.ORGANIZATION_NAME, "system:nodes"),
                (NameOID.ORGANIZATION_NAME, "system:masters"),
                (NameOID.COMMON_NAME, f"system:node:{NODE}"),
            ),
            id="one-more-group",
        ),
        pytest.param(subject(), id="none"),
    ],
)
def test_another_subject_is_refused(name: x509.Name) -> None:
    with pytest.raises(UnusableCertificate, match=f"its subject is not that of node {NODE}"):
        accepted(certificate(subject=name))


@pytest.mark.parametrize(
    ("usages", "purpose"), [([SERVING], Purpose.CLIENT), ([CLIENT], Purpose.SERVING)], ids=["serving", "client"]
)
def test_another_use_is_refused(usages: list[x509.ObjectIdentifier], purpose: Purpose) -> None:
    with pytest.raises(UnusableCertificate, match=f"it is not for {purpose.value} authentication"):
        accepted(certificate(usages=usages), purpose=purpose)


ASKED_NAMES = ("one.example", "two.example")
ASKED_ADDRESSES = ("192.0.2.7", "2001:db8::7")
ISSUED_NAMES: list[x509.GeneralName] = [
    x509.IPAddress(ip_address("2001:db8:0::7")),
    x509.DNSName("two.example"),
    x509.DNSName("one.example"),
    x509.IPAddress(ip_address("192.0.2.7")),
]


def serving_certificate(*names: x509.GeneralName) -> Pair:
    return accepted(
        certificate(usages=[SERVING], names=names),
        purpose=Purpose.SERVING,
        dns_names=ASKED_NAMES,
        ip_addresses=ASKED_ADDRESSES,
    )


def test_exactly_the_names_that_were_asked_for_are_accepted_in_any_order() -> None:
    assert serving_certificate(*ISSUED_NAMES).key == key_pem()


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([], id="none"),
        pytest.param(ISSUED_NAMES[1:], id="an-address-less"),
        pytest.param(ISSUED_NAMES[:2] + ISSUED_NAMES[3:], id="a-name-less"),
        pytest.param([*ISSUED_NAMES, x509.DNSName("three.example")], id="a-name-more"),
        pytest.param([*ISSUED_NAMES, x509.IPAddress(ip_address("192.0.2.8"))], id="an-address-more"),
        pytest.param([*ISSUED_NAMES[:3], x509.DNSName("192.0.2.7")], id="an-address-as-a-name"),
        pytest.param([*ISSUED_NAMES, x509.UniformResourceIdentifier("one.example")], id="one-of-another-kind"),
    ],
)
def test_other_names_are_refused(names: list[x509.GeneralName]) -> None:
    with pytest.raises(UnusableCertificate, match="it is for other names or addresses than requested"):
        serving_certificate(*names)


def test_a_client_certificate_with_names_is_refused() -> None:
    with pytest.raises(UnusableCertificate, match="other names"):
        accepted(certificate(names=[x509.DNSName(NODE)]))


def test_one_that_ran_out_is_refused() -> None:
    accepted(certificate(not_after=NOW + timedelta(seconds=1)))
    with pytest.raises(UnusableCertificate, match="it has expired already"):
        accepted(certificate(not_after=NOW))


def test_a_clock_may_be_a_little_behind_and_no_more() -> None:
    accepted(certificate(not_before=NOW + timedelta(minutes=5)))
    with pytest.raises(UnusableCertificate, match="it is not valid before 2026-01-02T03:09:06Z"):
        accepted(certificate(not_before=NOW + timedelta(minutes=5, seconds=1)))


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\xff", id="bytes"),
        pytest.param(key_pem().encode(), id="a-key"),
        pytest.param(pem_of(certificate(usages=())).encode(), id="no-use"),
        pytest.param(of_version_5(), id="version-5"),
        pytest.param(of_an_unknown_key(), id="unknown-key"),
        pytest.param(with_the_usage_twice(), id="extension-twice"),
        pytest.param(with_a_name_of_an_unknown_kind(), id="unknown-name"),
        pytest.param(with_a_time_that_there_is_not("not_before", b"00000101000000Z"), id="begins-in-year-0"),
        pytest.param(with_a_time_that_there_is_not("not_after", b"00000101000000Z"), id="ends-in-year-0"),
        pytest.param(with_a_time_that_there_is_not("not_after", b"20511301000000Z"), id="ends-in-month-13"),
    ],
)
def test_what_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(UnusableCertificate, match="it is unreadable, or does not state its use"):
        accepted(data)


def test_the_size_is_bounded() -> None:
    issued = pem_of(certificate()).encode("ascii")
    accepted(issued + b"\n" * (MAXIMUM_CERTIFICATE_BYTES - len(issued)))
    with pytest.raises(UnusableCertificate, match="larger than 49152 bytes"):
        accepted(issued + b"\n" * (MAXIMUM_CERTIFICATE_BYTES - len(issued) + 1))


def test_what_could_not_be_read_again_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("authenticator.model.pair.MAXIMUM_CHARACTERS", 100)
    with pytest.raises(UnusableCertificate, match="it cannot be stored: longer than 100 characters"):
        accepted(certificate())


@pytest.mark.parametrize("data", [b"", b"\xff", pem_of(certificate(key=1)).encode()])
def test_no_refusal_holds_the_key(data: bytes) -> None:
    with pytest.raises(UnusableCertificate) as refused:
        accepted(data)
    assert secret_line(key_pem()) not in str(refused.value)


# Stored pairs


def test_a_pair_that_belongs_together_passes() -> None:
    check_pair(pair())


def test_a_chain_is_checked_by_its_first() -> None:
    found = pair()
    check_pair(Pair(found.certificate + pem_of(certificate(key=3)), found.key, 0, 1))
    with pytest.raises(UnusableCertificate, match="do not belong together"):
        check_pair(Pair(pem_of(certificate(key=3)) + found.certificate, found.key, 0, 1))


def test_a_pair_of_two_halves_is_refused() -> None:
    with pytest.raises(UnusableCertificate, match="certificate and key do not belong together"):
        check_pair(Pair(pair().certificate, key_pem(1), 0, 1))


@pytest.mark.parametrize(
    ("text", "key"),
    [
        pytest.param("", key_pem(), id="no-certificate"),
        pytest.param(pem_of(certificate()), "", id="no-key"),
        pytest.param("\u00e4", key_pem(), id="not-ascii"),
        pytest.param(of_version_5().decode(), key_pem(), id="version-5"),
        pytest.param(of_an_unknown_key().decode(), key_pem(), id="unknown-key"),
    ],
)
def test_a_pair_that_cannot_be_read_is_refused(text: str, key: str) -> None:
    with pytest.raises(UnusableCertificate, match="certificate or key is unreadable"):
        check_pair(Pair(text, key, 0, 1))


@pytest.mark.parametrize("part", [b"system:nodes", b"kubernetes"], ids=["subject", "issuer"])
def test_a_name_that_is_no_text_is_refused(part: bytes) -> None:
    """The library reads names when they are asked for; what it raises must not end the program."""
    der = certificate().public_bytes(Encoding.DER)
    assert part in der
    with pytest.raises(UnusableCertificate, match="is unreadable,"):
        accepted(pem_around(der.replace(part, b"\xff" + part[1:])))


@pytest.mark.parametrize("part", [b"system:nodes", b"kubernetes"], ids=["subject", "issuer"])
def test_a_name_of_bits_is_refused(part: bytes) -> None:
    der = certificate().public_bytes(Encoding.DER)
    text = bytes([0x0C, len(part)]) + part
    assert text in der
    with pytest.raises(UnusableCertificate, match="is unreadable,"):
        accepted(pem_around(der.replace(text, bytes([0x03, len(part)]) + b"\x00" + part[1:])))


def test_the_node_of_a_stored_certificate() -> None:
    own, others = pair(), pair(subject=node_subject("other"))
    assert is_of_node(own, NODE)
    assert not is_of_node(own, "other")
    assert is_of_node(Pair(own.certificate + others.certificate, own.key, 0, 0), NODE)
    assert not is_of_node(Pair(others.certificate + own.certificate, own.key, 0, 0), NODE)


def test_an_unreadable_stored_certificate() -> None:
    with pytest.raises(UnusableCertificate, match="the certificate is unreadable"):
        is_of_node(Pair("none", key_pem(), 0, 0), NODE)
