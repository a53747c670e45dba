from __future__ import annotations

from typing import Any

import pytest

from signer.model.access import (
    Creator,
    CreatorNotStated,
    Decision,
    GrantReference,
    InvalidAccessApproval,
    parse_access_approval,
)
from tests.support.access_objects import GRANT_UID, approval_object


def test_approval() -> None:
    approval = parse_access_approval(approval_object(digest="ab" * 32))
    assert approval.grant == GrantReference("repair", GRANT_UID)
    assert (approval.decision, approval.spec_digest) == (Decision.APPROVE, "ab" * 32)
    assert approval.created_by == Creator("bob", "u-2", frozenset({"system:authenticated", "team-a"}))
    assert parse_access_approval(approval_object(decision="Deny")).decision is Decision.DENY
    assert parse_access_approval(approval_object(createdBy=None)).created_by == CreatorNotStated()


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"grantRef": None}, "spec.grantRef"),
        ({"grantRef": {"name": "repair"}}, "spec.grantRef.uid"),
        ({"grantRef": {"name": "a/b", "uid": "u"}}, "spec.grantRef.name"),
        ({"grantRef": {"name": "a", "uid": "u", "namespace": "other"}}, "spec.grantRef"),
        ({"decision": "approve"}, "spec.decision"),
        ({"decision": None}, "spec.decision"),
        ({"decision": []}, "spec.decision"),
        ({"specDigest": "AB" * 32}, "spec.specDigest"),
        ({"specDigest": "ab" * 31}, "spec.specDigest"),
        ({"specDigest": "ab" * 32 + "\n"}, "spec.specDigest"),
        ({"comment": "fine"}, "spec"),
        ({"createdBy": {"username": "a\n"}}, "spec.createdBy.username"),
    ],
)
def test_invalid(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidAccessApproval) as caught:
        parse_access_approval(approval_object(**spec))
    assert caught.value.field == field
