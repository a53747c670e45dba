"""What is due, and what prolongs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attestors.wire.ssh.certificate import FOREVER
from attestors.wire.ssh.krl import AnyAuthority, CertificateRevocations, RevocationList, SerialRange
from attestors.wire.ssh.signatures import public_key_of
from node_access.principals import Revocations
from node_access.rules import Continue, End, EndReason, Warn, due, prolonged, without_early_warnings
from node_access.values import Login
from tests.unit.node_access.made import AUTHORITY, KEY, NOW, certificate, session

NOTHING = Revocations((RevocationList(version=0, generated=0),))


def revoking(**entries: Any) -> Revocations:
    return Revocations((RevocationList(version=1, generated=0, **entries),))


@pytest.mark.parametrize(
    ("left", "expected"),
    [
        (3600, Continue()),
        (600.5, Continue()),
        (600, Warn(600)),
        (121, Warn(600)),
        (120, Warn(120)),
        (1, Warn(120)),
        (0, End(EndReason.EXPIRED)),
        (-5000, End(EndReason.EXPIRED)),
    ],
)
def test_what_is_due(left: float, expected: object) -> None:
    assert due(session(), NOW + 3600 - left, NOTHING) == expected


def test_each_warning_is_given_once() -> None:
    warned = replace(session(), warned_at=600)
    assert due(warned, NOW + 3600 - 600, NOTHING) == Continue()
    assert due(warned, NOW + 3600 - 120, NOTHING) == Warn(120)
    assert due(replace(warned, warned_at=120), NOW + 3600 - 1, NOTHING) == Continue()


@pytest.mark.parametrize(
    ("lifetime", "at", "expected"), [(300, 250, Continue()), (300, 120, Warn(120)), (60, 1, Continue())]
)
def test_a_warning_that_is_behind_at_the_begin_is_not_given(lifetime: int, at: int, expected: object) -> None:
    short = without_early_warnings(session(valid_before=NOW + lifetime), NOW)
    assert due(short, NOW + lifetime - at, NOTHING) == expected


def test_a_certificate_without_end() -> None:
    assert due(session(valid_before=FOREVER), NOW, NOTHING) == Continue()
    assert not session(valid_before=FOREVER).has_end


@pytest.mark.parametrize(
    "entries",
    [
        {"certificates": (CertificateRevocations(AnyAuthority(), serials=(SerialRange.single(7),)),)},
        {"certificates": (CertificateRevocations(public_key_of(AUTHORITY), key_ids=("grant/alice",)),)},
        {"keys": (public_key_of(KEY),)},
        {"keys": (public_key_of(AUTHORITY),)},
    ],
    ids=["serial", "key id", "key", "authority"],
)
def test_every_revocation_ends_a_session(entries: dict[str, Any]) -> None:
    assert due(session(), NOW, revoking(**entries)) == End(EndReason.REVOKED)


def test_the_revocation_of_the_certificate_that_prolonged_it_ends_a_session() -> None:
    entry = CertificateRevocations(AnyAuthority(), serials=(SerialRange.single(8),))
    long = replace(session(), prolonged_by=(certificate(serial=8, valid_before=NOW + 7200),))
    assert due(long, NOW, revoking(certificates=(entry,))) == End(EndReason.REVOKED)
    assert due(long, NOW + 3600, NOTHING) == Continue()


def test_a_later_certificate_prolongs() -> None:
    renewed = session(2, serial=8, valid_before=NOW + 7200)
    [longer] = prolonged([session(1), renewed], renewed, NOW)
    assert longer == replace(session(1), prolonged_by=(renewed.signed,))
    assert longer.deadline == NOW + 7200


@pytest.mark.parametrize(
    ("running", "renewed"),
    [
        (session(1), session(2, key_id="grant/bob", valid_before=NOW + 7200)),
        (session(1), session(2, name="root", valid_before=NOW + 7200)),
        (session(1), session(2, login=Login.PRESENTED, valid_before=NOW + 7200)),
        (session(1, login=Login.PRESENTED), session(2, valid_before=NOW + 7200)),
        (session(1, key_id=""), session(2, key_id="", valid_before=NOW + 7200)),
        (session(1), session(2, valid_before=NOW + 3600)),
        (session(1), session(2, valid_before=NOW + 1800)),
        (session(1), session(1, valid_before=NOW + 7200)),
    ],
    ids=[
        "another key id",
        "another login",
        "no proof of the key",
        "a login that is not over",
        "no key id",
        "the same end",
        "an earlier end",
        "itself",
    ],
)
def test_what_prolongs_nothing(running: Any, renewed: Any) -> None:
    assert prolonged([running, renewed], renewed, NOW) == []


def test_a_prolonged_session_is_warned_again() -> None:
    warned = replace(session(1), warned_at=120)
    renewed = session(2, valid_before=NOW + 7200)
    [longer] = prolonged([warned], renewed, NOW)
    assert due(longer, NOW + 7200 - 600, NOTHING) == Warn(600)
