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
from tests.integration.aws.fixtures import BINDING, PROVIDER_ID, ROLE, PluginHarness, settings, token_fields
from tests.support.aws_documents import ACCOUNT, INSTANCE, OTHER_REGION, REGION
from tests.support.fake_aws import ISSUER_HOST, Answer
from tests.support.fake_aws.accounts import Issuer, encoded
from tests.unit.attestors.support import NOW, binding_for

NAMESPACE: Final = "https://sts.amazonaws.com/"
AUDIENCE: Final = wire.audience(BINDING.value)
OTHER_ACCOUNT: Final = "210987654321"


@pytest.fixture(autouse=True)
def with_an_issuer(harness: PluginHarness) -> None:
    """The account has one, and the operator says so."""
    harness.settings = settings({"webIdentityIssuers": {ACCOUNT: f"https://{ISSUER_HOST}"}})


def claims(
    harness: PluginHarness, audience: Any = AUDIENCE, *, about: dict[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """Those of the instance's own token, some changed; what is changed to ``...`` is left out."""
    whole = harness.aws.issuer.claims(harness.session, audience, NOW, timedelta(minutes=5)) | changes
    if about is not None:
        whole[NAMESPACE] = {name: value for name, value in (whole[NAMESPACE] | about).items() if value is not ...}
    return {name: value for name, value in whole.items() if value is not ...}


def evidence(harness: PluginHarness, key_id: str = "RSA_0", **changes: Any) -> dict[str, str]:
    return token_fields(harness.aws.issuer.token(claims(harness, **changes), key_id))


@pytest.mark.parametrize("key_id", ["RSA_0", "EC384_0"])
async def test_an_instance_is_verified(harness: PluginHarness, key_id: str) -> None:
    outcome = await harness.ask(evidence(harness, key_id))
    assert isinstance(outcome, VerifiedIdentity)
    assert outcome.provider_id == PROVIDER_ID
    assert outcome.identity == f"aws:aws:{ACCOUNT}:{REGION}:{INSTANCE}"
    assert outcome.node_names == ("ip-10-0-1-17.eu-west-1.compute.internal",)
    assert harness.aws.sts_requests == ()
    assert not harness.ec2.roles_asked


async def test_keys_are_fetched_once(harness: PluginHarness) -> None:
    plugin = harness.plugin
    for _ in range(3):
        assert isinstance(await plugin.verify_client(harness.request(evidence(harness))), VerifiedIdentity)
    assert harness.aws.issuer_paths == ("/.well-known/openid-configuration", "/.well-known/jwks.json")


async def test_a_token_with_one_audience_in_a_list_is_alike(harness: PluginHarness) -> None:
    assert isinstance(await harness.ask(evidence(harness, audience=[AUDIENCE])), VerifiedIdentity)


# The signature.


@pytest.mark.parametrize("algorithm", ["none", "HS256", "PS256", "RS512"])
async def test_another_algorithm_is_refused(harness: PluginHarness, algorithm: str) -> None:
    token = harness.aws.issuer.token(claims(harness), alg=algorithm)
    with pytest.raises(MalformedEvidence):
        await harness.ask(token_fields(token))
    header, body, _ = token.split(".")
    with pytest.raises(MalformedEvidence):
        await harness.ask(token_fields(f"{header}.{body}."))
    assert harness.nobody_was_called


async def test_no_key_and_unknown_keys_are_refused(harness: PluginHarness) -> None:
    with pytest.raises(MalformedEvidence):
        await harness.ask(token_fields(harness.aws.issuer.token(claims(harness), kid=...)))
    assert harness.nobody_was_called
    assert (
        await harness.denied(token_fields(harness.aws.issuer.token(claims(harness), kid="RSA_9")))
        == "WebIdentityRefused"
    )


async def test_a_key_that_was_published_a_moment_ago_is_waited_for(harness: PluginHarness) -> None:
    plugin = harness.plugin
    assert isinstance(await plugin.verify_client(harness.request(evidence(harness))), VerifiedIdentity)
    token = harness.aws.issuer.token(claims(harness), kid="RSA_9")
    outcome = await plugin.verify_client(harness.request(token_fields(token)))
    assert isinstance(outcome, NotProvableYet)
    assert outcome.reason == "WebIdentityKeyNotPublished"
    assert outcome.retry_after.total_seconds() <= PAUSE_SECONDS


async def test_another_issuers_key_of_the_same_name_is_refused(harness: PluginHarness) -> None:
    forged = Issuer(generation=1).token(claims(harness))
    assert await harness.denied(token_fields(forged)) == "WebIdentityRefused"
    assert not harness.ec2.described


async def test_changed_claims_are_refused(harness: PluginHarness) -> None:
    header, _, signature = harness.aws.issuer.token(claims(harness, about={"ec2_source_instance_arn": "x"})).split(".")
    changed = encoded(json.dumps(claims(harness)).encode())
    assert await harness.denied(token_fields(f"{header}.{changed}.{signature}")) == "WebIdentityRefused"


# The audience.


async def test_another_cluster_s_or_key_s_token_is_refused(harness: PluginHarness) -> None:
    other = binding_for(provider="aws", cluster=CACertHash("sha256:" + "aa" * 32))
    with pytest.raises(BindingMismatch):
        await harness.ask(evidence(harness, audience=wire.audience(other.value)))
    assert harness.nobody_was_called


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
async def test_a_token_with_another_or_several_audiences_is_refused(
    harness: PluginHarness, audience: Callable[[str], Any]
) -> None:
    with pytest.raises(MalformedEvidence):
        await harness.ask(evidence(harness, aud=audience(AUDIENCE)))
    with pytest.raises(MalformedEvidence):
        await harness.ask(evidence(harness, aud=...))
    assert harness.nobody_was_called


# Its time.


async def test_an_expired_token_is_refused(harness: PluginHarness) -> None:
    at = int(NOW.timestamp())
    assert await harness.denied(evidence(harness, iat=at - 600, exp=at - 300)) == "EvidenceExpired"
    assert await harness.denied(evidence(harness, iat=at - 600, exp=at + 3000)) == "EvidenceExpired"
    assert harness.nobody_was_called


async def test_a_token_from_the_future_waits_for_the_controllers_clock_to_be_set(harness: PluginHarness) -> None:
    """AWS signed the time, so it is the controller's clock that is wrong, and nobody is denied for it."""
    at = int(NOW.timestamp()) + 120
    outcome = await harness.ask(evidence(harness, iat=at, exp=at + 300))
    assert isinstance(outcome, NotProvableYet)
    assert (outcome.reason, "120 seconds" in outcome.message) == ("ClockBehind", True)
    assert not harness.ec2.described
    forged = Issuer(generation=1).token(claims(harness, iat=at, exp=at + 300))
    assert await harness.denied(token_fields(forged)) == "WebIdentityRefused"
    latest = 253_402_300_799
    forged = Issuer(generation=1).token(claims(harness, iat=latest, exp=latest))
    assert await harness.denied(token_fields(forged)) == "WebIdentityRefused"
    with pytest.raises(MalformedEvidence):
        await harness.ask(evidence(harness, nbf=at))


async def test_a_token_that_lives_too_long_is_refused(harness: PluginHarness) -> None:
    assert await harness.denied(evidence(harness, exp=int(NOW.timestamp()) + 3601)) == "WebIdentityRefused"


@pytest.mark.parametrize("name", ["iat", "exp"])
@pytest.mark.parametrize("value", [..., None, "1", 1.5, True, -1, 10**30])
async def test_a_token_without_its_times_is_refused(harness: PluginHarness, name: str, value: Any) -> None:
    with pytest.raises(MalformedEvidence):
        await harness.ask(evidence(harness, **{name: value}))
    assert harness.nobody_was_called


# Who it is about.


async def test_another_issuer_is_refused(harness: PluginHarness) -> None:
    for issuer in ("https://evil.example", f"https://{ISSUER_HOST}/", f"http://{ISSUER_HOST}"):
        assert await harness.denied(evidence(harness, iss=issuer)) == "IssuerMismatch"
    assert harness.nobody_was_called


async def test_an_account_without_a_configured_issuer_is_refused(harness: PluginHarness) -> None:
    harness.settings = settings({"webIdentityIssuers": {OTHER_ACCOUNT: f"https://{ISSUER_HOST}"}})
    assert await harness.denied(evidence(harness)) == "WebIdentityNotAccepted"
    assert harness.nobody_was_called


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
async def test_a_token_of_another_or_no_instance_is_refused(harness: PluginHarness, arn: Any) -> None:
    """A session of AssumeRole has no instance, whatever it is called."""
    about = {"ec2_source_instance_arn": arn}
    assert await harness.denied(evidence(harness, about=about)) == "CallerIsAnotherInstance"
    assert harness.nobody_was_called


async def test_tags_of_the_requests_cannot_name_an_instance(harness: PluginHarness) -> None:
    arn = f"arn:aws:ec2:{REGION}:{ACCOUNT}:instance/{INSTANCE}"
    about = {"ec2_source_instance_arn": ..., "request_tags": {"ec2_source_instance_arn": arn}}
    assert await harness.denied(evidence(harness, about=about)) == "CallerIsAnotherInstance"


@pytest.mark.parametrize("delivery", ["1.0", "", ...])
async def test_credentials_by_imdsv1_are_refused_where_imdsv2_is_required(
    harness: PluginHarness, delivery: Any
) -> None:
    about = {"ec2_role_delivery": delivery}
    assert await harness.denied(evidence(harness, about=about)) == "CredentialsDeliveredOpenly"
    harness.settings = settings({"webIdentityIssuers": {ACCOUNT: f"https://{ISSUER_HOST}"}, "requireIMDSv2": False})
    assert isinstance(await harness.ask(evidence(harness, about=about)), VerifiedIdentity)


async def test_another_role_is_refused(harness: PluginHarness) -> None:
    assert await harness.denied(evidence(harness, sub=f"arn:aws:iam::{ACCOUNT}:role/admin")) == "RoleNotAllowed"
    assert await harness.denied(evidence(harness, sub=f"arn:aws:iam::{ACCOUNT}:role/{ROLE}/admin")) == "RoleNotAllowed"
    assert isinstance(
        await harness.ask(evidence(harness, sub=f"arn:aws:iam::{ACCOUNT}:role/any/path/{ROLE}")), VerifiedIdentity
    )


async def test_the_same_role_name_in_another_account_is_refused(harness: PluginHarness) -> None:
    foreign = evidence(harness, sub=f"arn:aws:iam::{OTHER_ACCOUNT}:role/{ROLE}", about={"aws_account": OTHER_ACCOUNT})
    assert await harness.denied(foreign) == "CallerOfAnotherAccount"
    with pytest.raises(MalformedEvidence):
        await harness.ask(evidence(harness, sub=f"arn:aws:iam::{OTHER_ACCOUNT}:role/{ROLE}"))


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
async def test_claims_of_another_form_are_malformed(harness: PluginHarness, changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedEvidence):
        await harness.ask(evidence(harness, **changes))
    assert harness.nobody_was_called


# The issuer's faults are never the node's.


async def test_an_issuer_that_cannot_be_asked_makes_it_wait(harness: PluginHarness) -> None:
    elsewhere = {**harness.aws.issuer.discovery(), "jwks_uri": "https://evil.example/.well-known/jwks.json"}
    other = {**harness.aws.issuer.discovery(), "issuer": "https://evil.example"}
    for service, answer in (
        ("discovery", Answer(503)),
        ("discovery", Answer(302, headers={"Location": "https://evil.example/"})),
        ("discovery", Answer(200, b"<html>", "text/html")),
        ("discovery", Answer(200, json.dumps(elsewhere).encode())),
        ("discovery", Answer(200, json.dumps(other).encode())),
        ("discovery", Answer(203, json.dumps(harness.aws.issuer.discovery()).encode())),
        ("keys", Answer(500)),
        ("keys", Answer(203, json.dumps(harness.aws.issuer.key_set()).encode())),
        ("keys", Answer(200, b"{}")),
        ("keys", Answer(200, b'{"keys":[]}')),
        ("keys", Answer(200, b" " * 2 * 1024 * 1024)),
    ):
        harness.aws.recover()
        harness.aws.fail(service, answer)
        outcome = await harness.ask(evidence(harness))
        assert isinstance(outcome, NotProvableYet)
        assert outcome.message.startswith(f"AWS STS token issuer https://{ISSUER_HOST}: ")
    assert not harness.ec2.described


async def test_screening_judges_tokens_without_calling(harness: PluginHarness) -> None:
    bad = harness.plugin.pre_filter(harness.request(evidence(harness, about={"ec2_source_instance_arn": "x"})))
    assert isinstance(bad, Denied)
    harness.plugin.pre_filter(harness.request(evidence(harness)))
    assert harness.nobody_was_called
