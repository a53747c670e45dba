from __future__ import annotations

import ipaddress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from signer.authority import (
    IssuanceRefused,
    IssuanceRefusedReason,
    KeyWithheld,
    LinkNotPossible,
    LinkNotPossibleReason,
    ServerNames,
    new_with_old,
    old_with_new,
)
from signer.authority.lenient_certificate import CACertificate, parse_ca_certificate
from tests.unit.signer.authority.chains import (
    CLIENT,
    DAY,
    SERVER,
    Authority,
    der,
    made_link,
    new_old,
    of_cluster_api,
    of_our_own,
    old_new,
    successor,
)
from tests.unit.signer.authority.support import NOW, ec_key, key_usage, make, rsa_key

pytestmark = pytest.mark.usefixtures("release")
ONLY_CERT_SIGN = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
LOCAL = ServerNames(("kubernetes",), (ipaddress.ip_network("10.96.0.1/32"),))


@pytest.fixture(scope="module", params=["ecdsa", "rsa"])
def old(request: pytest.FixtureRequest) -> Authority:
    return of_cluster_api(key=ec_key(1) if request.param == "ecdsa" else rsa_key(number=1))


@pytest.fixture(scope="module")
def new(old: Authority) -> Authority:
    return successor(old)


def extensions(certificate: CACertificate) -> dict[type, tuple[x509.ExtensionType, bool]]:
    return {type(item.value): (item.value, item.critical) for item in certificate.extensions}


def refused(answer: object) -> LinkNotPossibleReason:
    assert isinstance(answer, LinkNotPossible)
    return answer.reason


def test_old_with_new(old: Authority, new: Authority) -> None:
    link = old_new(old, new)
    certificate = link.certificate
    certificate.require_directly_issued_by(new.certificate)
    assert certificate.subject == old.certificate.subject
    assert certificate.subject_public_key_info == old.certificate.subject_public_key_info
    assert certificate.serial_number.bit_length() == 127
    assert (certificate.not_before, link.not_after) == (NOW - timedelta(hours=1), NOW + DAY)
    old_identifier, new_identifier = (ca.certificate.subject_key_identifier for ca in (old, new))
    assert old_identifier is not None
    assert new_identifier is not None
    assert extensions(certificate) == {
        x509.KeyUsage: (ONLY_CERT_SIGN, True),
        x509.BasicConstraints: (x509.BasicConstraints(ca=True, path_length=0), True),
        x509.ExtendedKeyUsage: (SERVER, False),
        x509.SubjectKeyIdentifier: (old_identifier, False),
        x509.AuthorityKeyIdentifier: (x509.AuthorityKeyIdentifier(new_identifier.digest, None, None), False),
    }


