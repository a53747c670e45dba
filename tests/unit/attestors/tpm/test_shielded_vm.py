"""Whose endorsement key it is, asked of the fake Google over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.clouds.calls import CloudCalls
from attestors.clouds.errors import CloudRefused, CloudUnavailable
from attestors.clouds.google import ComputeEngine, GoogleAccess, Instance, ShieldedInstanceIdentity
from attestors.tpm.shielded_vm import (
    KeyDiffersFromInstance,
    KeyMatchesInstance,
    NotAnsweredYet,
    NotApplicable,
    ShieldedVirtualMachines,
)
from attestors.tpm.structures import PublicKey
from tests.support.fake_google import FakeGoogle, FakeInstance, Fault, Service

RSA, OTHER_RSA = (rsa.generate_private_key(public_exponent=65537, key_size=2048).public_key() for _ in range(2))
LARGE_RSA: Final = rsa.generate_private_key(public_exponent=65537, key_size=3072).public_key()
P256, OTHER_P256 = (ec.generate_private_key(ec.SECP256R1()).public_key() for _ in range(2))
P384: Final = ec.generate_private_key(ec.SECP384R1()).public_key()


def pem(key: PublicKey) -> str:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


INSTANCE: Final = FakeInstance(encryption_key=pem(RSA), elliptic_encryption_key=pem(P256))
ANEW: Final = replace(
    INSTANCE,
    instance_id="4711000000000000002",
    encryption_key=pem(OTHER_RSA),
    elliptic_encryption_key=pem(OTHER_P256),
)
PROJECTS: Final = frozenset({INSTANCE.project})


class Clock:
    """A monotonic clock that is moved by hand, or stands still."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def google() -> Iterator[FakeGoogle]:
    with FakeGoogle() as running:
        running.add(INSTANCE)
        yield running


@pytest.fixture
def compute(google: FakeGoogle, tmp_path: Path) -> Iterator[ComputeEngine]:
    calls = CloudCalls(deadline_seconds=10)
    access = GoogleAccess(credentials_file=google.write_account_key(tmp_path), compute_url=google.compute_url)
    engine = ComputeEngine(access, calls=calls)
    yield engine
    calls.close()
    engine.close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def source(compute: ComputeEngine, clock: Clock) -> ShieldedVirtualMachines:
    return ShieldedVirtualMachines(compute, PROJECTS, clock=clock)


@pytest.mark.parametrize("key", [RSA, P256], ids=["rsa", "p256"])
async def test_the_instances_own_key(source: ShieldedVirtualMachines, key: PublicKey) -> None:
    assert await source.ask(INSTANCE.provider_id, key) == KeyMatchesInstance()


@pytest.mark.parametrize("key", [OTHER_RSA, OTHER_P256], ids=["rsa", "p256"])
async def test_another_machines_key(source: ShieldedVirtualMachines, key: PublicKey) -> None:
    assert await source.ask(INSTANCE.provider_id, key) == KeyDiffersFromInstance(INSTANCE.provider_id)


async def test_a_key_of_another_instance_of_the_project(google: FakeGoogle, source: ShieldedVirtualMachines) -> None:
    """Each of them genuine: only the name tells them apart."""
    other = google.add(replace(ANEW, name="worker-2"))
    assert await source.ask(other.provider_id, OTHER_RSA) == KeyMatchesInstance()
    assert await source.ask(other.provider_id, RSA) == KeyDiffersFromInstance(other.provider_id)


@pytest.mark.parametrize(
    "provider_id",
    [
        "aws:///eu-west-1a/i-0123456789abcdef0",
        "gce://capi-workloads/europe-west1-b",
        f"gce://capi-workloads/europe-west1-b/{INSTANCE.instance_id}",
        "gce://attackers-project/europe-west1-b/worker-1",
        "gce://example.com:capi-workloads/europe-west1-b/worker-1",
    ],
    ids=range(5),
)
async def test_no_call_for_another_cloud_or_project(
    google: FakeGoogle, source: ShieldedVirtualMachines, provider_id: str
) -> None:
    google.add(replace(INSTANCE, project="attackers-project"))
    assert isinstance(await source.ask(provider_id, RSA), NotApplicable)
    assert not google.counts()


