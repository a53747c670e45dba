"""Whose approval it is: only the controller key tells."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attestors.wire.names import APPROVAL_SEAL_ANNOTATION
from signer.decision.approval_seals import ApprovalSeals
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred, Fail
from signer.model.seal import ControllerKeys, key_identifier_of
from signer.model.signing_request import Condition, CSRHeader
from signer.rules.approval import Approver, judge_approval
from signer.rules.plan import PROCEED
from signer.store.authentic_records import AuthenticRecords
from signer.store.unknown_keys import MOST_KEYS, UnknownKeys
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
        pytest.param(approved(seal(), uid="another"), id="another request"),
        pytest.param(approved(seal(), spec_digest="00" * 32), id="another content"),
    ],
)
def test_another_clients(header: CSRHeader) -> None:
    assert seals().approver(header) is Approver.ANOTHER_CLIENT


class TestUnknownKeys:
    """Another replica may have sealed with a rotated key before this one has read it."""

    def test_its_approval_counts_once_the_key_is_read(self) -> None:
        authentic = AuthenticRecords()
        authentic.begin_key_read()
        authentic.use_keys(KEYS)
        judge = ApprovalSeals(CLUSTER, authentic)
        with pytest.raises(Deferred, match="the approval of this request was sealed with a key that was not read yet"):
            judge.approver(approved(seal(OTHER_KEYS)))
        assert authentic.key_wanted.is_set()
        authentic.begin_key_read()
        authentic.use_keys(ControllerKeys(OTHER_KEYS.current, KEYS.current))
        assert judge.approver(approved(seal(OTHER_KEYS))) is Approver.THIS_CONTROLLER

    def test_a_key_that_the_secret_does_not_have_is_another_clients(self) -> None:
        authentic = AuthenticRecords()
        judge = ApprovalSeals(CLUSTER, authentic)
        authentic.begin_key_read()
        authentic.use_keys(KEYS)
        for _ in range(2):
            with pytest.raises(Deferred):
                judge.approver(approved(seal(OTHER_KEYS)))
        authentic.begin_key_read()
        authentic.use_keys(KEYS)
        for _ in range(2):
            assert judge.approver(approved(seal(OTHER_KEYS))) is Approver.ANOTHER_CLIENT
        assert not authentic.key_wanted.is_set()

    def test_a_read_that_had_begun_before_does_not_count(self) -> None:
        authentic = AuthenticRecords()
        authentic.begin_key_read()
        authentic.use_keys(KEYS)
        judge = ApprovalSeals(CLUSTER, authentic)
        authentic.begin_key_read()
        with pytest.raises(Deferred):
            judge.approver(approved(seal(OTHER_KEYS)))
        authentic.use_keys(KEYS)
        with pytest.raises(Deferred):
            judge.approver(approved(seal(OTHER_KEYS)))

    def test_a_read_that_failed_does_not_count(self) -> None:
        authentic = AuthenticRecords()
        authentic.begin_key_read()
        authentic.use_keys(KEYS)
        judge = ApprovalSeals(CLUSTER, authentic)
        for _ in range(3):
            with pytest.raises(Deferred):
                judge.approver(approved(seal(OTHER_KEYS)))
            authentic.begin_key_read()  # the API server does not answer

    def test_keys_that_a_writer_invents_take_bounded_memory(self) -> None:
        unknown = UnknownKeys()
        unknown.begin_read()
        for number in range(2 * MOST_KEYS):
            unknown.see(f"{number:016x}")
        unknown.begin_read()
        unknown.read_succeeded()
        looked_for = [unknown.was_looked_for(f"{number:016x}") for number in range(2 * MOST_KEYS)]
        assert looked_for == [False] * MOST_KEYS + [True] * MOST_KEYS

    @pytest.mark.parametrize("text", ["", "v2", "v1.0123456789abcdef.x", "v2.0123.x", "v2.0123456789abcdef0.x"])
    def test_what_names_no_key(self, text: str) -> None:
        """No read could find it: nothing waits."""
        assert key_identifier_of(text) == ""
        padded = f"{text}.{'0' * 64}" if text.count(".") < 2 else f"{text[:-1]}{'0' * 64}"
        assert seals().approver(approved(padded)) is Approver.ANOTHER_CLIENT


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
