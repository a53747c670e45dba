"""Reading claims: each of its form, or none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from attestors.clouds.google import GCEProviderID
from attestors.gcp.claims import (
    InstanceClaims,
    MalformedClaims,
    NoInstance,
    NoVerifiedEmail,
    VerifiedEmail,
    read_claims,
)
from tests.unit.attestors.gcp.support import ABSENT, AUDIENCE, INSTANCE, NOW, claims, engine


def test_good_claims() -> None:
    read = read_claims(claims())
    assert (read.issuer, read.audience) == ("https://accounts.google.com", AUDIENCE)
    assert (read.issued, read.expires) == (NOW, NOW + timedelta(hours=1))
    assert read.service_account == VerifiedEmail(INSTANCE.service_account)
    assert read.instance == InstanceClaims(
        GCEProviderID(INSTANCE.project, INSTANCE.zone, INSTANCE.name),
        int(INSTANCE.project_number),
        INSTANCE.instance_id,
        INSTANCE.created,
    )


def test_licences_and_unknown_claims_are_not_looked_at() -> None:
    more = claims(google=engine(license_id=["1", 2]), unknown={"nested": [1]})
    assert read_claims(more) == read_claims(claims())


@pytest.mark.parametrize(
    "google", [ABSENT, {}, {"other": {"instance_id": "1"}}], ids=["no google", "empty", "another product"]
)
def test_without_an_instance(google: object) -> None:
    assert read_claims(claims(google=google)).instance == NoInstance()


@pytest.mark.parametrize("verified", [False, ABSENT, "true", "false", 1, None])
def test_an_email_that_google_does_not_vouch_for(verified: object) -> None:
    assert read_claims(claims(email_verified=verified)).service_account == NoVerifiedEmail()


def test_without_an_email() -> None:
    assert read_claims(claims(email=ABSENT)).service_account == NoVerifiedEmail()


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        *(({name: value}, name) for name in ("iss", "aud") for value in (ABSENT, "", None, ["x"], 1)),
        *(
            ({name: value}, name)
            for name in ("iat", "exp")
            for value in (ABSENT, "1", 1.5, True, 0, -1, None, 253_402_300_800, 10**30)
        ),
        ({"email": "no address"}, "email"),
        ({"email": 5}, "email"),
        ({"email": "x@" + "y" * 300}, "email"),
        ({"google": []}, "google"),
        ({"google": {"compute_engine": "x"}}, "compute_engine"),
        *(
            ({"google": engine(instance_id=value)}, "numeric instance ID")
            for value in (
                "0",
                "01",
                "-1",
                "1x",
                "worker-1",
                "18446744073709551616",
                "1" * 21,
                "\N{ARABIC-INDIC DIGIT ONE}",
            )
        ),
        *(({"google": engine(instance_id=value)}, "instance_id") for value in (ABSENT, 4711, None)),
        *(({"google": engine(project_id=value)}, "project") for value in (ABSENT, 7, "730000000001", "a/b", "a b")),
        *(({"google": engine(project_number=value)}, "project_number") for value in (ABSENT, "7", 0, True, 2**64, 1.0)),
        *(({"google": engine(zone=value)}, "zone") for value in (ABSENT, "", "projects/1/zones/a", "Europe", "a-b/c")),
        *(
            ({"google": engine(instance_name=value)}, "name")
            for value in (ABSENT, "", "Worker", "a.b", "a/b", "x" * 64)
        ),
        *(
            ({"google": engine(instance_creation_timestamp=value)}, "instance_creation_timestamp")
            for value in (ABSENT, "1", 0, 10**12)
        ),
    ],
    ids=lambda value: None if isinstance(value, str) else str(value).replace("/", " ")[:48],
)
def test_a_claim_of_another_form(changes: dict[str, Any], part: str) -> None:
    with pytest.raises(MalformedClaims, match=part):
        read_claims(claims(**changes))


def test_the_latest_representable_time() -> None:
    assert read_claims(claims(exp=253_402_300_799)).expires == datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
