"""What Compute Engine says of an instance, beside its token."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address

import pytest

from attestors.clouds.google import Instance
from attestors.contract import Denied, NotProvableYet
from attestors.gcp.claims import InstanceClaims, read_claims
from attestors.gcp.instances import check_is_running, check_is_the_same
from tests.unit.attestors.gcp.support import INSTANCE, claims, ended

_READ = read_claims(claims()).instance
assert isinstance(_READ, InstanceClaims)
CLAIMED = _READ
FOUND = Instance(
    INSTANCE.project,
    INSTANCE.zone,
    INSTANCE.name,
    INSTANCE.instance_id,
    "RUNNING",
    INSTANCE.created,
    "",
    (ip_address("10.132.0.7"),),
    (),
)
OTHER_ID = "4711000000000000002"
SECOND = timedelta(seconds=1)


def test_the_very_instance() -> None:
    check_is_the_same(CLAIMED, FOUND)
    check_is_running(CLAIMED, FOUND)


@pytest.mark.parametrize("apart", [timedelta(milliseconds=999), 2 * SECOND, -2 * SECOND, timedelta(days=-1)])
def test_the_numeric_id_identifies_the_instance_whatever_its_creation_time(apart: timedelta) -> None:
    """It would wait for ever: neither of the two times ever changes."""
    check_is_the_same(CLAIMED, replace(FOUND, created=FOUND.created + apart))


def test_another_instance_that_was_made_later() -> None:
    found = ended(
        lambda: check_is_the_same(CLAIMED, replace(FOUND, instance_id=OTHER_ID, created=FOUND.created + 2 * SECOND))
    )
    assert isinstance(found, Denied)
    assert found.reason == "InstanceReplaced"
    assert INSTANCE.instance_id in found.message
    assert OTHER_ID in found.message


@pytest.mark.parametrize("earlier", [-SECOND, timedelta(), SECOND, timedelta(days=1)])
def test_an_answer_that_is_older_than_the_token(earlier: timedelta) -> None:
    """The instance was made again a moment ago: its own token must not be denied for what is out of date."""
    found = ended(
        lambda: check_is_the_same(CLAIMED, replace(FOUND, instance_id=OTHER_ID, created=FOUND.created - earlier))
    )
    assert isinstance(found, NotProvableYet)
    assert found.reason == "InstanceNotKnownYet"


@pytest.mark.parametrize("status", ["PROVISIONING", "STAGING", "STOPPING", "TERMINATED", "SUSPENDED", "REPAIRING"])
def test_one_that_does_not_run(status: str) -> None:
    found = ended(lambda: check_is_running(CLAIMED, replace(FOUND, status=status)))
    assert isinstance(found, NotProvableYet)
    assert found.reason == "InstanceNotRunning"
    assert status in found.message
