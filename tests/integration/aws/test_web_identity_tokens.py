"""A web identity token as proof of who calls: honest ones pass, and each attack is refused for its own reason."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from attestors.aws import wire
from attestors.aws.issuers import PAUSE_SECONDS
from attestors.contract import Denied, NotProvableYet, VerifiedIdentity
from attestors.wire.binding import BindingMismatch, CACertHash
from attestors.wire.evidence import MalformedEvidence
from tests.integration.aws.fixtures import BINDING, PROVIDER_ID, ROLE, Desk, settings, token_fields
from tests.support.aws_documents import ACCOUNT, INSTANCE, OTHER_REGION, REGION
from tests.support.fake_aws import ISSUER_HOST, Answer
from tests.support.fake_aws.accounts import Issuer, encoded
from tests.unit.attestors.support import NOW, binding_for

NAMESPACE: Final = "https://sts.amazonaws.com/"
AUDIENCE: Final = wire.audience(BINDING.value)
OTHER_ACCOUNT: Final = "210987654321"


@pytest.fixture(autouse=True)
def with_an_issuer(desk: Desk) -> None:
    """The account has one, and the operator says so."""
    desk.settings = settings({"webIdentityIssuers": {ACCOUNT: f"https://{ISSUER_HOST}"}})


def claims(
    desk: Desk, audience: Any = AUDIENCE, *, about: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """Those of the instance's own token, some changed; what is changed to ``...`` is left out."""
    whole = desk.aws.issuer.claims(desk.session, audience, NOW, timedelta(minutes=5)) | changes
    if about is not None:
        whole[NAMESPACE] = {name: value for name, value in (whole[NAMESPACE] | about).items() if value is not ...}
    return {name: value for name, value in whole.items() if value is not ...}


def evidence(desk: Desk, key_id: str = "RSA_0", **changes: Any) -> dict[str, str]:
    return token_fields(desk.aws.issuer.token(claims(desk, **changes), key_id))


@pytest.mark.parametrize("key_id", ["RSA_0", "EC384_0"])
async def test_an_instance_is_verified(desk: Desk, key_id: str) -> None:
    outcome = await desk.ask(evidence(desk, key_id))
    assert isinstance(outcome, VerifiedIdentity)
    assert outcome.provider_id == PROVIDER_ID
    assert outcome.identity == f"aws:aws:{ACCOUNT}:{REGION}:{INSTANCE}"
    assert outcome.node_names == ("ip-10-0-1-17.eu-west-1.compute.internal",)
    assert desk.aws.sts_requests == ()
    assert not desk.ec2.roles_asked


async def test_keys_are_fetched_once(desk: Desk) -> None:
    plugin = desk.plugin
    for _ in range(3):
        assert isinstance(await plugin.verify_client(desk.request(evidence(desk))), VerifiedIdentity)
    assert desk.aws.issuer_paths == ("/.well-known/openid-configuration", "/.well-known/jwks.json")


async def test_a_token_with_one_audience_in_a_list_is_alike(desk: Desk) -> None:
    assert isinstance(await desk.ask(evidence(desk, audience=[AUDIENCE])), VerifiedIdentity)


# The signature.


@pytest.mark.parametrize("algorithm", ["none", "HS256", "PS256", "RS512"])
async def test_another_algorithm_is_refused(desk: Desk, algorithm: str) -> None:
    token = desk.aws.issuer.token(claims(desk), alg=algorithm)
    with pytest.raises(MalformedEvidence):
        await desk.ask(token_fields(token))
    header, body, _ = token.split(".")
    with pytest.raises(MalformedEvidence):
        await desk.ask(token_fields(f"{header}.{body}."))
    assert desk.nobody_was_called


async def test_no_key_and_unknown_keys_are_refused(desk: Desk) -> None:
    with pytest.raises(MalformedEvidence):
        await desk.ask(token_fields(desk.aws.issuer.token(claims(desk), kid=...)))
    assert desk.nobody_was_called
    assert await desk.denied(token_fields(desk.aws.issuer.token(claims(desk), kid="RSA_9"))) == "WebIdentityRefused"


async def test_a_key_that_was_published_a_moment_ago_is_waited_for(desk: Desk) -> None:
    plugin = desk.plugin
    assert isinstance(await plugin.verify_client(desk.request(evidence(desk))), VerifiedIdentity)
    token = desk.aws.issuer.token(claims(desk), kid="RSA_9")
    outcome = await plugin.verify_client(desk.request(token_fields(token)))
    assert isinstance(outcome, NotProvableYet)
    assert outcome.reason == "WebIdentityKeyNotPublished"
    assert outcome.retry_after.total_seconds() <= PAUSE_SECONDS


async def test_another_issuers_key_of_the_same_name_is_refused(desk: Desk) -> None:
    forged = Issuer(generation=1).token(claims(desk))
    assert await desk.denied(token_fields(forged)) == "WebIdentityRefused"
    assert not desk.ec2.described


