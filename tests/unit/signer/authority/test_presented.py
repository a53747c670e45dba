from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from signer.authority import Presented, ServerNames, Validity, presented_by
from signer.authority.der import Tag, bit_string, read_elements, read_single, sequence
from signer.authority.lenient_certificate import CACertificate, parse_ca_certificate
from tests.unit.signer.authority.chains import (
    CLIENT,
    DAY,
    NAMES,
    SERVER,
    Authority,
    der,
    forged,
    leaf,
    new_old,
    of_cluster_api,
    of_our_own,
    old_new,
    successor,
)
from tests.unit.signer.authority.support import NOW, ec_key, make, rsa_key, with_serial_number

BOTH = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
ANY = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE])


@dataclass(frozen=True)
class Rotation:
    """The old CA as Cluster API makes it; another old CA without path length; the new one; and a third CA."""

    old: Authority
    unlimited: Authority
    new: Authority
    third: Authority


@cache
def rotation(kind: str = "ecdsa") -> Rotation:
    old = of_cluster_api(key=ec_key(1) if kind == "ecdsa" else rsa_key(number=1))
    unlimited = of_our_own("kubernetes-oldoldol", ec_key(2) if kind == "ecdsa" else rsa_key(number=2))
    return Rotation(old, unlimited, successor(old), of_our_own("kubernetes-thirdthi", ec_key(3)))


@pytest.fixture(params=["ecdsa", "rsa"])
def rotating(request: pytest.FixtureRequest, release: str) -> Rotation:
    return rotation(request.param)


def ask(certificates: list[bytes], old: Authority, new: Authority, *, now: datetime = NOW) -> Presented:
    return presented_by(certificates, old=old.certificate, new=new.certificate, now=now)


def test_the_four_states(rotating: Rotation) -> None:
    old, unlimited, new = rotating.old, rotating.unlimited, rotating.new
    down, up = old_new(old, new).certificate.der, new_old(unlimited, new).certificate.der
    assert ask([der(leaf(old))], old, new) is Presented.OLD
    assert ask([der(leaf(old)), down], old, new) is Presented.OLD_LINKED
    assert ask([der(leaf(new))], old, new) is Presented.NEW
    assert ask([der(leaf(new)), up], unlimited, new) is Presented.NEW_LINKED
    assert ask([der(leaf(rotating.third))], old, new) is Presented.FOREIGN


def test_the_next_rotation(rotating: Rotation) -> None:
    """Neither CA has a path length, so both links are possible."""
    old, new = rotating.new, successor(rotating.new, "hijklmn3")
    down, up = old_new(old, new).certificate.der, new_old(old, new).certificate.der
    assert ask([der(leaf(old)), down], old, new) is Presented.OLD_LINKED
    assert ask([der(leaf(new)), up], old, new) is Presented.NEW_LINKED


def test_a_link_in_the_wrong_direction_does_nothing(rotating: Rotation) -> None:
    unlimited, new = rotating.unlimited, rotating.new
    down, up = old_new(unlimited, new).certificate.der, new_old(unlimited, new).certificate.der
    assert ask([der(leaf(unlimited)), up], unlimited, new) is Presented.OLD
    assert ask([der(leaf(new)), down], unlimited, new) is Presented.NEW
    assert ask([der(leaf(rotating.third)), down, up], unlimited, new) is Presented.FOREIGN


def test_order_and_other_certificates_do_not_matter(rotating: Rotation) -> None:
    old, new = rotating.old, rotating.new
    others = [old.certificate.der, new.certificate.der, rotating.third.certificate.der]
    down = old_new(old, new).certificate.der
    assert ask([der(leaf(old)), *others], old, new) is Presented.OLD
    assert ask([der(leaf(old)), *others, down], old, new) is Presented.OLD_LINKED
    assert ask([der(leaf(new)), *others, down], old, new) is Presented.NEW


# Links


def _copies(link: CACertificate, rotating: Rotation, issuer: Authority) -> dict[str, bytes]:
    """Wrong links."""
    third = rotating.third
    key = third.certificate.subject_public_key_info
    usage = x509.KeyUsage(True, False, False, False, False, False, False, False, False)
    copies = {
        "by a third CA": forged(link, third),
        "of a third key": forged(link, issuer, subject_public_key_info=key),
        "ended": forged(link, issuer, validity=Validity(NOW - 2 * DAY, NOW)),
        "not yet valid": forged(link, issuer, validity=Validity(NOW + timedelta(seconds=1), NOW + DAY)),
        "no CA": forged(link, issuer, extensions=(x509.BasicConstraints(ca=False, path_length=None),)),
        "no certSign": forged(link, issuer, extensions=(usage,)),
        "for clients": forged(link, issuer, extensions=(CLIENT,)),
        "for any purpose": forged(link, issuer, extensions=(ANY,)),
        "another key identifier": forged(link, issuer, extensions=(x509.SubjectKeyIdentifier(b"other"),)),
        "another issuer's identifier": forged(
            link, issuer, extensions=(x509.AuthorityKeyIdentifier(b"other", None, None),)
        ),
        "another issuer": forged(link, issuer, issuer=third.certificate.subject),
    }
    return {name: copy.certificate.der for name, copy in copies.items()}


