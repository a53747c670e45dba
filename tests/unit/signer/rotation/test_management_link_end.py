"""What is read of the link certificate besides which one it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from signer.rotation.facts import Absent, Link, TrustFacts
from signer.rotation.management import link_end_in
from tests.unit.signer.authority.chains import Authority, of_cluster_api, old_new, successor
from tests.unit.signer.authority.support import NOW


@pytest.fixture
def pair() -> tuple[Authority, Authority]:
    old = of_cluster_api()
    return old, successor(old)


def test_its_end(pair: tuple[Authority, Authority]) -> None:
    link = old_new(*pair)
    assert link_end_in(link.certificate_pem) == link.not_after
    assert link_end_in(link.certificate_pem) > NOW  # type: ignore[operator]


@pytest.mark.parametrize("text", [b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"no PEM"])
def test_what_is_no_certificate_has_no_end(text: bytes) -> None:
    assert link_end_in(text) == Absent()


def test_two_certificates_have_no_end(pair: tuple[Authority, Authority]) -> None:
    assert link_end_in(old_new(*pair).certificate_pem * 2) == Absent()


def test_the_end_is_no_reason_to_write_the_secret_again() -> None:
    """The step wants bundles and a kind of link; the end is for people."""
    wanted = TrustFacts(("a",), ("b",), Link.NEW_WITH_OLD)
    assert replace(wanted, link_not_after=NOW) == wanted
