"""An administrator's client certificate by another CA: nothing of it can be chosen."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from signer.authority.certificate_authority import KeyWithheld
from signer.authority.lenient_certificate import CACertificate, parse_ca_certificate
from signer.authority.reissue import ReissueRefused, reissue
from tests.unit.signer.authority.chains import CLIENT, NAMES, SERVER, Authority, der, leaf, of_cluster_api, successor
from tests.unit.signer.authority.support import NOW, Made, ec_key, openssl_verify

OLD = of_cluster_api(41)
NEW = successor(OLD)
THIRD = of_cluster_api(43)
HOUR = timedelta(hours=1)


def administrator(issuer: Authority = OLD, purpose: x509.ExtendedKeyUsage | None = CLIENT, **options: Any) -> Made:
    return leaf(issuer, purpose, key=ec_key(44), **options)


def again(made: Made, *, former: Authority = OLD, signer: Authority = NEW, now: Any = NOW) -> CACertificate:
    pem = reissue(der(made), former=former.certificate, signer=signer.loaded, now=now)
    return parse_ca_certificate(x509.load_pem_x509_certificate(pem).public_bytes(Encoding.DER))


def refused(made: Made, match: str, **changes: Any) -> None:
    with pytest.raises(ReissueRefused, match=match):
        again(made, **changes)


def test_it_is_the_same_by_another_ca(tmp_path: Path) -> None:
    made = administrator()
    before, after = parse_ca_certificate(der(made)), again(made)
    after.require_directly_issued_by(NEW.certificate)
    assert (after.subject, after.subject_public_key_info) == (before.subject, before.subject_public_key_info)
    kinds = (x509.KeyUsage, x509.ExtendedKeyUsage, x509.BasicConstraints, x509.SubjectAlternativeName)
    for kind in kinds:
        assert extension(after, kind) == extension(before, kind)
    assert {type(one.value) for one in after.extensions} == {*kinds, x509.AuthorityKeyIdentifier}
    assert after.serial_number != before.serial_number
    pem = reissue(der(made), former=OLD.certificate, signer=NEW.loaded, now=NOW)
    openssl_verify(tmp_path, NEW.pem, pem, "sslclient")


def extension(certificate: CACertificate, kind: type[x509.ExtensionType]) -> tuple[Any, bool]:
    ((value, critical),) = ((one.value, one.critical) for one in certificate.extensions if isinstance(one.value, kind))
    return value, critical


def test_other_extensions_are_dropped() -> None:
    """Nothing that the former CA wrote for another purpose is signed again."""
    unknown = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.3.6.1.4.1.57264.1.1"), b"\x05\x00")
    after = again(administrator(extra=((unknown, False),)))
    assert "1.3.6.1.4.1.57264.1.1" not in {one.oid.dotted_string for one in after.extensions}


def test_it_ends_no_later() -> None:
    made = administrator(not_after=NOW + 5 * HOUR)
    assert again(made).not_after == NOW + 5 * HOUR
    short = successor(OLD)
    ends = replace(short.loaded, certificate=replace_end(short.certificate))
    pem = reissue(der(made), former=OLD.certificate, signer=ends, now=NOW)
    assert x509.load_pem_x509_certificate(pem).not_valid_after_utc == NOW + HOUR


def replace_end(certificate: CACertificate) -> CACertificate:
    """The CA as if it ended in an hour."""
    object.__setattr__(copied := parse_ca_certificate(certificate.der), "not_after", NOW + HOUR)
    return copied


def test_it_begins_no_earlier_than_its_ca() -> None:
    made = administrator()
    after = again(made)
    assert NEW.certificate.not_before <= after.not_before <= NOW
    fresh = again(made, signer=successor(OLD, now=NOW + timedelta(minutes=59)), now=NOW + HOUR)
    assert fresh.not_before >= NOW + timedelta(minutes=59) - HOUR


def test_times_are_whole_seconds() -> None:
    assert again(administrator(), now=NOW + timedelta(microseconds=7)).not_before.microsecond == 0


@pytest.mark.parametrize("issuer", [THIRD, NEW])
def test_of_another_ca(issuer: Authority) -> None:
    """The third one has the former CA's name, as all of Cluster API's CAs do."""
    assert THIRD.certificate.subject == OLD.certificate.subject
    refused(administrator(issuer), "did not sign it")


def test_that_cannot_be_read() -> None:
    for broken in (b"", b"garbage", der(administrator())[:-1]):
        with pytest.raises(ReissueRefused, match="did not sign it"):
            reissue(broken, former=OLD.certificate, signer=NEW.loaded, now=NOW)


@pytest.mark.parametrize(
    "purpose",
    [
        SERVER,
        None,
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE]),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.CODE_SIGNING]),
    ],
    ids=["server", "any", "client and server", "anyExtendedKeyUsage", "client and code"],
)
def test_with_another_purpose(purpose: x509.ExtendedKeyUsage | None) -> None:
    """An API server's certificate in a kubeconfig must not become one of the new CA."""
    refused(administrator(purpose=purpose), "not a client certificate alone")


def test_a_ca() -> None:
    """A sub-CA of the old CA must not become one of the new CA."""
    refused(administrator(ca=True), "not a client certificate alone")
    assert again(administrator(ca=None)).basic_constraints is None


@pytest.mark.parametrize(
    ("options", "now"),
    [
        ({"not_before": NOW + timedelta(seconds=1)}, NOW),
        ({"not_after": NOW}, NOW),
        ({"not_after": NOW - HOUR, "not_before": NOW - 2 * HOUR}, NOW),
        ({}, NOW + timedelta(days=3650)),
    ],
    ids=["not yet", "ends now", "ended", "the signing CA ended"],
)
def test_that_is_not_valid_now(options: dict[str, Any], now: Any) -> None:
    refused(administrator(**options), "not valid now", now=now)


def test_that_begins_now() -> None:
    assert again(administrator(not_before=NOW)).not_before <= NOW


def test_without_the_signing_key() -> None:
    withheld = replace(NEW.loaded, private_key=KeyWithheld())
    with pytest.raises(ReissueRefused, match="without its key"):
        reissue(der(administrator()), former=OLD.certificate, signer=withheld, now=NOW)


def test_names_are_kept() -> None:
    assert extension(again(administrator()), x509.SubjectAlternativeName)[0] == NAMES
