"""What Google says of a Shielded VM's keys becomes what a source says. How it is asked is tested elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest

from attestors.clouds.errors import CloudObjectMissing, CloudRefused, CloudUnavailable
from attestors.clouds.google import EncryptionKey, Instance, NoKey, ShieldedInstanceIdentity
from attestors.contract import ClaimedMachine, NoClaimedMachine
from attestors.tpm.endorsement_key_sources import (
    GCPShieldedVM,
    KeyConfirmed,
    KeyContradicted,
    NoInformation,
    SourceName,
    SourceUnavailable,
    Unclear,
)
from attestors.tpm.shielded_vm import ShieldedVirtualMachines
from tests.unit.attestors.support import NOW
from tests.unit.attestors.tpm.endorsement_key_sources.support import CHIP, NOT_VERIFIED, OTHER, request
from tests.unit.attestors.tpm.fake_tpm import FakeTPM

INSTANCE: Final = "gce://my-project/europe-west4-a/worker-1"
SERVICE: Final = "Google Compute Engine"


@dataclass
class Compute:
    """Knows one instance, whose virtual TPM has this chip's key."""

    chip: FakeTPM = CHIP
    fault: Exception | None = None
    status: str = "RUNNING"

    async def instance_now(self, project: str, zone: str, name_or_id: str) -> Instance:
        if self.fault is not None:
            raise self.fault
        return Instance(project, zone, name_or_id, "4711", self.status, NOW, "", (), ())

    async def shielded_instance_identity(self, project: str, zone: str, instance_id: str) -> ShieldedInstanceIdentity:
        return ShieldedInstanceIdentity(NoKey(), EncryptionKey(self.chip.public_key_information, ""))


OF_A_POOL: Final = NoClaimedMachine(pool="pool")


async def ask(
    compute: Compute,
    provider_id: str = INSTANCE,
    machine: ClaimedMachine | NoClaimedMachine = OF_A_POOL,
) -> Any:
    source = GCPShieldedVM(ShieldedVirtualMachines(compute, frozenset({"my-project"})))
    asked = request(machine, provider_id=provider_id)
    return await source.ask(asked, CHIP.key, NOT_VERIFIED)


async def test_the_instances_own() -> None:
    assert await ask(Compute()) == KeyConfirmed(SourceName.GCP_SHIELDED_VM)


def test_what_is_kept_of_google_is_not_shown() -> None:
    assert repr(GCPShieldedVM(ShieldedVirtualMachines(Compute(), frozenset({"my-project"})))) == "GCPShieldedVM()"


async def test_a_machines() -> None:
    assert await ask(Compute(), machine=ClaimedMachine("worker-1", {})) == KeyConfirmed(SourceName.GCP_SHIELDED_VM)


async def test_google_is_not_asked_about_invented_names() -> None:
    asked = Compute(fault=AssertionError("asked"))
    assert isinstance(await ask(asked, machine=NoClaimedMachine()), NoInformation)


async def test_another_instances() -> None:
    assert await ask(Compute(OTHER)) == KeyContradicted(f"instance {INSTANCE} has another TPM")


@pytest.mark.parametrize(
    "provider_id",
    ["aws:///eu-central-1a/i-0123456789abcdef0", "gce://other-project/europe-west4-a/worker-1"],
    ids=["no-instance-of-google", "project-not-allowed"],
)
async def test_what_google_has_no_say_in_is_for_the_next(provider_id: str) -> None:
    """Whatever Google would say."""
    assert isinstance(await ask(Compute(), provider_id), NoInformation)


@pytest.mark.parametrize(
    "compute",
    [Compute(status="STOPPING"), Compute(fault=CloudObjectMissing(SERVICE, "there is none"))],
    ids=["not-running", "not-there"],
)
async def test_an_instance_that_cannot_be_looked_at_is_unclear(compute: Compute) -> None:
    assert isinstance(await ask(compute), Unclear)


@pytest.mark.parametrize("error", [CloudUnavailable, CloudRefused], ids=["outage", "permission"])
async def test_an_outage_is_waited_for_and_named(error: type[CloudUnavailable | CloudRefused]) -> None:
    with pytest.raises(SourceUnavailable, match=SERVICE) as waits:
        await ask(Compute(fault=error(SERVICE, "answers 503", retry_after=timedelta(seconds=42))))
    assert waits.value.retry_after == timedelta(seconds=42)