async def test_changed_claims_are_refused(desk: Desk) -> None:
    header, _, signature = desk.aws.issuer.token(claims(desk, about={"ec2_source_instance_arn": "x"})).split(".")
    changed = encoded(json.dumps(claims(desk)).encode())
    assert await desk.denied(token_fields(f"{header}.{changed}.{signature}")) == "WebIdentityRefused"


# The audience.


async def test_another_cluster_s_or_key_s_token_is_refused(desk: Desk) -> None:
    other = binding_for(provider="aws", cluster=CACertHash("sha256:" + "aa" * 32))
    with pytest.raises(BindingMismatch):
        await desk.ask(evidence(desk, audience=wire.audience(other.value)))
    assert desk.nobody_was_called


@pytest.mark.parametrize(
    "audience",
    [
        lambda own: "https://api.example.com",
        lambda own: BINDING.value.hex(),
        lambda own: f"{own}/",
        lambda own: f"{own}0",
        lambda own: [own, "https://api.example.com"],
        lambda own: [],
        lambda own: None,
    ],
    ids=["another", "bare", "behind it", "longer", "two", "none", "null"],
)
async def test_a_token_with_another_or_several_audiences_is_refused(desk: Desk, audience: Callable[[str], Any]) -> None:
    with pytest.raises(MalformedEvidence):
        await desk.ask(evidence(desk, aud=audience(AUDIENCE)))
    with pytest.raises(MalformedEvidence):
        await desk.ask(evidence(desk, aud=...))
    assert desk.nobody_was_called


# Its time.


async def test_an_expired_token_is_refused(desk: Desk) -> None:
    at = int(NOW.timestamp())
    assert await desk.denied(evidence(desk, iat=at - 600, exp=at - 300)) == "EvidenceExpired"
    assert await desk.denied(evidence(desk, iat=at - 600, exp=at + 3000)) == "EvidenceExpired"
    assert desk.nobody_was_called


async def test_a_token_from_the_future_waits_for_the_controllers_clock_to_be_set(desk: Desk) -> None:
    """AWS signed the time, so it is the controller's clock that is wrong, and nobody is denied for it."""
    at = int(NOW.timestamp()) + 120
    outcome = await desk.ask(evidence(desk, iat=at, exp=at + 300))
    assert isinstance(outcome, NotProvableYet)
    assert (outcome.reason, "120 seconds" in outcome.message) == ("ClockBehind", True)
    assert not desk.ec2.described
    forged = Issuer(generation=1).token(claims(desk, iat=at, exp=at + 300))
    assert await desk.denied(token_fields(forged)) == "WebIdentityRefused"
    latest = 253_402_300_799
    forged = Issuer(generation=1).token(claims(desk, iat=latest, exp=latest))
    assert await desk.denied(token_fields(forged)) == "WebIdentityRefused"
    with pytest.raises(MalformedEvidence):
        await desk.ask(evidence(desk, nbf=at))


async def test_a_token_that_lives_too_long_is_refused(desk: Desk) -> None:
    assert await desk.denied(evidence(desk, exp=int(NOW.timestamp()) + 3601)) == "WebIdentityRefused"


@pytest.mark.parametrize("name", ["iat", "exp"])
@pytest.mark.parametrize("value", [..., None, "1", 1.5, True, -1, 10**30])
async def test_a_token_without_its_times_is_refused(desk: Desk, name: str, value: Any) -> None:
    with pytest.raises(MalformedEvidence):
        await desk.ask(evidence(desk, **{name: value}))
    assert desk.nobody_was_called


# Who it is about.


async def test_another_issuer_is_refused(desk: Desk) -> None:
    for issuer in ("https://evil.example", f"https://{ISSUER_HOST}/", f"http://{ISSUER_HOST}"):
        assert await desk.denied(evidence(desk, iss=issuer)) == "IssuerMismatch"
    assert desk.nobody_was_called


async def test_an_account_without_a_configured_issuer_is_refused(desk: Desk) -> None:
    desk.settings = settings({"webIdentityIssuers": {OTHER_ACCOUNT: f"https://{ISSUER_HOST}"}})
    assert await desk.denied(evidence(desk)) == "WebIdentityNotAccepted"
    assert desk.nobody_was_called


@pytest.mark.parametrize(
    "arn",
    [
        f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/i-0fedcba9876543210",
        f"arn:aws:ec2:{OTHER_REGION}:{ACCOUNT}:instance/{INSTANCE}",
        f"arn:aws:ec2:{REGION}:{OTHER_ACCOUNT}:instance/{INSTANCE}",
        f"arn:aws-cn:ec2:{REGION}:{ACCOUNT}:instance/{INSTANCE}",
        f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{INSTANCE}/",
        "",
        ...,
    ],
)
async def test_a_token_of_another_or_no_instance_is_refused(desk: Desk, arn: Any) -> None:
    """A session of AssumeRole has no instance, whatever it is called."""
    about = {"ec2_source_instance_arn": arn}
    assert await desk.denied(evidence(desk, about=about)) == "CallerIsAnotherInstance"
    assert desk.nobody_was_called


