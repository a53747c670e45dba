"""A presigned request as proof of who calls: honest ones pass, and each attack is refused for its own reason."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from typing import Any, Final
from urllib.parse import quote

import pytest

from attestors.aws import wire
from attestors.aws.ec2.trust import RoleTrust
from attestors.clouds.calls import CloudCalls
from attestors.clouds.errors import CloudObjectMissing, CloudRefused, CloudUnavailable
from attestors.contract import Denied, NotProvableYet, Plausible, VerifiedIdentity
from attestors.wire.binding import BindingMismatch, CACertHash
from attestors.wire.evidence import MalformedEvidence
from attestors.wire.names import Purpose
from tests.integration.aws.fixtures import BINDING, PROVIDER_ID, ROLE, PluginHarness, fields, presigned, settings
from tests.support import aws_documents
from tests.support.aws_documents import ACCOUNT, INSTANCE, OTHER_REGION, REGION
from tests.support.fake_aws import Answer, FakeAWS, Session
from tests.unit.attestors.aws.ec2.descriptions import description
from tests.unit.attestors.support import NOW, binding_for

OTHER_INSTANCE: Final = "i-0fedcba9876543210"
OTHER_ACCOUNT: Final = "210987654321"


async def test_an_instance_is_verified(harness: PluginHarness) -> None:
    outcome = await harness.ask(fields(presigned(harness.session)))
    assert isinstance(outcome, VerifiedIdentity)
    assert outcome.provider_id == PROVIDER_ID
    assert outcome.identity == f"aws:aws:{ACCOUNT}:{REGION}:{INSTANCE}"
    assert outcome.binding.value == BINDING.value
    assert outcome.node_names == ("ip-10-0-1-17.eu-west-1.compute.internal",)
    assert outcome.dns_names == outcome.node_names
    assert [str(address) for address in outcome.ip_addresses] == ["10.0.1.17"]
    assert harness.ec2.described == [(ACCOUNT, REGION, (INSTANCE,))]


async def test_serving_requests_are_verified_alike(harness: PluginHarness) -> None:
    outcome = await harness.plugin.verify_serving(harness.request(fields(presigned(harness.session))))
    assert isinstance(outcome, VerifiedIdentity)


async def test_the_pre_filter_makes_no_call(harness: PluginHarness) -> None:
    good = harness.request(fields(presigned(harness.session)))
    assert isinstance(harness.plugin.pre_filter(good), Plausible)
    old = harness.request(fields(presigned(harness.session, at=NOW - timedelta(minutes=16))))
    assert isinstance(harness.plugin.pre_filter(old), Denied)
    assert harness.nobody_was_called


async def test_sts_gets_what_was_built_here_and_no_more(harness: PluginHarness) -> None:
    await harness.ask(fields(presigned(harness.session)))
    [sent] = harness.aws.sts_requests
    assert (sent.method, sent.path, sent.body) == ("GET", "/", b"")
    assert {name.lower(): value for name, value in sent.headers} == {
        "host": harness.aws.sts_host,
        "accept-encoding": "identity",
        "connection": "close",
        "accept": "application/json",
        wire.BINDING_HEADER: BINDING.value.hex(),
    }


# The document.


async def test_another_instances_document_does_not_fit_the_claim(harness: PluginHarness) -> None:
    other = aws_documents.sign(aws_documents.document(instanceId=OTHER_INSTANCE))
    assert await harness.denied(fields(presigned(harness.session), document=other)) == "ProviderIDMismatch"
    assert harness.nobody_was_called


async def test_another_instances_document_does_not_fit_the_caller(harness: PluginHarness) -> None:
    """The document of one instance, claimed by another with its own credentials."""
    other = aws_documents.sign(aws_documents.document(instanceId=OTHER_INSTANCE))
    claim = f"aws:///{REGION}a/{OTHER_INSTANCE}"
    evidence = fields(presigned(harness.session), document=other)
    assert await harness.denied(evidence, provider_id=claim) == "CallerIsAnotherInstance"
    assert not harness.ec2.described


async def test_a_document_with_another_signer_is_refused(harness: PluginHarness) -> None:
    attacker = aws_documents.authority("attacker")
    forged = aws_documents.sign(aws_documents.document(), attacker)
    assert await harness.denied(fields(presigned(harness.session), document=forged)) == "IdentityDocumentRefused"
    copied = aws_documents.authority(
        "attacker with the name", serial_number=aws_documents.authority(REGION).certificate.serial_number
    )
    forged = aws_documents.sign(aws_documents.document(), copied)
    assert await harness.denied(fields(presigned(harness.session), document=forged)) == "IdentityDocumentRefused"
    assert harness.nobody_was_called


async def test_another_regions_key_is_refused(harness: PluginHarness) -> None:
    forged = aws_documents.sign(aws_documents.document(), aws_documents.authority(OTHER_REGION))
    assert await harness.denied(fields(presigned(harness.session), document=forged)) == "IdentityDocumentRefused"


async def test_a_region_without_a_certificate_waits_for_the_operator(harness: PluginHarness) -> None:
    elsewhere = aws_documents.sign(aws_documents.document(region="ap-south-2"))
    outcome = await harness.ask(fields(presigned(harness.session), document=elsewhere))
    assert isinstance(outcome, NotProvableYet)
    assert outcome.reason == "RegionCertificateMissing"
    assert isinstance(harness.plugin.pre_filter(harness.request(fields("x", document=elsewhere))), Plausible)


async def test_rubbish_is_malformed(harness: PluginHarness) -> None:
    with pytest.raises(MalformedEvidence):
        await harness.ask(fields(presigned(harness.session), document=b"rubbish"))


async def test_regions_and_accounts_are_the_operators_to_allow(harness: PluginHarness) -> None:
    evidence = fields(presigned(harness.session))
    harness.settings = settings({"allowedRegions": [OTHER_REGION]})
    assert await harness.denied(evidence) == "RegionNotAllowed"
    harness.settings = settings({"allowedRoles": [f"arn:aws:iam::{OTHER_ACCOUNT}:role/{ROLE}"]})
    assert await harness.denied(evidence) == "AccountNotAllowed"
    harness.settings = settings({"allowedRoles": [f"arn:aws-cn:iam::{ACCOUNT}:role/{ROLE}"]})
    assert await harness.denied(evidence) == "AccountNotAllowed"
    assert harness.nobody_was_called


# The request, as it is.


async def test_exactly_one_proof_is_wanted(harness: PluginHarness) -> None:
    good = fields(presigned(harness.session))
    for changed in (
        good | {wire.WEB_IDENTITY_TOKEN_FIELD: "x"},
        {name: value for name, value in good.items() if name != wire.CALLER_IDENTITY_REQUEST_FIELD},
        {name: value for name, value in good.items() if name != wire.CALLER_IDENTITY_BINDING_FIELD},
        {name: value for name, value in good.items() if name != wire.IDENTITY_DOCUMENT_FIELD},
        good | {"extra": "x"},
    ):
        with pytest.raises(MalformedEvidence):
            await harness.ask(changed)
    assert harness.nobody_was_called


@pytest.mark.parametrize(
    "changes",
    [
        {"parameters": {"Action": "GetSessionToken", "Version": "2011-06-15"}},
        {"parameters": {"Action": "GetCallerIdentity", "Version": "2011-06-15", "x": "y"}},
        {"host": "sts.evil.example"},
        {"host": "iam.amazonaws.com"},
        {"host": "sts.amazonaws.com"},
        {"headers": {}},
        {"headers": {"x-other": "00"}},
        {"expires": 901},
        {"region": "moon"},
    ],
)
async def test_a_rightly_signed_request_for_something_else_is_refused(
    harness: PluginHarness, changes: dict[str, Any]
) -> None:
    with pytest.raises(MalformedEvidence):
        await harness.ask(fields(presigned(harness.session, **changes)))
    assert harness.nobody_was_called


async def test_parameters_twice_in_any_case_are_refused(harness: PluginHarness) -> None:
    url = presigned(harness.session)
    for added in ("Action=GetSessionToken", "action=GetSessionToken", "x-amz-signedheaders=host", "X-AMZ-DATE=1"):
        with pytest.raises(MalformedEvidence):
            await harness.ask(fields(f"{url}&{added}"))
    assert harness.nobody_was_called


async def test_another_partitions_sts_is_refused(harness: PluginHarness) -> None:
    china = presigned(harness.session, region="cn-north-1", host="sts.cn-north-1.amazonaws.com.cn")
    assert await harness.denied(fields(china)) == "PartitionMismatch"
    assert harness.nobody_was_called


async def test_another_regions_sts_knows_the_session_too(harness: PluginHarness, calls: CloudCalls) -> None:
    with FakeAWS(OTHER_REGION, clock=lambda: NOW) as elsewhere:
        session = elsewhere.remember(harness.session)
        other = PluginHarness(elsewhere, calls, harness.ec2)
        assert isinstance(await other.ask(fields(presigned(session, region=OTHER_REGION))), VerifiedIdentity)
    assert not harness.aws.sts_requests


async def test_no_call_to_an_unknown_region(harness: PluginHarness) -> None:
    """The node chooses whose STS is asked: not any host that could be one, nor one that the operator rules out."""
    made_up = presigned(harness.session, region="us-moonbase-7")
    outcome = await harness.ask(fields(made_up))
    assert isinstance(outcome, NotProvableYet)
    assert outcome.reason == "RegionCertificateMissing"
    harness.settings = settings({"allowedRegions": [REGION]})
    other = presigned(harness.session, region=OTHER_REGION)
    assert await harness.denied(fields(other)) == "RegionNotAllowed"
    assert harness.nobody_was_called


async def test_it_can_be_accepted_no_more(harness: PluginHarness) -> None:
    issuers = {ACCOUNT: harness.aws.issuer.url}
    harness.settings = settings({"acceptPresignedRequests": False, "webIdentityIssuers": issuers})
    assert await harness.denied(fields(presigned(harness.session))) == "PresignedRequestNotAccepted"


# The binding.


async def test_a_request_for_another_cluster_purpose_or_signer_is_refused(harness: PluginHarness) -> None:
    for other in (
        binding_for(provider="aws", cluster=CACertHash("sha256:" + "aa" * 32)),
        binding_for(provider="aws", purpose=Purpose.SERVING),
        binding_for(provider="tpm"),
    ):
        text = other.value.hex()
        with pytest.raises(BindingMismatch):
            await harness.ask(fields(presigned(harness.session, text), binding=text))
    assert harness.nobody_was_called


async def test_evidence_read_from_another_request_is_refused(harness: PluginHarness) -> None:
    """Every bootstrap token may read it; it commits to the key of whoever made it."""
    stolen = fields(presigned(harness.session))
    own = binding_for(provider="aws", cluster=CACertHash("sha256:" + "bb" * 32))
    with pytest.raises(BindingMismatch):
        await harness.ask(stolen, binding=own)


async def test_a_binding_that_was_not_signed_is_refused_by_sts(harness: PluginHarness) -> None:
    """What the field says is not what the header said when it was signed."""
    other = hashlib.sha256(b"another key").hexdigest()
    assert await harness.denied(fields(presigned(harness.session, other))) == "CallerIdentityRefused"


async def test_a_binding_of_another_form_is_refused(harness: PluginHarness) -> None:
    own = BINDING.value.hex()
    for text in ("", own.upper(), own[:-2], f"{own}00", "0x" + own[2:], "zz" * 32):
        with pytest.raises(MalformedEvidence):
            await harness.ask(fields(presigned(harness.session), binding=text))


# Its time.


async def test_sixteen_minutes_old_is_too_old(harness: PluginHarness) -> None:
    old = fields(presigned(harness.session, at=NOW - timedelta(minutes=16), expires=900))
    assert await harness.denied(old) == "EvidenceExpired"
    harness.settings = settings({"maximumEvidenceAgeSeconds": 900})
    assert await harness.denied(old) == "EvidenceExpired"
    assert harness.nobody_was_called


async def test_the_operators_limit_is_shorter_than_awss(harness: PluginHarness) -> None:
    seven = fields(presigned(harness.session, at=NOW - timedelta(minutes=7), expires=900))
    assert await harness.denied(seven) == "EvidenceExpired"
    harness.settings = settings({"maximumEvidenceAgeSeconds": 900})
    assert isinstance(await harness.ask(seven), VerifiedIdentity)


async def test_the_future_is_refused(harness: PluginHarness) -> None:
    far = fields(presigned(harness.session, at=NOW + timedelta(minutes=7)))
    assert await harness.denied(far) == "EvidenceFromTheFuture"
    assert harness.plugin.pre_filter(harness.request(far)) != Plausible()
    assert isinstance(
        await harness.ask(fields(presigned(harness.session, at=NOW + timedelta(seconds=30)))), VerifiedIdentity
    )


async def test_a_request_of_a_clock_that_is_a_little_ahead_waits_and_is_taken_when_its_time_comes(
    harness: PluginHarness,
) -> None:
    """By the node's clock, or because the controller's is behind: who would be denied asks the same again."""
    ahead = fields(presigned(harness.session, at=NOW + timedelta(minutes=2)))
    outcome = await harness.ask(ahead)
    assert isinstance(outcome, NotProvableYet)
    assert (outcome.reason, outcome.retry_after) == ("EvidenceNotYetValid", timedelta(minutes=1))
    assert harness.nobody_was_called
    assert harness.plugin.pre_filter(harness.request(ahead)) == Plausible()
    assert isinstance(await harness.ask(ahead, now=NOW + outcome.retry_after), VerifiedIdentity)


async def test_the_end_of_time_is_the_future(harness: PluginHarness) -> None:
    latest = NOW.replace(year=9999, month=12, day=31, hour=23, minute=59, second=59)
    assert await harness.denied(fields(presigned(harness.session, at=latest))) == "EvidenceFromTheFuture"


# The caller.


async def test_a_wrong_signature_is_refused(harness: PluginHarness) -> None:
    session = harness.session
    assert await harness.denied(fields(presigned(session.but(secret_key="guessed")))) == "CallerIdentityRefused"
    assert await harness.denied(fields(presigned(session.but(session_token="Z3Vlc3NlZA==")))) == "CallerIdentityRefused"
    unknown = session.but(access_key_id="ASIAUNKNOWNUNKNOWN00")
    assert await harness.denied(fields(presigned(unknown))) == "CallerIdentityRefused"


async def test_a_changed_parameter_is_refused_by_sts(harness: PluginHarness) -> None:
    url = presigned(harness.session, expires=60)
    assert await harness.denied(fields(url.replace("X-Amz-Expires=60", "X-Amz-Expires=61"))) == "CallerIdentityRefused"


async def test_expired_credentials_are_refused(harness: PluginHarness) -> None:
    session = harness.session
    expired = harness.aws.remember(session.but(expires_at=NOW))
    assert await harness.denied(fields(presigned(expired))) == "CallerIdentityRefused"


@pytest.mark.parametrize(
    "name",
    [OTHER_INSTANCE, f"{INSTANCE}0", f"{INSTANCE}@x", INSTANCE.upper(), INSTANCE[:-1], f"x{INSTANCE}", "i-01234567"],
)
async def test_a_session_that_merely_looks_like_the_instance_is_refused(harness: PluginHarness, name: str) -> None:
    assumed = harness.aws.remember(harness.session.but(session_name=name, instance_arn=""))
    assert await harness.denied(fields(presigned(assumed))) == "CallerIsAnotherInstance"


async def test_a_session_that_somebody_named_after_the_instance_is_refused_by_its_roles_trust(
    harness: PluginHarness,
) -> None:
    session = harness.session
    assert isinstance(harness.ec2.trust, RoleTrust)
    harness.ec2.trust = RoleTrust(harness.ec2.trust.role_id, ec2_only=False)
    outcome = await harness.ask(fields(presigned(session)))
    assert isinstance(outcome, NotProvableYet)
    assert outcome.reason == "RoleTrustTooWide"
    assert not harness.ec2.described


async def test_the_roles_trust_is_the_operators_to_check(harness: PluginHarness) -> None:
    harness.settings = settings({"checkRoleTrust": False})
    session = harness.session
    harness.ec2.trust = RoleTrust("AROAOTHER", ec2_only=False)
    assert isinstance(await harness.ask(fields(presigned(session))), VerifiedIdentity)
    assert not harness.ec2.roles_asked


async def test_the_same_role_name_in_another_account_is_refused(harness: PluginHarness) -> None:
    """Any account may have a role of that name, and a session of it named after the instance."""
    foreign = harness.aws.remember(harness.session.but(account=OTHER_ACCOUNT))
    assert await harness.denied(fields(presigned(foreign))) == "CallerOfAnotherAccount"
    harness.settings = settings(
        {"allowedRoles": [f"arn:aws:iam::{account}:role/{ROLE}" for account in (ACCOUNT, OTHER_ACCOUNT)]}
    )
    assert await harness.denied(fields(presigned(foreign))) == "CallerOfAnotherAccount"


async def test_another_partitions_account_is_refused(harness: PluginHarness) -> None:
    foreign = harness.aws.remember(harness.session.but(partition="aws-cn"))
    assert await harness.denied(fields(presigned(foreign))) == "CallerOfAnotherAccount"


async def test_a_role_that_is_not_allowed_is_refused(harness: PluginHarness) -> None:
    for name in ("admin", ROLE.upper(), f"{ROLE}2", "nodesXexample"):
        other = harness.aws.remember(harness.session.but(role_name=name))
        assert await harness.denied(fields(presigned(other))) == "RoleNotAllowed"
    assert not harness.ec2.roles_asked


async def test_a_user_is_refused(harness: PluginHarness) -> None:
    document = {
        "Account": ACCOUNT,
        "Arn": f"arn:aws:iam::{ACCOUNT}:user/{INSTANCE}",
        "UserId": "AIDAEXAMPLEEXAMPLE123",
    }
    answer = {"GetCallerIdentityResponse": {"GetCallerIdentityResult": document}}
    harness.aws.fail("sts", Answer(body=json.dumps(answer).encode()))
    assert await harness.denied(fields(presigned(harness.session))) == "CallerIsNoInstance"


# AWS's faults, and what must not be believed of it.


def _reflected(session: Session) -> bytes:
    result = {"Account": ACCOUNT, "Arn": session.arn, "UserId": session.user_id}
    inside = {"GetCallerIdentityResponse": {"GetCallerIdentityResult": result}}
    return json.dumps({"GetAccessKeyInfoResponse": inside, **inside}).encode()


async def test_no_other_answer_is_believed_nor_held_against_the_node(harness: PluginHarness) -> None:
    session = harness.session
    good = _reflected(session)
    xml = b"<GetCallerIdentityResponse/>"
    for answer in (
        Answer(302, headers={"Location": f"https://{harness.aws.sts_host}/?{quote('x')}"}),
        Answer(307, good, headers={"Location": f"https://{harness.aws.sts_host}/"}),
        Answer(200, xml, "text/xml"),
        Answer(200, good),
        Answer(200, good, "text/xml"),
        Answer(200, b" " * 2 * 1024 * 1024),
        Answer(200, b""),
        Answer.error(400, "Throttling"),
        Answer.error(403, "AccessDenied"),
        Answer(500, b"oops", "text/plain"),
        Answer(503, b"", "text/plain"),
    ):
        harness.aws.fail("sts", answer)
        asked = len(harness.aws.sts_requests)
        assert (await harness.waits(fields(presigned(session)))).startswith("AWS STS: ")
        assert len(harness.aws.sts_requests) == asked + 1
    assert not harness.ec2.described
    harness.aws.recover()
    assert isinstance(await harness.ask(fields(presigned(session))), VerifiedIdentity)


async def test_iam_that_cannot_be_asked_makes_it_wait(harness: PluginHarness) -> None:
    session = harness.session
    for failure, reason in (
        (CloudRefused("AWS IAM", "x"), "CloudAccessRefused"),
        (CloudUnavailable("AWS IAM", "x"), "CloudUnavailable"),
        (CloudObjectMissing("AWS IAM", "x"), "RoleMissing"),
    ):
        harness.ec2.trust = failure
        outcome = await harness.ask(fields(presigned(session)))
        assert isinstance(outcome, NotProvableYet)
        assert (outcome.reason, "AWS IAM" in outcome.message) == (reason, True)


async def test_ec2_that_cannot_be_asked_makes_it_wait(harness: PluginHarness) -> None:
    harness.ec2.failure = CloudUnavailable("AWS EC2", "too many requests at the moment")
    assert (await harness.waits(fields(presigned(harness.session)))).startswith("AWS EC2: ")


# The instance.


async def test_an_instance_that_is_not_listed_yet_waits(harness: PluginHarness) -> None:
    harness.ec2.instances.clear()
    message = await harness.waits(fields(presigned(harness.session)))
    assert message.startswith(f"AWS EC2 does not list {INSTANCE} in account {ACCOUNT}, {REGION} (yet); ")
    assert message.endswith("name a role in accountRoles")
    harness.settings = settings({"accountRoles": {ACCOUNT: f"arn:aws:iam::{ACCOUNT}:role/reader"}})
    assert (await harness.waits(fields(presigned(harness.session)))).endswith("(yet)")


async def test_a_terminated_instance_is_denied(harness: PluginHarness) -> None:
    harness.ec2.instances[INSTANCE] = description(
        State={"Name": "terminated"}, NetworkInterfaces=[], BlockDeviceMappings=[]
    )
    assert await harness.denied(fields(presigned(harness.session))) == "InstanceTerminated"


async def test_an_instance_of_another_owner_is_denied(harness: PluginHarness) -> None:
    harness.ec2.owner = OTHER_ACCOUNT
    assert await harness.denied(fields(presigned(harness.session))) == "InstanceOfAnotherAccount"


async def test_the_operators_and_the_policys_rules_hold(harness: PluginHarness) -> None:
    harness.ec2.instances[INSTANCE] = description(
        MetadataOptions={"HttpTokens": "optional", "HttpPutResponseHopLimit": 2}
    )
    evidence = fields(presigned(harness.session))
    assert "IMDSv2" in await harness.waits(evidence)
    harness.settings = settings({"requireIMDSv2": False})
    assert "hop limit 2" in await harness.waits(evidence)
    harness.settings = settings({"requireIMDSv2": False, "maximumHopLimit": "any"}, {"requiredTags": {"team": "a"}})
    assert "team=a" in await harness.waits(evidence)
    harness.settings = settings({"requireIMDSv2": False, "maximumHopLimit": 2})
    assert isinstance(await harness.ask(evidence), VerifiedIdentity)


async def test_ec2_need_not_be_asked(harness: PluginHarness) -> None:
    harness.settings = settings({"describeInstances": False})
    outcome = await harness.ask(fields(presigned(harness.session)))
    assert isinstance(outcome, VerifiedIdentity)
    assert (outcome.node_names, outcome.dns_names) == ((), ())
    assert [str(address) for address in outcome.ip_addresses] == [aws_documents.PRIVATE_IP]
    assert not harness.ec2.described
