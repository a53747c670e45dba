"""Whose approval it is: only the controller key tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attestors.wire.names import APPROVAL_SEAL_ANNOTATION
from signer.decision.approval_seals import ApprovalSeals
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred, Fail
from signer.model.seal import ControllerKeys
from signer.model.signing_request import Condition, CSRHeader
from signer.rules.approval import Approver, judge_approval
from signer.rules.plan import PROCEED
from signer.store.authentic_records import AuthenticRecords
from tests.unit.signer.builders import CLUSTER, policy, signing_request

KEYS = ControllerKeys(b"\x01" * 32)
OTHER_KEYS = ControllerKeys(b"\x02" * 32)
HEADER = signing_request().header


def seals(keys: ControllerKeys = KEYS, cluster: ClusterKey = CLUSTER) -> ApprovalSeals:
    authentic = AuthenticRecords()
    authentic.use_keys(keys)
    return ApprovalSeals(cluster, authentic)


def approved(seal: str, **changes: Any) -> CSRHeader:
    return replace(HEADER, conditions=frozenset({Condition.APPROVED}), approval_seal=seal, **changes)


def seal(keys: ControllerKeys = KEYS) -> str:
    return seals(keys).seal(HEADER)[APPROVAL_SEAL_ANNOTATION]


def test_the_controllers_own() -> None:
    assert seals().approver(approved(seal())) is Approver.THIS_CONTROLLER
    rotated = ControllerKeys(OTHER_KEYS.current, KEYS.current)
    assert seals(rotated).approver(approved(seal())) is Approver.THIS_CONTROLLER


@pytest.mark.parametrize(
    "header",
    [
        pytest.param(approved(""), id="none"),
        pytest.param(approved("v2.x.y"), id="malformed"),
        pytest.param(approved(seal(OTHER_KEYS)), id="another key"),
        pytest.param(approved(seal(), uid="another"), id="another request"),
        pytest.param(approved(seal(), spec_digest="00" * 32), id="another content"),
    ],
)
def test_another_clients(header: CSRHeader) -> None:
    assert seals().approver(header) is Approver.ANOTHER_CLIENT


def test_a_seal_of_another_cluster_is_none() -> None:
    other = seals(cluster=ClusterKey(CLUSTER.namespace, "other"))
    assert other.approver(approved(seal())) is Approver.ANOTHER_CLIENT


def test_a_seal_without_an_approval_says_nothing() -> None:
    assert seals().approver(replace(approved(seal()), conditions=frozenset())) is Approver.NOBODY


def test_without_the_controller_key_it_is_not_known() -> None:
    with pytest.raises(Deferred):
        ApprovalSeals(CLUSTER, AuthenticRecords()).approver(approved(seal()))


@pytest.mark.parametrize("approver", Approver)
def test_what_the_policy_makes_of_it(approver: Approver) -> None:
    refused = judge_approval(approver, policy(approvalByOthers="Refuse"))
    assert isinstance(refused, Fail) is (approver is Approver.ANOTHER_CLIENT)
    assert judge_approval(approver, policy(approvalByOthers="Honor")) is PROCEED
