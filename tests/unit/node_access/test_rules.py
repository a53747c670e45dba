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
from node_access.values import Login, end_of
from tests.unit.node_access.made import AUTHORITY, BOOT, KEY, NOW, at, certificate, session

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
    assert due(session(), at(3600 - left), NOTHING) == expected


def test_each_warning_is_given_once() -> None:
    warned = replace(session(), warned_at=600)
    assert due(warned, at(3600 - 600), NOTHING) == Continue()
    assert due(warned, at(3600 - 120), NOTHING) == Warn(120)
    assert due(replace(warned, warned_at=120), at(3600 - 1), NOTHING) == Continue()


@pytest.mark.parametrize(
    ("lifetime", "before", "expected"),
    [
        (300, 250, Continue()),
        (300, 120, Warn(120)),
        (60, 1, Continue()),
        (600, 600, Continue()),
        (601, 600, Warn(600)),
    ],
)
def test_a_warning_that_is_behind_at_the_begin_is_not_given(lifetime: int, before: int, expected: object) -> None:
    short = without_early_warnings(session(valid_before=NOW + lifetime), at(0))
    assert due(short, at(lifetime - before), NOTHING) == expected


@pytest.mark.parametrize("clock", [0, -86_400, 400 * 86_400, -NOW])
def test_a_certificate_without_end_lasts_an_hour_of_elapsed_time(clock: int) -> None:
    """Wherever the clock is set meanwhile: somebody logs in to set it."""
    endless = session(valid_before=FOREVER)
    assert not endless.has_deadline
    assert due(endless, at(3600 - 601, clock=clock), NOTHING) == Continue()
    assert due(endless, at(3600 - 600, clock=clock), NOTHING) == Warn(600)
    assert due(endless, at(3600 - 0.5, clock=clock), NOTHING) == Warn(120)
    assert due(endless, at(3600, clock=clock), NOTHING) == End(EndReason.EXPIRED)


def test_a_clock_that_is_set_back_makes_no_session_longer() -> None:
    assert due(session(), at(3599, clock=-7200), NOTHING) == Warn(120)
    assert due(session(), at(3600, clock=-7200), NOTHING) == End(EndReason.EXPIRED)
    assert due(session(), at(0, clock=3600), NOTHING) == End(EndReason.EXPIRED), "nor one that was behind, and is right"


def test_a_certificate_without_end_prolongs_by_an_hour() -> None:
    """Also a session of another one without an end; and no certificate with an end prolongs that."""
    renewed = session(2, serial=8, valid_before=FOREVER)
    for running in (session(1), session(1, valid_before=FOREVER)):
        [longer] = prolonged([running, renewed], renewed, at(1800))
        assert due(longer, at(5399), NOTHING) == Warn(120)
        assert due(longer, at(5400), NOTHING) == End(EndReason.EXPIRED)
    dated = session(2, serial=8, valid_before=NOW + 7200)
    assert prolonged([session(1, valid_before=FOREVER), dated], dated, at(0)) == []


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
    assert due(session(), at(0), revoking(**entries)) == End(EndReason.REVOKED)


def test_the_revocation_of_the_certificate_that_prolonged_it_ends_a_session() -> None:
    entry = CertificateRevocations(AnyAuthority(), serials=(SerialRange.single(8),))
    renewed = certificate(serial=8, valid_before=NOW + 7200)
    long = replace(session(), prolonged_by=(renewed,), ends_at=end_of(renewed.certificate, at(0), began=BOOT))
    assert due(long, at(0), revoking(certificates=(entry,))) == End(EndReason.REVOKED)
    assert due(long, at(3600), NOTHING) == Continue()


def test_a_later_certificate_prolongs() -> None:
    renewed = session(2, serial=8, valid_before=NOW + 7200)
    [longer] = prolonged([session(1), renewed], renewed, at(0))
    assert longer == replace(session(1), prolonged_by=(renewed.signed,), ends_at=renewed.ends_at)
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
    assert prolonged([running, renewed], renewed, at(0)) == []


def test_a_prolonged_session_is_warned_again() -> None:
    warned = replace(session(1), warned_at=120)
    renewed = session(2, valid_before=NOW + 7200)
    [longer] = prolonged([warned], renewed, at(0))
    assert due(longer, at(7200 - 600), NOTHING) == Warn(600)