async def test_an_instance_that_google_does_not_know_yet(google: FakeGoogle, source: ShieldedVirtualMachines) -> None:
    answer = await source.ask("gce://capi-workloads/europe-west1-b/worker-9", RSA)
    assert isinstance(answer, NotAnsweredYet)
    assert "knows no instance gce://capi-workloads/europe-west1-b/worker-9" in answer.message


@pytest.mark.parametrize("status", ["PROVISIONING", "STAGING", "STOPPING", "SUSPENDED", "TERMINATED"])
async def test_an_instance_that_is_not_running_waits(
    google: FakeGoogle, source: ShieldedVirtualMachines, status: str
) -> None:
    google.add(replace(INSTANCE, status=status))
    for key in (RSA, OTHER_RSA):
        answer = await source.ask(INSTANCE.provider_id, key)
        assert isinstance(answer, NotAnsweredYet)
        assert f"is not running: {status}" in answer.message
    assert google.counts()[Service.COMPUTE] == 1


async def test_an_instance_without_a_virtual_tpm(google: FakeGoogle, source: ShieldedVirtualMachines) -> None:
    google.add(replace(INSTANCE, encryption_key="", elliptic_encryption_key=""))
    answer = await source.ask(INSTANCE.provider_id, RSA)
    assert isinstance(answer, NotAnsweredYet)
    assert "has no virtual TPM" in answer.message
    assert answer.retry_after == timedelta(seconds=10)


@pytest.mark.parametrize("key", [P384, LARGE_RSA], ids=["p384", "rsa-3072"])
async def test_a_kind_of_key_that_google_does_not_name_proves_nothing_and_denies_nothing(
    source: ShieldedVirtualMachines, key: PublicKey
) -> None:
    answer = await source.ask(INSTANCE.provider_id, key)
    assert isinstance(answer, NotAnsweredYet)
    assert "names no endorsement key of that kind" in answer.message


async def test_a_key_on_p256_where_google_names_an_rsa_key_only(
    google: FakeGoogle, source: ShieldedVirtualMachines
) -> None:
    google.add(replace(INSTANCE, elliptic_encryption_key=""))
    assert isinstance(await source.ask(INSTANCE.provider_id, P256), NotAnsweredYet)
    assert await source.ask(INSTANCE.provider_id, RSA) == KeyMatchesInstance()


class ReplacedBetweenTheCalls:
    """Compute Engine, where another instance is made under the name right after it was looked up."""

    def __init__(self, google: FakeGoogle, compute: ComputeEngine) -> None:
        self._google = google
        self._compute = compute

    async def instance_now(self, project: str, zone: str, name_or_id: str) -> Instance:
        found = await self._compute.instance_now(project, zone, name_or_id)
        self._google.add(ANEW)
        return found

    async def shielded_instance_identity(self, project: str, zone: str, instance_id: str) -> ShieldedInstanceIdentity:
        return await self._compute.shielded_instance_identity(project, zone, instance_id)


@pytest.mark.parametrize("key", [RSA, OTHER_RSA], ids=["old", "new"])
async def test_an_instance_that_is_replaced_between_the_calls_is_not_mixed_up(
    google: FakeGoogle, compute: ComputeEngine, key: PublicKey
) -> None:
    source = ShieldedVirtualMachines(ReplacedBetweenTheCalls(google, compute), PROJECTS)
    answer = await source.ask(INSTANCE.provider_id, key)
    assert isinstance(answer, NotAnsweredYet)
    assert "has just been replaced" in answer.message
    assert google.seen(Service.COMPUTE)[-1].path.split("/")[-2] == INSTANCE.instance_id