def test_new_with_old_is_for_servers_and_clients(new: Authority) -> None:
    old = of_our_own("kubernetes", ec_key(2))
    certificate = new_old(old, new).certificate
    certificate.require_directly_issued_by(old.certificate)
    assert certificate.subject == new.certificate.subject
    assert certificate.subject_public_key_info == new.certificate.subject_public_key_info
    assert certificate.extended_key_usage == x509.ExtendedKeyUsage(
        [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    )


def test_cluster_apis_path_length_forbids_new_with_old(old: Authority, new: Authority) -> None:
    answer = new_with_old(new=new.certificate, old=old.loaded, now=NOW, lifetime=DAY)
    assert refused(answer) is LinkNotPossibleReason.PATH_LENGTH
    assert isinstance(answer, LinkNotPossible)
    assert "path length 0" in answer.message
    down = old_with_new(old=new.certificate, new=old.loaded, now=NOW, lifetime=DAY)
    assert refused(down) is LinkNotPossibleReason.PATH_LENGTH


@pytest.mark.parametrize(
    ("old_length", "new_length", "down", "up"),
    [(None, None, None, None), (1, None, 1, 0), (2, None, 2, 1), (None, 1, 0, 1), (5, 2, 1, 2), (2, 5, 2, 1)],
)
def test_path_lengths(old_length: int | None, new_length: int | None, down: int | None, up: int | None) -> None:
    old = of_our_own("old", ec_key(2), path_length=old_length)
    new = of_our_own("new", ec_key(3), path_length=new_length)
    for link, expected in ((old_new(old, new), down), (new_old(old, new), up)):
        assert link.certificate.basic_constraints == x509.BasicConstraints(ca=True, path_length=expected)


def test_it_ends_with_the_first_of_both() -> None:
    short, long = of_our_own("a", ec_key(2), not_after=NOW + 3 * DAY), of_our_own("b", ec_key(3))
    for old, new in ((short, long), (long, short)):
        assert old_new(old, new, lifetime=2 * DAY).not_after == NOW + 2 * DAY
        assert old_new(old, new, lifetime=40 * DAY).not_after == NOW + 3 * DAY
        assert new_old(old, new, lifetime=40 * DAY).not_after == NOW + 3 * DAY


def test_it_begins_with_the_last_of_both() -> None:
    young, aged = of_our_own("a", ec_key(2), not_before=NOW - timedelta(minutes=3)), of_our_own("b", ec_key(3))
    for old, new in ((young, aged), (aged, young)):
        assert old_new(old, new).certificate.not_before == NOW - timedelta(minutes=3)


@pytest.mark.parametrize(
    ("later", "lifetime"),
    [
        (timedelta(0), timedelta(minutes=9)),
        (timedelta(0), -DAY),
        (4 * DAY, DAY),
        (3 * DAY - timedelta(minutes=9), DAY),
        (-DAY - timedelta(minutes=1), DAY),
    ],
)
def test_no_time(later: timedelta, lifetime: timedelta) -> None:
    short, long = of_our_own("a", ec_key(2), not_after=NOW + 3 * DAY), of_our_own("b", ec_key(3))
    for old, new in ((short, long), (long, short)):
        answer = old_with_new(old=old.certificate, new=new.loaded, now=NOW + later, lifetime=lifetime)
        assert refused(answer) is LinkNotPossibleReason.VALIDITY


def test_a_ca_that_may_not_sign_servers_or_clients() -> None:
    plain = of_our_own("a", ec_key(2))
    for_clients = of_our_own("b", ec_key(3), extra=((CLIENT, False),))
    for_servers = of_our_own("c", ec_key(4), extra=((SERVER, False),))
    for old, new in ((plain, for_clients), (for_clients, plain)):
        answer = old_with_new(old=old.certificate, new=new.loaded, now=NOW, lifetime=DAY)
        assert refused(answer) is LinkNotPossibleReason.EXTENDED_KEY_USAGE
    old_new(plain, for_servers)
    answer = new_with_old(new=plain.certificate, old=for_servers.loaded, now=NOW, lifetime=DAY)
    assert refused(answer) is LinkNotPossibleReason.EXTENDED_KEY_USAGE


def test_a_ca_without_key_identifier() -> None:
    made = make("a", ec_key(2), usage=key_usage(key_cert_sign=True))
    new = of_our_own("b", ec_key(3))
    bare = replace(of_our_own("a", ec_key(2)).loaded, certificate=parse_ca_certificate(der(made)))
    link = made_link(old_with_new(old=bare.certificate, new=new.loaded, now=NOW, lifetime=DAY)).certificate
    assert link.subject_key_identifier == x509.SubjectKeyIdentifier.from_public_key(ec_key(2).public_key())
    upward = made_link(new_with_old(new=new.certificate, old=bare, now=NOW, lifetime=DAY)).certificate
    expected = x509.AuthorityKeyIdentifier.from_issuer_public_key(ec_key(2).public_key())
    assert extensions(upward)[x509.AuthorityKeyIdentifier] == (expected, False)


def test_names_are_copied_byte_for_byte() -> None:
    """Go writes the common name as a PrintableString, and the library as a UTF8String."""
    new = of_our_own("new", ec_key(3))
    old = of_cluster_api(2)
    printable = old.certificate.subject.replace(b"\x0c\x0akubernetes", b"\x13\x0akubernetes")
    assert printable != old.certificate.subject
    renamed = replace(old.certificate, subject=printable)
    link = made_link(old_with_new(old=renamed, new=new.loaded, now=NOW, lifetime=DAY))
    assert link.certificate.subject == printable


def test_limited_to_servers(old: Authority, new: Authority) -> None:
    link = old_new(old, new, names=LOCAL)
    expected = x509.NameConstraints(
        [x509.DNSName("kubernetes"), x509.IPAddress(ipaddress.ip_network("10.96.0.1/32"))], None
    )
    assert extensions(link.certificate)[x509.NameConstraints] == (expected, True)


@pytest.mark.parametrize("names", [{"dns_names": ()}, {"networks": ()}])
def test_a_limit_of_one_kind_of_name_is_none(names: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="host names and in addresses"):
        replace(LOCAL, **names)


def test_a_link_does_not_lift_the_certified_cas_limits() -> None:
    constraints = x509.NameConstraints(None, [x509.DNSName("example.org")])
    old = of_our_own("old", ec_key(2), extra=((constraints, True),))
    new = of_our_own("new", ec_key(3))
    assert extensions(old_new(old, new).certificate)[x509.NameConstraints] == (constraints, True)
    answer = old_with_new(old=old.certificate, new=new.loaded, now=NOW, lifetime=DAY, names=LOCAL)
    assert refused(answer) is LinkNotPossibleReason.NAME_CONSTRAINTS


def test_bugs_of_the_caller(old: Authority, new: Authority) -> None:
    with pytest.raises(ValueError, match="aware"):
        old_new(old, new, now=NOW.replace(tzinfo=None))
    with pytest.raises(ValueError, match="same key"):
        old_new(old, old)
    with pytest.raises(IssuanceRefused) as caught:
        old_with_new(old=old.certificate, new=replace(new.loaded, private_key=KeyWithheld()), now=NOW, lifetime=DAY)
    assert caught.value.reason is IssuanceRefusedReason.KEY_WITHHELD
