"""What must hold of an instance: each rule lets an honest one pass, and stops another."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from attestors.aws.ec2.instance import Instance, InstanceState, MetadataOptions, NoRootVolume, NotAttached
from attestors.aws.ec2.rules import AnyHopLimit, InstanceRules
from attestors.contract import Denied, NotProvableYet
from attestors.verdict import Ended
from tests.unit.attestors.aws.ec2.descriptions import ACCOUNT, INSTANCE, LAUNCH, REGION, description

RULES: Final = InstanceRules(True, 1, True, {})
GOOD: Final = Instance.read(description(), account=ACCOUNT, region=REGION)


def outcome(rules: InstanceRules, **changes: Any) -> Denied | NotProvableYet | None:
    try:
        rules.check(replace(GOOD, **changes), instance_id=INSTANCE, account=ACCOUNT)
    except Ended as ended:
        return ended.outcome
    return None


def denied(**changes: Any) -> str:
    found = outcome(RULES, **changes)
    assert isinstance(found, Denied)
    return found.reason


def waits(**changes: Any) -> str:
    found = outcome(RULES, **changes)
    assert isinstance(found, NotProvableYet)
    return found.reason


def test_a_hardened_running_instance_passes() -> None:
    assert outcome(RULES) is None


def test_another_instance_or_account_does_not() -> None:
    assert waits(instance_id="i-0123456789abcdef1") == "InstanceNotAsAsked"
    assert denied(account="210987654321") == "InstanceOfAnotherAccount"


@pytest.mark.parametrize("state", [InstanceState.TERMINATED, InstanceState.SHUTTING_DOWN])
def test_a_terminated_instance_is_denied(state: InstanceState) -> None:
    assert denied(state=state) == "InstanceTerminated"


def test_a_terminated_instance_is_denied_whatever_else_is_wrong() -> None:
    assert denied(state=InstanceState.TERMINATED, root_attached_at=NotAttached()) == "InstanceTerminated"


@pytest.mark.parametrize("state", [InstanceState.PENDING, InstanceState.STOPPED, InstanceState.STOPPING])
def test_one_that_does_not_run_waits(state: InstanceState) -> None:
    assert waits(state=state) == "InstanceNotRunning"


@pytest.mark.parametrize("seconds", [-61, 61, 86400])
def test_a_root_volume_that_was_put_back_is_denied(seconds: int) -> None:
    assert denied(root_attached_at=LAUNCH + timedelta(seconds=seconds)) == "InstanceTampered"


@pytest.mark.parametrize("seconds", [-60, 0, 60])
def test_a_root_volume_of_the_launch_passes(seconds: int) -> None:
    assert outcome(RULES, root_attached_at=LAUNCH + timedelta(seconds=seconds)) is None


def test_an_interface_that_was_put_back_is_denied() -> None:
    assert denied(interface_attached_at=LAUNCH + timedelta(hours=1)) == "InstanceTampered"


def test_an_instance_store_cannot_be_taken_out() -> None:
    assert outcome(RULES, root_attached_at=NoRootVolume()) is None


@pytest.mark.parametrize("missing", ["root_attached_at", "interface_attached_at"])
def test_unknown_attach_times_wait(missing: str) -> None:
    assert waits(**{missing: NotAttached()}) == "InstanceAttachmentsUnknown"


def test_attach_times_can_be_left_unchecked() -> None:
    late = LAUNCH + timedelta(days=1)
    assert outcome(replace(RULES, check_attach_times=False), root_attached_at=late) is None


def test_imdsv1_waits_until_it_is_closed() -> None:
    assert waits(metadata_options=MetadataOptions(False, 1)) == "InstanceMetadataOpen"
    assert outcome(replace(RULES, require_session_tokens=False), metadata_options=MetadataOptions(False, 1)) is None


def test_a_hop_limit_that_reaches_pods_waits_until_it_is_lowered() -> None:
    two = MetadataOptions(True, 2)
    assert waits(metadata_options=two) == "InstanceMetadataOpen"
    assert outcome(replace(RULES, maximum_hop_limit=2), metadata_options=two) is None
    assert outcome(replace(RULES, maximum_hop_limit=AnyHopLimit()), metadata_options=MetadataOptions(True, 64)) is None


@pytest.mark.parametrize("tags", [{}, {"team": "b"}, {"Team": "a"}])
def test_tags_that_the_policy_wants_must_be_there(tags: dict[str, str]) -> None:
    wanting = replace(RULES, required_tags={"team": "a"})
    found = outcome(wanting, tags=tags)
    assert isinstance(found, NotProvableYet)
    assert found.reason == "InstanceTagsMissing"
    assert outcome(wanting, tags={"team": "a", "x": "y"}) is None
