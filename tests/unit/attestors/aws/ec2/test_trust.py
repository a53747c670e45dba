"""Who may assume a role: EC2 alone, or the session's name means nothing."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.parse import quote

import pytest

from attestors.aws.ec2.trust import RoleTrust, UnexpectedTrustPolicy, read_trust, require_trust
from attestors.verdict import Ended

EC2: Final = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}


def ec2_only(*statements: Any, partition: str = "aws") -> bool:
    return read_trust("AROA1", {"Version": "2012-10-17", "Statement": list(statements)}, partition=partition).ec2_only


@pytest.mark.parametrize(
    "principal",
    [{"Service": "ec2.amazonaws.com"}, {"Service": ["ec2.amazonaws.com"]}],
)
def test_ec2_alone_is_enough(principal: Any) -> None:
    assert ec2_only(EC2 | {"Principal": principal})
    assert ec2_only(EC2, EC2)


def test_ec2_has_another_name_in_china() -> None:
    china = EC2 | {"Principal": {"Service": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}}
    assert ec2_only(china, partition="aws-cn")
    assert not ec2_only(china, partition="aws")


def test_a_deny_statement_allows_no_principal() -> None:
    assert ec2_only(EC2, {"Effect": "Deny", "Principal": "*", "Action": "sts:AssumeRole"})


@pytest.mark.parametrize(
    "principal",
    [
        "*",
        {"AWS": "*"},
        {"AWS": "arn:aws:iam::123456789012:root"},
        {"Service": "ec2.amazonaws.com", "AWS": "123456789012"},
        {"Service": ["ec2.amazonaws.com", "lambda.amazonaws.com"]},
        {"Service": "lambda.amazonaws.com"},
        {"Service": "*"},
        {"Service": "ec2.amazonaws.com.evil.example"},
        {"Service": []},
        {"Service": None},
        {"Federated": "accounts.google.com"},
        {},
        None,
    ],
)
def test_any_other_principal_is_too_wide(principal: Any) -> None:
    assert not ec2_only(EC2, EC2 | {"Principal": principal})


def test_a_not_principal_is_too_wide() -> None:
    everybody = {"Effect": "Allow", "NotPrincipal": {"AWS": "x"}, "Action": "sts:AssumeRole"}
    assert not ec2_only(everybody)
    assert not ec2_only(EC2 | {"NotPrincipal": {"AWS": "x"}})


@pytest.mark.parametrize("effect", ["allow", "", None, "Maybe"])
def test_an_effect_that_is_not_known_is_taken_for_allow(effect: Any) -> None:
    assert not ec2_only({"Effect": effect, "Principal": "*", "Action": "sts:AssumeRole"})


@pytest.mark.parametrize("encode", [json.dumps, lambda document: quote(json.dumps(document))])
def test_a_policy_in_text_is_read(encode: Any) -> None:
    assert read_trust("AROA1", encode({"Statement": EC2}), partition="aws") == RoleTrust("AROA1", True)


@pytest.mark.parametrize("policy", ["", "x", "[]", "1", {}, {"Statement": None}, {"Statement": ["x"]}, "x" * 30000])
def test_something_else_is_no_policy(policy: Any) -> None:
    with pytest.raises(UnexpectedTrustPolicy):
        read_trust("AROA1", policy, partition="aws")


@pytest.mark.parametrize(
    ("trust", "reason"),
    [(RoleTrust("AROA1", False), "RoleTrustTooWide"), (RoleTrust("AROA2", True), "RoleWasReplaced")],
)
def test_a_wide_or_replaced_role_waits_until_it_is_mended(trust: RoleTrust, reason: str) -> None:
    with pytest.raises(Ended) as caught:
        require_trust(trust, role_name="nodes", role_id="AROA1")
    assert caught.value.outcome.reason == reason


def test_a_role_of_ec2_alone_passes() -> None:
    require_trust(RoleTrust("AROA1", True), role_name="nodes", role_id="AROA1")
