"""Checks that need nobody else: each lets an honest token pass, and stops an attack."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from attestors.contract import Denied, NotProvableYet
from attestors.gcp import wire
from attestors.gcp.claims import read_claims
from attestors.gcp.local_checks import CLOCK_SKEW, MAXIMUM_LIFETIME, check_clock, check_locally, prove_audience
from attestors.wire.binding import BindingMismatch, CACertHash
from attestors.wire.evidence import MalformedEvidence
from attestors.wire.names import Purpose
from tests.unit.attestors.gcp.support import (
    ABSENT,
    AUDIENCE,
    BINDING,
    INSTANCE,
    NOW,
    SETTINGS,
    claims,
    ended,
    engine,
    request,
    settings,
    token,
)
from tests.unit.attestors.support import attestation_request, binding_for, evidence_of

SECOND = timedelta(seconds=1)


def denial(**changes: Any) -> str:
    """The reason that a token with these claims is denied with."""
    found = ended(lambda: check_locally(request(token(claims(**changes))), SETTINGS))
    assert isinstance(found, Denied), found
    return found.reason


def test_an_honest_token() -> None:
    assert check_locally(request(token()), SETTINGS).claims == read_claims(claims())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {wire.IDENTITY_TOKEN_FIELD: token(), "more": "x"},
        {wire.IDENTITY_TOKEN_FIELD: "x.y"},
        {wire.IDENTITY_TOKEN_FIELD: ""},
        {wire.IDENTITY_TOKEN_FIELD: token(claims(license_id="1" * wire.MAXIMUM_TOKEN_CHARACTERS))},
    ],
    ids=["nothing", "another field", "no token", "empty", "huge"],
)
def test_evidence_that_is_not_one_token(fields: dict[str, str]) -> None:
    asked = attestation_request(evidence_of(fields), binding=BINDING, provider_id=INSTANCE.provider_id)
    with pytest.raises(MalformedEvidence):
        check_locally(asked, SETTINGS)


def test_another_algorithm() -> None:
    found = ended(lambda: check_locally(request(token(alg="HS256")), SETTINGS))
    assert isinstance(found, Denied)
    assert found.reason == "TokenAlgorithmRefused"


@pytest.mark.parametrize("issuer", ["https://accounts.google.com", "accounts.google.com"], ids=["URL", "host"])
def test_both_forms_of_the_issuer(issuer: str) -> None:
    check_locally(request(token(claims(iss=issuer))), SETTINGS)


@pytest.mark.parametrize(
    "issuer",
    [
        "https://accounts.google.com/",
        "http://accounts.google.com",
        "https://accounts.google.com.example.com",
        "ACCOUNTS.google.com",
        "https://securetoken.google.com/capi-workloads",
        "https://container.googleapis.com/v1/projects/p/locations/l/clusters/c",
        "nodes@capi-workloads.iam.gserviceaccount.com",
    ],
    ids=["slash", "no TLS", "longer name", "upper case", "Firebase", "GKE", "service account"],
)
def test_another_issuer(issuer: str) -> None:
    assert denial(iss=issuer) == "TokenIssuerRefused"


@pytest.mark.parametrize(
    "audience",
    [
        "https://example.com",
        AUDIENCE.upper(),
        AUDIENCE + "/",
        AUDIENCE[:-1],
        BINDING.value.hex(),
        "https://attestation.cluster.x-k8s.io/binding/",
        wire.audience(binding_for(provider="gcp", purpose=Purpose.SERVING).value),
        wire.audience(binding_for(provider="gcp", cluster=CACertHash("sha256:" + "1e" * 32)).value),
        wire.audience(binding_for(provider="aws").value),
        "\ud800",
        "é",
    ],
    ids=[
        "another service's",
        "upper case",
        "longer",
        "shorter",
        "binding alone",
        "empty binding",
        "serving certificate",
        "another cluster",
        "another attestor",
        "lone surrogate",
        "not ASCII",
    ],
)
def test_another_audience(audience: str) -> None:
    with pytest.raises(BindingMismatch):
        check_locally(request(token(claims(aud=audience))), SETTINGS)


def test_the_audience_proves_this_binding() -> None:
    assert prove_audience(read_claims(claims()), BINDING).value == BINDING.value


class TestTimes:
    @pytest.mark.parametrize(
        "age", [-CLOCK_SKEW, timedelta(), MAXIMUM_LIFETIME, MAXIMUM_LIFETIME + CLOCK_SKEW - SECOND]
    )
    def test_while_it_is_good(self, age: timedelta) -> None:
        check_locally(request(token(claims(issued=NOW - age))), SETTINGS)

    @pytest.mark.parametrize("age", [MAXIMUM_LIFETIME + CLOCK_SKEW, timedelta(days=300)])
    def test_expired(self, age: timedelta) -> None:
        assert denial(issued=NOW - age) == "EvidenceExpired"

    def test_the_longest_life(self) -> None:
        longest = NOW + MAXIMUM_LIFETIME + CLOCK_SKEW
        check_locally(request(token(claims(exp=int(longest.timestamp())))), SETTINGS)

    @pytest.mark.parametrize(
        "life", [MAXIMUM_LIFETIME + CLOCK_SKEW + SECOND, timedelta(days=3650), timedelta(), -SECOND]
    )
    def test_another_life_than_google_gives(self, life: timedelta) -> None:
        assert denial(exp=int((NOW + life).timestamp())) == "TokenLifetimeRefused"

    def test_the_end_of_time(self) -> None:
        """Whoever has a bootstrap token can write it; it is no defect to be logged, and asks nobody."""
        latest = 253_402_300_799
        check_locally(request(token(claims(iat=latest - 3600, exp=latest))), SETTINGS)

    def test_the_clock_is_checked_after_the_signature(self) -> None:
        check_locally(request(token(claims(issued=NOW + timedelta(hours=2)))), SETTINGS)

    def test_a_clock_that_is_right_enough(self) -> None:
        check_clock(read_claims(claims(issued=NOW + CLOCK_SKEW)), NOW)

    @pytest.mark.parametrize(
        ("ahead", "pause"), [(CLOCK_SKEW + SECOND, 61), (timedelta(days=900), 600)], ids=["a minute", "years"]
    )
    def test_a_clock_that_is_slow(self, ahead: timedelta, pause: int) -> None:
        """Of a token that Google signed: the controller is at fault, and nobody is denied for it."""
        found = ended(lambda: check_clock(read_claims(claims(issued=NOW + ahead)), NOW))
        assert isinstance(found, NotProvableYet)
        assert (found.reason, found.retry_after) == ("ClockBehind", timedelta(seconds=pause))


@pytest.mark.parametrize("google", [ABSENT, {}], ids=["format=standard", "no compute_engine"])
def test_a_token_of_no_instance(google: object) -> None:
    """Of a user, of a service account by the IAM API, or of an instance that left out ``format=full``."""
    assert denial(google=google) == "TokenOfNoInstance"


class TestProject:
    def test_another_project(self) -> None:
        assert denial(google=engine(project_id="another-project")) == "ProjectNotAllowed"

    def test_the_same_id_with_another_number(self) -> None:
        assert denial(google=engine(project_number=730000000002)) == "ProjectNumberMismatch"

    def test_the_same_number_with_another_id(self) -> None:
        assert denial(google=engine(project_id="another-project", project_number=730000000001)) == "ProjectNotAllowed"


class TestServiceAccount:
    ALLOWED = settings(serviceAccounts=["nodes@capi-workloads.iam.gserviceaccount.com"])

    def reason(self, **changes: Any) -> str:
        found = ended(lambda: check_locally(request(token(claims(**changes))), self.ALLOWED))
        assert isinstance(found, Denied), found
        return found.reason

    def test_an_allowed_one(self) -> None:
        check_locally(request(token()), self.ALLOWED)

    def test_any_service_account_by_default(self) -> None:
        check_locally(request(token(claims(email="other@capi-workloads.iam.gserviceaccount.com"))), SETTINGS)
        check_locally(request(token(claims(email=ABSENT))), SETTINGS)

    @pytest.mark.parametrize(
        "changes",
        [
            {"email": "other@capi-workloads.iam.gserviceaccount.com"},
            {"email": "NODES@capi-workloads.iam.gserviceaccount.com"},
            {"email_verified": False},
            {"email_verified": "true"},
            {"email": ABSENT},
        ],
        ids=["another", "another case", "not verified", "verified is a text", "none"],
    )
    def test_another_one(self, changes: dict[str, Any]) -> None:
        assert self.reason(**changes) == "ServiceAccountNotAllowed"


class TestClaimedProviderID:
    @pytest.mark.parametrize(
        "changes",
        [{"zone": "europe-west1-c"}, {"instance_name": "worker-2"}],
        ids=["another zone", "another instance"],
    )
    def test_a_token_of_another_instance(self, changes: dict[str, Any]) -> None:
        assert denial(google=engine(**changes)) == "ProviderIDMismatch"

    @pytest.mark.parametrize(
        "claimed",
        ["gce://capi-workloads/europe-west1-b/worker-1/", "gcp://capi-workloads/europe-west1-b/worker-1", "test:///1"],
        ids=["slash", "another scheme", "another provider"],
    )
    def test_another_form(self, claimed: str) -> None:
        found = ended(lambda: check_locally(request(token(), provider_id=claimed), SETTINGS))
        assert isinstance(found, Denied)
        assert found.reason == "ProviderIDMismatch"