async def test_tags_of_the_requests_cannot_name_an_instance(desk: Desk) -> None:
    arn = f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{INSTANCE}"
    about = {"ec2_source_instance_arn": ..., "request_tags": {"ec2_source_instance_arn": arn}}
    assert await desk.denied(evidence(desk, about=about)) == "CallerIsAnotherInstance"


@pytest.mark.parametrize("delivery", ["1.0", "", ...])
async def test_credentials_by_imdsv1_are_refused_where_imdsv2_is_required(desk: Desk, delivery: Any) -> None:
    about = {"ec2_role_delivery": delivery}
    assert await desk.denied(evidence(desk, about=about)) == "CredentialsDeliveredOpenly"
    desk.settings = settings({"webIdentityIssuers": {ACCOUNT: f"https://{ISSUER_HOST}"}, "requireIMDSv2": False})
    assert isinstance(await desk.ask(evidence(desk, about=about)), VerifiedIdentity)


async def test_another_role_is_refused(desk: Desk) -> None:
    assert await desk.denied(evidence(desk, sub=f"arn:aws:iam::{ACCOUNT}:role/admin")) == "RoleNotAllowed"
    assert await desk.denied(evidence(desk, sub=f"arn:aws:iam::{ACCOUNT}:role/{ROLE}/admin")) == "RoleNotAllowed"
    assert isinstance(
        await desk.ask(evidence(desk, sub=f"arn:aws:iam::{ACCOUNT}:role/any/path/{ROLE}")), VerifiedIdentity
    )


async def test_the_same_role_name_in_another_account_is_refused(desk: Desk) -> None:
    foreign = evidence(desk, sub=f"arn:aws:iam::{OTHER_ACCOUNT}:role/{ROLE}", about={"aws_account": OTHER_ACCOUNT})
    assert await desk.denied(foreign) == "CallerOfAnotherAccount"
    with pytest.raises(MalformedEvidence):
        await desk.ask(evidence(desk, sub=f"arn:aws:iam::{OTHER_ACCOUNT}:role/{ROLE}"))


@pytest.mark.parametrize(
    "changes",
    [
        {"sub": f"arn:aws:iam::{ACCOUNT}:user/{ROLE}"},
        {"sub": f"arn:aws:sts::{ACCOUNT}:assumed-role/{ROLE}/{INSTANCE}"},
        {"sub": ...},
        {"iss": ...},
        {"iss": 1},
        {NAMESPACE: ...},
        {NAMESPACE: "x"},
        {"about": {"aws_account": ...}},
        {"about": {"ec2_source_instance_arn": 1}},
    ],
)
async def test_claims_of_another_form_are_malformed(desk: Desk, changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedEvidence):
        await desk.ask(evidence(desk, **changes))
    assert desk.nobody_was_called


# The issuer's faults are never the node's.


async def test_an_issuer_that_cannot_be_asked_makes_it_wait(desk: Desk) -> None:
    elsewhere = {**desk.aws.issuer.discovery(), "jwks_uri": "https://evil.example/.well-known/jwks.json"}
    other = {**desk.aws.issuer.discovery(), "issuer": "https://evil.example"}
    for service, answer in (
        ("discovery", Answer(503)),
        ("discovery", Answer(302, headers={"Location": "https://evil.example/"})),
        ("discovery", Answer(200, b"<html>", "text/html")),
        ("discovery", Answer(200, json.dumps(elsewhere).encode())),
        ("discovery", Answer(200, json.dumps(other).encode())),
        ("discovery", Answer(203, json.dumps(desk.aws.issuer.discovery()).encode())),
        ("keys", Answer(500)),
        ("keys", Answer(203, json.dumps(desk.aws.issuer.key_set()).encode())),
        ("keys", Answer(200, b"{}")),
        ("keys", Answer(200, b'{"keys":[]}')),
        ("keys", Answer(200, b" " * 2 * 1024 * 1024)),
    ):
        desk.aws.recover()
        desk.aws.fail(service, answer)
        outcome = await desk.ask(evidence(desk))
        assert isinstance(outcome, NotProvableYet)
        assert outcome.message.startswith(f"AWS STS token issuer https://{ISSUER_HOST}: ")
    assert not desk.ec2.described


async def test_screening_judges_tokens_without_calling(desk: Desk) -> None:
    bad = desk.plugin.pre_filter(desk.request(evidence(desk, about={"ec2_source_instance_arn": "x"})))
    assert isinstance(bad, Denied)
    desk.plugin.pre_filter(desk.request(evidence(desk)))
    assert desk.nobody_was_called