def test_a_copy_of_the_link_is_accepted(rotating: Rotation) -> None:
    """So that the next test's refusals have the reason that it names."""
    old, new = rotating.old, rotating.new
    copy = forged(old_new(old, new).certificate, new).certificate.der
    assert ask([der(leaf(old)), copy], old, new) is Presented.OLD_LINKED


def test_wrong_links(rotating: Rotation) -> None:
    old, unlimited, new = rotating.old, rotating.unlimited, rotating.new
    for name, copy in _copies(old_new(old, new).certificate, rotating, new).items():
        assert ask([der(leaf(old)), copy], old, new) is Presented.OLD, name
    for name, copy in _copies(new_old(unlimited, new).certificate, rotating, unlimited).items():
        assert ask([der(leaf(new)), copy], unlimited, new) is Presented.NEW, name


def test_a_critical_extension_that_no_program_processes(rotating: Rotation) -> None:
    old, new = rotating.old, rotating.new
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x05\x00")
    identifier = old.certificate.subject_key_identifier
    assert identifier is not None
    for critical, expected in ((False, Presented.OLD_LINKED), (True, Presented.OLD)):
        link = make("kubernetes", old.signer.key, new.signer, extra=((identifier, False), (unknown, critical)))
        assert ask([der(leaf(old)), der(link)], old, new) is expected
        assert ask([der(leaf(new, extra=((unknown, critical),)))], old, new) is (
            Presented.FOREIGN if critical else Presented.NEW
        )


def test_a_link_of_the_same_key_in_an_uncommon_encoding() -> None:
    """Go does not read a compressed point."""
    old, new = rotation().old, rotation().new
    point = old.signer.key.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    algorithm, _ = read_elements(read_single(old.certificate.subject_public_key_info, Tag.SEQUENCE).content)
    information = sequence(algorithm.encoded, bit_string(point))
    link = forged(old_new(old, new).certificate, new, subject_public_key_info=information).certificate
    assert link.public_key == old.certificate.public_key
    assert ask([der(leaf(old)), link.der], old, new) is Presented.OLD


def test_path_length_of_the_old_ca(rotating: Rotation) -> None:
    """The same link, issued by a CA of path length 0, none, 1."""
    new, key = rotating.new, ec_key(2)
    link = new_old(of_our_own("old", key), new).certificate.der
    for length, expected in ((0, Presented.NEW), (None, Presented.NEW_LINKED), (1, Presented.NEW_LINKED)):
        old = of_our_own("old", key, path_length=length)
        assert ask([der(leaf(new)), link], old, new) is expected


def test_name_constraints_of_the_link(rotating: Rotation) -> None:
    old, new = rotating.old, rotating.new
    local = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("10.96.0.1/32"))
    for names, expected in (
        (ServerNames(("localhost", "default.svc"), local), Presented.OLD_LINKED),
        (ServerNames(("LOCALHOST", "kubernetes.default.svc"), local), Presented.OLD_LINKED),
        (ServerNames(("localhost", "ernetes.default.svc"), local), Presented.OLD),
        (ServerNames(("localhost", "a.kubernetes.default.svc"), local), Presented.OLD),
        (ServerNames(("localhost",), local), Presented.OLD),
        (ServerNames(("localhost", "default.svc"), local[:1]), Presented.OLD),
        (ServerNames(("localhost", "default.svc"), (ipaddress.ip_network("::/0"),)), Presented.OLD),
    ):
        link = old_new(old, new, names=names).certificate.der
        assert ask([der(leaf(old)), link], old, new) is expected, names


@pytest.mark.parametrize(
    ("constraints", "expected"),
    [
        (x509.NameConstraints(None, [x509.DNSName("example.org")]), Presented.OLD),
        (x509.NameConstraints(None, [x509.DNSName("localhost")]), Presented.FOREIGN),
        (x509.NameConstraints(None, [x509.DNSName("svc")]), Presented.FOREIGN),
        (x509.NameConstraints(None, [x509.IPAddress(ipaddress.ip_network("127.0.0.0/8"))]), Presented.FOREIGN),
        (x509.NameConstraints([x509.DNSName("localhost"), x509.DNSName(".default.svc")], None), Presented.OLD),
        (x509.NameConstraints([x509.DNSName("")], None), Presented.OLD),
        (x509.NameConstraints([x509.RFC822Name("example.org")], None), Presented.FOREIGN),
    ],
)
def test_name_constraints_of_a_ca(constraints: x509.NameConstraints, expected: Presented) -> None:
    old = of_our_own("old", ec_key(2), extra=((constraints, True),))
    assert ask([der(leaf(old))], old, rotation().new) is expected


