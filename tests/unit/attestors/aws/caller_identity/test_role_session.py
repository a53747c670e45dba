"""Who called: only a session of a role, whose parts agree."""

from __future__ import annotations

from typing import Final

import pytest

from attestors.aws.caller_identity import CallerIdentity
from attestors.aws.caller_identity.role_session import ContradictoryAnswer, NotARoleSession

ACCOUNT: Final = "123456789012"
ARN: Final = f"arn:aws:sts::{ACCOUNT}:assumed-role/nodes.example/i-0123456789abcdef0"
USER: Final = "AROAEXAMPLEEXAMPLE123:i-0123456789abcdef0"


def test_a_role_session_is_read() -> None:
    caller = CallerIdentity.parse(account=ACCOUNT, arn=ARN, user_id=USER)
    assert caller == CallerIdentity("aws", ACCOUNT, "nodes.example", "AROAEXAMPLEEXAMPLE123", "i-0123456789abcdef0")


@pytest.mark.parametrize(
    "arn",
    [
        f"arn:aws:iam::{ACCOUNT}:user/i-0123456789abcdef0",
        f"arn:aws:iam::{ACCOUNT}:root",
        f"arn:aws:sts::{ACCOUNT}:federated-user/i-0123456789abcdef0",
        f"arn:aws:iam::{ACCOUNT}:role/nodes.example",
        f"{ARN}/x",
        f"{ARN}\n",
        f" {ARN}",
        f"arn:aws:sts::{ACCOUNT}:assumed-role/nodes.example",
        f"arn:aws:sts::{ACCOUNT}:assumed-role//i-0123456789abcdef0",
        f"arn:aws:sts:eu-west-1:{ACCOUNT}:assumed-role/nodes.example/i-0123456789abcdef0",
        f"arn:aws-moon:sts::{ACCOUNT}:assumed-role/nodes.example/i-0123456789abcdef0",
        f"arn:aws:sts::{ACCOUNT}:assumed-role/nödes/i-0123456789abcdef0",
        "arn:aws:sts::123:assumed-role/nodes.example/i-0123456789abcdef0",
        "",
    ],
)
def test_anything_else_is_no_role_session(arn: str) -> None:
    with pytest.raises(NotARoleSession):
        CallerIdentity.parse(account=ACCOUNT, arn=arn, user_id=USER)


@pytest.mark.parametrize(
    ("account", "user"),
    [("210987654321", USER), (ACCOUNT, "AROAEXAMPLEEXAMPLE123:i-0123456789abcdef1")],
)
def test_parts_that_contradict_each_other_are_awss_fault(account: str, user: str) -> None:
    with pytest.raises(ContradictoryAnswer):
        CallerIdentity.parse(account=account, arn=ARN, user_id=user)


@pytest.mark.parametrize(
    ("account", "user"),
    [
        (ACCOUNT, "AIDAEXAMPLEEXAMPLE123:i-0123456789abcdef0"),
        (ACCOUNT, "AROAEXAMPLEEXAMPLE123"),
        (ACCOUNT, f"{USER}:x"),
        (ACCOUNT, "i-0123456789abcdef0"),
    ],
)
def test_a_user_id_of_no_role_session_is_refused(account: str, user: str) -> None:
    with pytest.raises(NotARoleSession):
        CallerIdentity.parse(account=account, arn=ARN, user_id=user)
