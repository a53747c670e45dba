"""The operator's settings, and a policy that can only narrow."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from attestors.aws.document import shipped_certificates
from attestors.aws.ec2.rules import AnyHopLimit, InstanceRules
from attestors.aws.settings import AnyRegion, AWSSettings, NotDescribed, Role
from attestors.contract import AttestorSettings, InvalidSettings
from tests.support.aws_documents import authority

ACCOUNT: Final = "123456789012"
NODES: Final = f"arn:aws:iam::{ACCOUNT}:role/nodes.example"
CONTROL_PLANE: Final = f"arn:aws:iam::{ACCOUNT}:role/some/path/control-plane.example"
ISSUER: Final = "https://0f1e2d3c.tokens.sts.global.api.aws"


def parse(policy: Mapping[str, Any] | None = None, /, **operator: Any) -> AWSSettings:
    given = {"allowedRoles": [NODES, CONTROL_PLANE]} | operator
    kept = {name: value for name, value in given.items() if value is not ...}
    return AWSSettings.parse(AttestorSettings(operator=kept, policy=policy or {}))


def refused(policy: Mapping[str, Any] | None = None, /, **operator: Any) -> str:
    with pytest.raises(InvalidSettings) as caught:
        parse(policy, **operator)
    return str(caught.value)


def test_roles_are_enough_and_everything_is_checked() -> None:
    settings = parse()
    assert settings.roles == {
        Role("aws", ACCOUNT, "nodes.example"),
        Role("aws", ACCOUNT, "control-plane.example"),
    }
    assert isinstance(settings.regions, AnyRegion)
    assert settings.instance_rules == InstanceRules(True, 1, True, {})
    assert settings.check_role_trust
    assert settings.require_session_tokens
    assert settings.accept_presigned
    assert settings.asks_aws_with_credentials
    assert dict(settings.issuers) == {}
    assert dict(settings.account_roles) == {}
    assert (settings.freshness.maximum_age, settings.freshness.clock_skew) == (
        timedelta(minutes=5),
        timedelta(minutes=1),
    )
    assert settings.certificates == shipped_certificates()


def test_without_roles_no_instance_is_allowed() -> None:
    assert "allowedRoles is missing" in refused(allowedRoles=...)
    assert "allowedRoles is missing" in refused({"allowedRoles": [NODES]}, allowedRoles=...)


@pytest.mark.parametrize(
    "roles",
    [
        [],
        NODES,
        [1],
        ["nodes.example"],
        ["*"],
        [f"arn:aws:iam::{ACCOUNT}:role/*"],
        ["arn:aws:iam::*:role/nodes"],
        [f"arn:aws:sts::{ACCOUNT}:assumed-role/nodes/x"],
        [f"arn:aws-moon:iam::{ACCOUNT}:role/nodes"],
        [NODES] * 257,
    ],
)
def test_roles_are_named_in_full(roles: Any) -> None:
    refused(allowedRoles=roles)
    refused({"allowedRoles": roles})


def test_a_policy_leaves_roles_out_and_adds_none() -> None:
    assert parse({"allowedRoles": [NODES]}).roles == {Role("aws", ACCOUNT, "nodes.example")}
    for other in ("arn:aws:iam::210987654321:role/nodes.example", f"arn:aws:iam::{ACCOUNT}:role/admin"):
        assert "does not allow role" in refused({"allowedRoles": [NODES, other]})


def test_a_policy_leaves_regions_out_and_adds_none() -> None:
    assert parse(allowedRegions=["eu-west-1", "eu-west-2"]).regions == frozenset({"eu-west-1", "eu-west-2"})
    assert parse({"allowedRegions": ["eu-west-1"]}).regions == frozenset({"eu-west-1"})
    assert parse({"allowedRegions": ["eu-west-1"]}, allowedRegions=["eu-west-1", "eu-west-2"]).regions == frozenset(
        {"eu-west-1"}
    )
    assert "does not allow us-east-1" in refused({"allowedRegions": ["us-east-1"]}, allowedRegions=["eu-west-1"])
    refused(allowedRegions=["moon"])


@pytest.mark.parametrize(
    "name",
    [
        "accountRoles",
        "describeInstances",
        "checkRoleTrust",
        "checkAttachTimes",
        "requireIMDSv2",
        "maximumHopLimit",
        "acceptPresignedRequests",
        "webIdentityIssuers",
        "maximumEvidenceAgeSeconds",
        "clockSkewSeconds",
        "regionCertificatesFolder",
        "replacedRegionCertificates",
        "endpoint",
        "stsHost",
    ],
)
def test_what_opens_is_not_the_policys_to_say(name: str) -> None:
    assert "a policy's settings" in refused({name: True})


@pytest.mark.parametrize("name", ["endpoint", "endpoints", "routes", "stsHost", "requiredTags", "allowedroles"])
def test_there_are_no_other_settings_above_all_no_endpoints(name: str) -> None:
    assert f"have no {name!r}" in refused(**{name: "x"})


@pytest.mark.parametrize(
    "name", ["describeInstances", "checkRoleTrust", "checkAttachTimes", "requireIMDSv2", "acceptPresignedRequests"]
)
@pytest.mark.parametrize("value", ["false", 0, None, []])
def test_a_switch_is_true_or_false(name: str, value: Any) -> None:
    assert refused(**{name: value}) == f"{name} must be true or false"


def test_switches_are_switched() -> None:
    assert parse(checkAttachTimes=False).instance_rules == InstanceRules(True, 1, False, {})
    relaxed = parse(requireIMDSv2=False)
    assert (relaxed.instance_rules, relaxed.require_session_tokens) == (InstanceRules(False, 1, True, {}), False)
    assert not parse(checkRoleTrust=False).check_role_trust
    assert isinstance(parse(describeInstances=False).instance_rules, NotDescribed)
    assert parse(describeInstances=False).asks_aws_with_credentials
    assert not parse(describeInstances=False, checkRoleTrust=False).asks_aws_with_credentials


def test_the_hop_limit_is_a_number_or_any() -> None:
    assert parse(maximumHopLimit=2).instance_rules == InstanceRules(True, 2, True, {})
    assert parse(maximumHopLimit="any").instance_rules == InstanceRules(True, AnyHopLimit(), True, {})
    for value in (0, 65, "2", True, None):
        refused(maximumHopLimit=value)


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("maximumEvidenceAgeSeconds", (30, 900), (29, 901, "60", 60.0, True)),
        ("clockSkewSeconds", (0, 300), (-1, 301, None)),
    ],
)
def test_times_have_bounds(name: str, good: tuple[int, ...], bad: tuple[Any, ...]) -> None:
    for value in good:
        parse(**{name: value})
    for value in bad:
        refused(**{name: value})


def test_issuers_are_hosts_of_accounts() -> None:
    assert dict(parse(webIdentityIssuers={ACCOUNT: ISSUER}).issuers) == {ACCOUNT: ISSUER}
    for issuers in (
        {"123": ISSUER},
        {ACCOUNT: "http://x.example"},
        {ACCOUNT: f"{ISSUER}/"},
        {123456789012: ISSUER},
        [ISSUER],
        {ACCOUNT: None},
    ):
        refused(webIdentityIssuers=issuers)


def test_some_proof_must_be_accepted() -> None:
    assert "webIdentityIssuers is required" in refused(acceptPresignedRequests=False)
    assert not parse(acceptPresignedRequests=False, webIdentityIssuers={ACCOUNT: ISSUER}).accept_presigned


def test_a_role_for_an_account_is_of_that_account() -> None:
    assert dict(parse(accountRoles={ACCOUNT: NODES}).account_roles) == {ACCOUNT: NODES}
    assert "must belong to that account" in refused(accountRoles={"210987654321": NODES})
    refused(accountRoles={ACCOUNT: "nodes"})


def test_tags_are_the_policys_and_need_ec2() -> None:
    rules = parse({"requiredTags": {"team": "a"}}).instance_rules
    assert isinstance(rules, InstanceRules)
    assert dict(rules.required_tags) == {"team": "a"}
    assert "so tags cannot be read" in refused({"requiredTags": {"team": "a"}}, describeInstances=False)
    for tags in ({"": "x"}, {"x": "y" * 257}, {"x": 1}, ["x"], {str(number): "" for number in range(17)}):
        refused({"requiredTags": tags})


def test_the_folder_of_certificates_is_absolute_and_readable(tmp_path: Any) -> None:
    (tmp_path / "ap-southeast-9.pem").write_bytes(authority("new").certificate.public_bytes(Encoding.PEM))
    certificates = parse(regionCertificatesFolder=str(tmp_path)).certificates
    assert certificates.by_region == {
        **shipped_certificates().by_region,
        "ap-southeast-9": (authority("new").pinned,),
    }
    refused(regionCertificatesFolder="certificates")
    refused(regionCertificatesFolder=1)
    refused(regionCertificatesFolder=str(tmp_path / "missing"))
    refused(regionCertificatesFolder=str(tmp_path), replacedRegionCertificates=["eu-west-1"])
    refused(replacedRegionCertificates="eu-west-1")
    (tmp_path / "eu-west-1.pem").write_text("x")
    refused(regionCertificatesFolder=str(tmp_path))
