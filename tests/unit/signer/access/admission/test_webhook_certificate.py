from __future__ import annotations

import base64
import copy
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from cryptography import x509

from signer.access.admission.webhook_certificate import (
    LIFETIME,
    RENEWED_BEFORE,
    UnusablePair,
    former_authorities,
    make_pair,
    pair_manifest,
    parse_pair,
    service_names,
)

NOW: Final = datetime(2026, 11, 27, 15, tzinfo=UTC)
NAMES: Final = service_names("webhook", "here")
PAIR: Final = make_pair(NAMES, NOW)
SECRET: Final = pair_manifest(PAIR, "here")


def changed(name: str, value: bytes) -> dict[str, Any]:
    secret = copy.deepcopy(SECRET)
    secret["data"][name] = base64.b64encode(value).decode()
    return secret


def test_a_pair_comes_back_from_its_secret() -> None:
    assert parse_pair(SECRET, NAMES, NOW) == PAIR
    assert "PRIVATE" not in repr(PAIR)
    authority, certificate = (x509.load_pem_x509_certificate(one) for one in (PAIR.authorities, PAIR.certificate))
    certificate.verify_directly_issued_by(authority)
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "webhook.here.svc" in names.get_values_for_type(x509.DNSName)


def test_it_is_renewed_before_it_ends() -> None:
    last = NOW + LIFETIME - RENEWED_BEFORE - timedelta(seconds=1)
    assert parse_pair(SECRET, NAMES, last) == PAIR
    for moment in (last + timedelta(seconds=1), NOW - timedelta(hours=2)):
        with pytest.raises(UnusablePair, match="ends soon"):
            parse_pair(SECRET, NAMES, moment)


def test_the_next_pair_keeps_one_former_authority_in_the_bundle() -> None:
    second = make_pair(NAMES, NOW, former_authorities(SECRET))
    third = make_pair(NAMES, NOW, second.authorities)
    for pair, former in ((second, PAIR), (third, second)):
        found = x509.load_pem_x509_certificates(pair.authorities)
        assert len(found) == 2
        assert found[1] == x509.load_pem_x509_certificates(former.authorities)[0]
        assert parse_pair(pair_manifest(pair, "here"), NAMES, NOW) == pair


OTHER: Final = make_pair(NAMES, NOW)


@pytest.mark.parametrize(
    ("secret", "says"),
    [
        ({}, "holds no pair"),
        ({"data": {"tls.crt": "!"}}, "holds no pair"),
        (changed("ca.crt", b"x"), "holds no pair"),
        (changed("ca.crt", OTHER.authorities), "holds no pair"),
        (changed("tls.crt", b""), "holds no pair"),
        (changed("tls.crt", OTHER.certificate), "holds no pair"),
        (changed("tls.key", b"x"), "holds no pair"),
        (changed("tls.key", OTHER.key), "for something else"),
        (changed("tls.key", b"x" * 70_000), "is too large"),
    ],
)
def test_another_pair_is_not_served(secret: dict[str, Any], says: str) -> None:
    with pytest.raises(UnusablePair, match=says):
        parse_pair(secret, NAMES, NOW)


def test_a_pair_for_other_names_is_not_served() -> None:
    with pytest.raises(UnusablePair, match="for something else"):
        parse_pair(SECRET, service_names("webhook", "there"), NOW)


def test_unreadable_authorities_are_not_trusted_on() -> None:
    assert former_authorities(SECRET) == PAIR.authorities
    for secret in ({}, changed("ca.crt", b"x"), {"data": {"ca.crt": "!"}}):
        assert former_authorities(secret) == b""