# The server's own certificate


@pytest.mark.parametrize(
    ("options", "accepted"),
    [
        ({}, True),
        ({"purpose": None}, True),
        ({"purpose": BOTH}, True),
        ({"usage": None}, True),
        ({"ca": None}, True),
        ({"purpose": CLIENT}, False),
        ({"purpose": ANY}, False),
        ({"ca": True}, False),
        ({"not_after": NOW}, False),
        ({"not_before": NOW + timedelta(seconds=1)}, False),
        ({"identifier": x509.AuthorityKeyIdentifier(b"other", None, None)}, False),
        (
            {"usage": x509.KeyUsage(False, False, True, False, False, False, False, False, False)},
            False,
        ),
    ],
)
def test_what_a_server_may_present(options: dict[str, Any], accepted: bool, rotating: Rotation) -> None:
    old, new = rotating.old, rotating.new
    link = old_new(old, new).certificate.der
    for signer, expected in ((old, Presented.OLD_LINKED), (new, Presented.NEW)):
        found = ask([der(leaf(signer, **options)), link], old, new)
        assert found is (expected if accepted else Presented.FOREIGN)


def test_an_identifier_that_names_the_cas_certificate() -> None:
    """OpenSSL's ``authorityKeyIdentifier = issuer:always``: only that certificate fits, so no link does."""
    old, new = rotation().unlimited, rotation().new
    link = old_new(old, new).certificate.der
    own = old.certificate.serial_number
    name = [x509.DirectoryName(old.signer.certificate.subject)]
    for serial_number, expected in ((own, Presented.OLD), (own + 1, Presented.FOREIGN)):
        named = leaf(old, identifier=x509.AuthorityKeyIdentifier(None, name, serial_number))
        assert ask([der(named), link], old, new) is expected


def test_a_ca_that_issued_another_ca_that_issued_the_leaf() -> None:
    new, old = rotation().new, rotation().old
    intermediate = make("intermediate", ec_key(8), new.signer)
    between = Authority(new.loaded, new.pem, intermediate)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(ec_key(8).public_key())
    chain = [der(leaf(between, identifier=identifier)), der(intermediate)]
    assert ask(chain, old, new) is Presented.FOREIGN


def test_same_name_other_key() -> None:
    old, new = of_our_own("kubernetes", ec_key(2)), of_our_own("kubernetes", ec_key(4))
    third = of_our_own("kubernetes", ec_key(5))
    down, up = old_new(old, new).certificate.der, new_old(old, new).certificate.der
    assert ask([der(leaf(old)), down, up], old, new) is Presented.OLD_LINKED
    assert ask([der(leaf(new)), down, up], old, new) is Presented.NEW_LINKED
    assert ask([der(leaf(old))], old, new) is Presented.OLD
    assert ask([der(leaf(new))], old, new) is Presented.NEW
    assert ask([der(leaf(third)), down, up], old, new) is Presented.FOREIGN


def test_a_ca_that_has_ended() -> None:
    """A client that knows the CA refuses it too."""
    old = of_our_own("old", ec_key(2), not_after=NOW + DAY)
    new = rotation().new
    link = old_new(old, new).certificate.der
    assert ask([der(leaf(old)), link], old, new) is Presented.OLD_LINKED
    assert ask([der(leaf(old)), link], old, new, now=NOW + DAY) is Presented.FOREIGN


@pytest.mark.parametrize("extra", [((CLIENT, False),), ((ANY, False),)])
def test_a_ca_that_is_not_for_servers(extra: tuple[tuple[x509.ExtensionType, bool], ...]) -> None:
    old = of_our_own("old", ec_key(2), extra=extra)
    assert ask([der(leaf(old))], old, rotation().new) is Presented.FOREIGN


def test_a_ca_with_a_weak_key() -> None:
    old = make("old", rsa_key(1024))
    certificate = parse_ca_certificate(der(old))
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(old.key.public_key())
    server = leaf(Authority(rotation().new.loaded, old.pem, old), identifier=identifier)
    found = presented_by([der(server)], old=certificate, new=rotation().new.certificate, now=NOW)
    assert found is Presented.FOREIGN


# Hostile input


def test_bounds(rotating: Rotation) -> None:
    old, new = rotating.old, rotating.new
    own, filler = der(leaf(new)), new.certificate.der
    assert ask([], old, new) is Presented.FOREIGN
    assert ask([own, *[filler] * 7], old, new) is Presented.NEW
    assert ask([own, *[filler] * 8], old, new) is Presented.FOREIGN
    padding_extension = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x04\x82\x3c\x00" + bytes(15360))
    assert ask([der(leaf(new, extra=((padding_extension, False),)))], old, new) is Presented.NEW
    padding_extension = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"\x04\x82\x40\x00" + bytes(16384))
    assert ask([der(leaf(new, extra=((padding_extension, False),)))], old, new) is Presented.FOREIGN