class AnswersAboutAnother(ReplacedBetweenTheCalls):
    """Compute Engine, where it answers about another instance than was asked for."""

    async def instance_now(self, project: str, zone: str, name_or_id: str) -> Instance:
        found = await self._compute.instance_now(project, zone, name_or_id)
        return replace(found, name="worker-2")


async def test_an_answer_about_another_instance_says_nothing(google: FakeGoogle, compute: ComputeEngine) -> None:
    source = ShieldedVirtualMachines(AnswersAboutAnother(google, compute), PROJECTS)
    answer = await source.ask(INSTANCE.provider_id, RSA)
    assert isinstance(answer, NotAnsweredYet)
    assert "about another instance" in answer.message


async def test_answers_are_kept_for_seconds_only(
    google: FakeGoogle, source: ShieldedVirtualMachines, clock: Clock
) -> None:
    for _ in range(10):
        assert await source.ask(INSTANCE.provider_id, RSA) == KeyMatchesInstance()
    assert google.counts()[Service.COMPUTE] == 2
    google.add(ANEW)
    clock.now += 5.0
    assert await source.ask(INSTANCE.provider_id, RSA) == KeyDiffersFromInstance(INSTANCE.provider_id)


async def test_a_machine_made_anew_is_not_refused_for_its_predecessors_key(
    google: FakeGoogle, source: ShieldedVirtualMachines, clock: Clock
) -> None:
    assert await source.ask(INSTANCE.provider_id, RSA) == KeyMatchesInstance()
    google.add(ANEW)
    clock.now += 0.5
    answer = await source.ask(INSTANCE.provider_id, OTHER_RSA)
    assert isinstance(answer, NotAnsweredYet)
    assert answer.retry_after == timedelta(seconds=6)
    clock.now += answer.retry_after.total_seconds()
    assert await source.ask(INSTANCE.provider_id, OTHER_RSA) == KeyMatchesInstance()


@pytest.mark.parametrize("path", ["worker-1", "getShieldedInstanceIdentity"], ids=["get", "shielded"])
@pytest.mark.parametrize(
    "fault",
    [
        Fault.status(500),
        Fault.status(503),
        Fault.throttled(),
        Fault.redirect("/"),
        Fault.content(b"{}"),
        Fault.breaks_off(),
    ],
    ids=["500", "503", "429", "redirect", "garbage", "breaks-off"],
)
async def test_an_outage_is_reported_and_is_never_an_answer(
    google: FakeGoogle, source: ShieldedVirtualMachines, clock: Clock, fault: Fault, path: str
) -> None:
    google.fail(Service.COMPUTE, fault, path=path)
    for key in (RSA, OTHER_RSA):
        with pytest.raises(CloudUnavailable, match=r"^Google Compute Engine: ") as caught:
            await source.ask(INSTANCE.provider_id, key)
        assert caught.value.outcome().reason == "CloudUnavailable"
    google.mend(Service.COMPUTE)
    clock.now += 2.0
    assert await source.ask(INSTANCE.provider_id, RSA) == KeyMatchesInstance()


async def test_a_missing_permission_is_reported(google: FakeGoogle, source: ShieldedVirtualMachines) -> None:
    google.fail(Service.COMPUTE, Fault.status(403, "{}"), path="getShieldedInstanceIdentity")
    with pytest.raises(CloudRefused, match=r"compute\.instances\.getShieldedInstanceIdentity"):
        await source.ask(INSTANCE.provider_id, RSA)


async def test_the_token_endpoint_is_away(google: FakeGoogle, source: ShieldedVirtualMachines) -> None:
    google.fail(Service.TOKEN, Fault.status(503))
    with pytest.raises(CloudUnavailable, match=r"^Google's credentials service: answers 503"):
        await source.ask(INSTANCE.provider_id, RSA)
    assert not google.counts()[Service.COMPUTE]
