"""Proof that a former instance is terminated, by DescribeInstances."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from attestors.clouds.errors import CloudRefused, CloudThrottled
from attestors.contract import (
    FormerInstance,
    InstanceExists,
    InstanceGone,
    InstanceTerminationProver,
    Termination,
    TerminationNotProvable,
)
from signer.audit.recorded_calls import CallRecorder, ReplayedCalls
from tests.integration.aws.fixtures import PROVIDER_ID, PluginHarness, settings
from tests.support.aws_documents import ACCOUNT, INSTANCE, REGION
from tests.unit.attestors.aws.ec2.descriptions import description

IDENTITY = f"aws:aws:{ACCOUNT}:{REGION}:{INSTANCE}"
OTHER_ACCOUNT = "210987654321"


def in_state(state: str) -> dict[str, Any]:
    return description(State={"Name": state}, NetworkInterfaces=[], BlockDeviceMappings=[], PrivateDnsName="")


async def termination(harness: PluginHarness, identity: str = IDENTITY) -> Termination:
    plugin = harness.plugin
    assert isinstance(plugin, InstanceTerminationProver)
    return await plugin.termination_of(FormerInstance(identity, PROVIDER_ID))


async def not_provable(harness: PluginHarness, identity: str = IDENTITY) -> str:
    found = await termination(harness, identity)
    assert isinstance(found, TerminationNotProvable), found
    return found.message


async def test_terminated(harness: PluginHarness) -> None:
    harness.ec2.instances[INSTANCE] = in_state("terminated")
    assert await termination(harness) == InstanceGone()
    assert harness.ec2.described == [(ACCOUNT, REGION, (INSTANCE,))]


@pytest.mark.parametrize("state", ["pending", "running", "stopping", "stopped", "shutting-down"])
async def test_any_other_state(harness: PluginHarness, state: str) -> None:
    """An instance that shuts down may run for hours, and a stopped one may be started."""
    harness.ec2.instances[INSTANCE] = in_state(state)
    assert await termination(harness) == InstanceExists(f"instance {INSTANCE} is {state}")


async def test_an_instance_that_is_not_listed_proves_nothing(harness: PluginHarness) -> None:
    harness.ec2.instances.clear()
    assert "lists a terminated instance for about an hour" in await not_provable(harness)


async def test_an_instance_of_another_owner_proves_nothing(harness: PluginHarness) -> None:
    harness.ec2.instances[INSTANCE] = in_state("terminated")
    harness.ec2.owner = OTHER_ACCOUNT
    assert "described another instance" in await not_provable(harness)


@pytest.mark.parametrize(
    "failure",
    [CloudRefused("AWS EC2", "may not"), CloudThrottled("AWS EC2", "later", retry_after=timedelta(seconds=20))],
    ids=["refused", "throttled"],
)
async def test_a_cloud_that_does_not_answer_proves_nothing(harness: PluginHarness, failure: Exception) -> None:
    harness.ec2.failure = failure
    assert "AWS EC2" in await not_provable(harness)


@pytest.mark.parametrize(
    "identity",
    [
        "",
        "tpm:1234",
        INSTANCE,
        IDENTITY.upper(),
        f"{IDENTITY}\n",
        f" {IDENTITY}",
        f"aws:aws-cn:{ACCOUNT}:{REGION}:{INSTANCE}",
        f"aws:aws:{ACCOUNT}:nowhere:{INSTANCE}",
        f"aws:aws:{ACCOUNT}:{REGION}:i-1",
        f"aws:aws:1:{REGION}:{INSTANCE}",
    ],
)
async def test_an_identity_of_another_form_calls_no_cloud(harness: PluginHarness, identity: str) -> None:
    assert "not the identity of an EC2 instance" in await not_provable(harness, identity)
    assert harness.nobody_was_called


@pytest.mark.parametrize(
    ("operator", "identity"),
    [
        ({"describeInstances": False, "requireIMDSv2": False}, IDENTITY),
        ({"allowedRegions": ["us-east-1"]}, IDENTITY),
        ({}, f"aws:aws:{OTHER_ACCOUNT}:{REGION}:{INSTANCE}"),
    ],
    ids=["no-calls", "region", "account"],
)
async def test_what_the_settings_do_not_allow_calls_no_cloud(
    harness: PluginHarness, operator: dict[str, Any], identity: str
) -> None:
    harness.settings = settings(operator)
    assert "the settings no longer allow instances" in await not_provable(harness, identity)
    assert harness.nobody_was_called


async def test_the_answer_is_recorded_for_replays(harness: PluginHarness) -> None:
    harness.ec2.instances[INSTANCE] = in_state("terminated")
    recorder = CallRecorder()
    found = await harness.plugin.termination_of(FormerInstance(IDENTITY, PROVIDER_ID, recorder))
    replayed = ReplayedCalls(recorder.recorded)
    harness.ec2.instances.clear()
    assert await harness.plugin.termination_of(FormerInstance(IDENTITY, PROVIDER_ID, replayed)) == found
    assert len(harness.ec2.described) == 1