@pytest.mark.parametrize("garbage", [b"", b"\x30\x00", b"-----BEGIN CERTIFICATE-----"])
def test_a_certificate_that_cannot_be_read(garbage: bytes) -> None:
    """Clients in Go refuse the whole chain."""
    old, new = rotation().old, rotation().new
    assert ask([garbage], old, new) is Presented.FOREIGN
    assert ask([der(leaf(new)), garbage], old, new) is Presented.FOREIGN


def test_a_leaf_with_serial_number_zero() -> None:
    old, new = rotation().unlimited, rotation().new
    assert ask([with_serial_number(leaf(old), 0, ec_key(2))], old, new) is Presented.OLD


def test_one_ca_is_no_rotation() -> None:
    with pytest.raises(ValueError, match="same key"):
        ask([der(leaf(rotation().old))], rotation().old, rotation().old)


@cache
def pool() -> dict[str, bytes]:
    """Certificates of all kinds."""
    cas = rotation()
    old, new, third = cas.unlimited, cas.new, cas.third
    down, up = old_new(old, new).certificate, new_old(old, new).certificate
    found = {
        f"{name} link {kind}": copy
        for name, link, by in (("down", down, new), ("up", up, old))
        for kind, copy in _copies(link, cas, by).items()
    }
    for name, ca in (("old", old), ("new", new), ("third", third), ("limited", cas.old)):
        found[name] = ca.certificate.der
        for purpose in (SERVER, CLIENT, BOTH):
            found[f"leaf by {name} for {purpose}"] = der(leaf(ca, purpose))
        found[f"leaf that names {name}"] = der(leaf(Authority(ca.loaded, ca.pem, make(_name(ca), ec_key(99)))))
    found["down"], found["up"] = down.der, up.der
    found["self-signed"] = der(make("kube-apiserver", ec_key(77), ca=False, extra=((NAMES, False),)))
    return found


def _name(ca: Authority) -> str:
    return str(ca.signer.certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)[0].value)


def signed_by(certificate: bytes, key: Any) -> bool:
    """A verification that shares no code with the product's, but for reading DER."""
    tbs, _, signature = read_elements(read_single(certificate, Tag.SEQUENCE).content)
    try:
        if isinstance(key, rsa.RSAPublicKey):
            key.verify(signature.content[1:], tbs.encoded, padding.PKCS1v15(), hashes.SHA256())
        else:
            key.verify(signature.content[1:], tbs.encoded, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def holds(certificate: bytes, ca: Authority) -> bool:
    return ca.certificate.subject_public_key_info in certificate


@given(st.lists(st.sampled_from(sorted(pool())), min_size=1, max_size=9))
def test_no_state_without_its_signatures(names: list[str]) -> None:
    chain = [pool()[name] for name in names]
    old, new = rotation().unlimited, rotation().new
    found = ask(chain, old, new)
    old_key, new_key = old.signer.key.public_key(), new.signer.key.public_key()
    by_old, by_new = signed_by(chain[0], old_key), signed_by(chain[0], new_key)
    down = any(holds(one, old) and signed_by(one, new_key) for one in chain[1:])
    up = any(holds(one, new) and signed_by(one, old_key) for one in chain[1:])
    allowed = {
        Presented.OLD: by_old,
        Presented.OLD_LINKED: by_old and down,
        Presented.NEW: by_new,
        Presented.NEW_LINKED: by_new and up,
        Presented.FOREIGN: True,
    }
    assert allowed[found]
    # Nothing that a server appends can hide a good certificate, and a good link always counts.
    if len(chain) <= 8 and names[0] in (f"leaf by old for {SERVER}", f"leaf by old for {BOTH}"):
        assert found is (Presented.OLD_LINKED if "down" in names[1:] else Presented.OLD)
    if len(chain) <= 8 and names[0] in (f"leaf by new for {SERVER}", f"leaf by new for {BOTH}"):
        assert found is (Presented.NEW_LINKED if "up" in names[1:] else Presented.NEW)


@given(st.sampled_from([0, 1]), st.integers(0, 1 << 20))
def test_a_changed_bit(which: int, number: int) -> None:
    chain = [pool()[f"leaf by old for {SERVER}"], pool()["down"]]
    changed = bytearray(chain[which])
    position = number % (8 * len(changed))
    changed[position // 8] ^= 1 << position % 8
    chain[which] = bytes(changed)
    found = ask(chain, rotation().unlimited, rotation().new)
    assert found is Presented.FOREIGN if which == 0 else found in (Presented.OLD, Presented.FOREIGN)
