"""The bastion controller on an embedded API: objects, their status, and what providers are asked."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_network
from typing import Any, TypeVar

import pytest

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from node_access.bastions.contract import (
    Bastion,
    BastionReference,
    Broken,
    CallFailed,
    Ensured,
    Gone,
    InvalidSettings,
    OwnedResources,
    Pending,
    Scope,
    Surroundings,
)
from signer.bastions.configuration import BastionConfiguration, OperatorProvider
from signer.bastions.controller import BastionController
from signer.bastions.host_keys import HostKeySecret
from signer.bastions.metrics import BastionMetrics
from signer.bastions.providers import Providers
from signer.bastions.run import BastionOptions, run_bastions
from signer.bastions.sweep import Sweep
from signer.bastions.targets import OperatorTargets
from signer.kube.client import Client
from signer.kube.resources import BASTIONS, EVENTS
from signer.model.access.bastion import FINALIZER, parse_bastion
from signer.testing.api import EmbeddedAPI
from tests.support.access_objects import bastion_object
from tests.support.bastions.definition import BASTION_DEFINITION
from tests.support.bastions.memory_provider import MEMORY, NAME, forget, memory_registry

Answer = TypeVar("Answer")
NAMESPACE = "team-a"
PATH = BASTIONS.object("repair", NAMESPACE)
SECRET = HostKeySecret(b"s" * 32)
ALLOWED = OperatorProvider(frozenset({NAMESPACE}), {"sizes": ["small", "large"], "token": "hunter2-of-the-cloud"})
TARGETS = OperatorTargets()
REFUSED = "node_access_bastion_refusals_total"


@pytest.fixture
def api() -> Iterator[EmbeddedAPI]:
    forget()
    with EmbeddedAPI() as api:
        api.create(BASTION_DEFINITION)
        for name in (NAMESPACE, "team-b"):
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield api


async def until(read: Callable[[], Awaitable[Answer]], is_so: Callable[[Answer], bool]) -> Answer:
    """What is read, once it is so."""
    async with asyncio.timeout(20):
        while not is_so(found := await read()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return found


@dataclass
class Running:
    """A controller that runs, and its client."""

    client: Client
    metrics: BastionMetrics
    now: list[datetime]
    controllers: list[BastionController] = field(default_factory=list)

    async def create(self, namespace: str = NAMESPACE, **spec: Any) -> dict[str, Any]:
        manifest = bastion_object(**{"provider": NAME, **spec})
        manifest["metadata"] = {"name": "repair", "namespace": namespace}
        return await self.client.create(BASTIONS.collection(namespace), manifest)

    async def wait(self, is_so: Callable[[dict[str, Any]], bool], path: str = PATH) -> dict[str, Any]:
        """The object once it is so."""
        return await until(lambda: self.client.get(path), is_so)

    async def items(self, collection: str) -> list[dict[str, Any]]:
        return [one async for page in self.client.list_pages(collection) for one in page["items"]]

    async def wait_gone(self) -> None:
        await until(lambda: self.items(BASTIONS.collection()), lambda found: not found)


@contextlib.asynccontextmanager
async def running(
    api: EmbeddedAPI,
    allowed: OperatorProvider = ALLOWED,
    *,
    now: datetime | None = None,
    provider: str = NAME,
    owner: str = "suite",
    targets: OperatorTargets = TARGETS,
    forgotten: frozenset[str] = frozenset(),
) -> AsyncIterator[Running]:
    """Runs as a process does; ends by ``stop``."""
    clock = [now or datetime(2026, 11, 27, 15, tzinfo=UTC)]
    stop, metrics = asyncio.Event(), BastionMetrics()
    configuration = BastionConfiguration(Scope(owner), {provider: allowed}, targets=targets, forgotten=forgotten)
    async with Client(api.connection()) as client:
        made = Running(client, metrics, clock)
        options = BastionOptions(memory_registry(), metrics, lambda: clock[0])
        run = run_bastions(client, configuration, SECRET, stop=stop, options=options, started=made.controllers.append)
        task = asyncio.create_task(run)
        try:
            yield made
        finally:
            stop.set()
            await task


def condition(manifest: dict[str, Any]) -> tuple[str, str]:
    conditions = manifest.get("status", {}).get("conditions") or [{"status": "", "reason": ""}]
    return conditions[0]["status"], conditions[0]["reason"]


def is_ready(manifest: dict[str, Any]) -> bool:
    return condition(manifest) == ("True", "SuccessfullyReconciled")


def has_failed(manifest: dict[str, Any]) -> bool:
    return condition(manifest) == ("False", "FailedReconciling")


async def test_a_bastion_becomes_ready(api: EmbeddedAPI) -> None:
    seen: list[list[str]] = []

    def ensure(bastion: Bastion) -> Ensured:
        seen.append(api.get("bastions.access.cluster.x-k8s.io", "repair", NAMESPACE)["metadata"].get("finalizers", []))
        MEMORY.ensure = None
        return Pending("the instance starts", timedelta(milliseconds=20))

    MEMORY.ensure = ensure
    async with running(api) as controller:
        await controller.create()
        found = await controller.wait(is_ready)
    assert seen == [[FINALIZER]]  # before anything was made
    status = found["status"]
    assert status["ingress"] == {"ip": "203.0.113.5", "port": 22}
    assert status["egress"] == ["10.9.0.7/32"]
    uid = found["metadata"]["uid"]
    assert status["hostKeys"] == [key_line(public_key_of(SECRET.key_of(uid).private_key()))]
    assert status["observedGeneration"] == found["metadata"]["generation"]
    assert status["lastOperation"]["state"] == "Succeeded"
    # The grant controller reads it with this parser.
    assert parse_bastion(found).status.host_keys == tuple(status["hostKeys"])


async def test_a_changed_ingress_is_ensured(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
        ingress = [{"ipBlock": {"cidr": "203.0.113.0/24"}}]
        await controller.client.patch(PATH, {"spec": {"ingress": ingress}})
        await controller.wait(lambda found: found["status"]["observedGeneration"] == found["metadata"]["generation"])
    assert [str(one) for one in MEMORY.ensured[-1].ingress] == ["203.0.113.0/24"]


async def test_deletion_waits_for_the_provider(api: EmbeddedAPI) -> None:
    gone = asyncio.Event()
    MEMORY.delete = lambda reference: Gone() if gone.is_set() else Pending("i-1 ends", timedelta(milliseconds=20))
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
        await controller.client.delete(PATH)
        found = await controller.wait(lambda found: condition(found) == ("False", "DeletionInProgress"))
        assert "i-1 ends" in found["status"]["conditions"][0]["message"]
        assert found["status"].get("ingress") is None  # nobody is to connect
        assert found["metadata"]["finalizers"] == [FINALIZER]
        gone.set()
        await controller.wait_gone()


async def test_not_after_is_enforced(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        found = await controller.wait(is_ready)
        controller.now[0] = datetime(2026, 11, 27, 22, 0, 1, tzinfo=UTC)
        # Any event will do; without one, the controller looks at the end by itself.
        await controller.client.patch(PATH, {"metadata": {"annotations": {"touched": "yes"}}})
        found = await controller.wait(has_failed)
        assert "notAfter" in found["status"]["conditions"][0]["message"]
    assert MEMORY.made == {}


async def test_a_bastion_past_its_end_is_never_made(api: EmbeddedAPI) -> None:
    async with running(api, now=datetime(2026, 11, 28, tzinfo=UTC)) as controller:
        await controller.create()
        await controller.wait(has_failed)
    assert MEMORY.ensured == []


@pytest.mark.parametrize(
    ("namespace", "spec"),
    [
        ("team-b", {}),
        (NAMESPACE, {"provider": "aws"}),
        (NAMESPACE, {"settings": {"size": "enormous"}}),
        (NAMESPACE, {"settings": {"token": "of a tenant"}}),
    ],
    ids=["another namespace", "another provider", "a size that is not allowed", "a tenant's credentials"],
)
async def test_what_the_operator_does_not_allow(api: EmbeddedAPI, namespace: str, spec: dict[str, Any]) -> None:
    async with running(api) as controller:
        await controller.create(namespace, **spec)
        found = await controller.wait(has_failed, BASTIONS.object("repair", namespace))
        assert found["status"]["lastOperation"]["state"] == "Failed"
        assert "hunter2" not in str(found)
    assert MEMORY.ensured == []


async def test_a_policy_chooses_among_what_the_operator_allows(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create(settings={"size": "large"})
        await controller.wait(is_ready)
    assert {"size": "large"} in [one.policy for one in MEMORY.settings]
    assert MEMORY.settings[-1].operator["token"] == "hunter2-of-the-cloud"


async def test_a_fault_of_a_provider_is_told_without_its_text(api: EmbeddedAPI) -> None:
    def fail(bastion: Bastion) -> Ensured:
        raise RuntimeError("hunter2-of-the-cloud")

    MEMORY.ensure = fail
    async with running(api) as controller:
        await controller.create()
        found = await controller.wait(has_failed)
        assert "RuntimeError" in found["status"]["conditions"][0]["message"]
        assert "hunter2" not in str(found)
        MEMORY.ensure = None
        await controller.client.patch(PATH, {"metadata": {"annotations": {"touched": "yes"}}})
        await controller.wait(is_ready)


@pytest.mark.parametrize("final", [True, False])
async def test_a_broken_bastion_is_an_event(api: EmbeddedAPI, final: bool) -> None:
    MEMORY.ensure = lambda bastion: Broken("the subnet does not exist", final)
    async with running(api) as controller:
        await controller.create()
        found = await controller.wait(has_failed)
        assert found["status"]["lastOperation"]["state"] == ("Failed" if final else "Error")
        events = await until(lambda: controller.items(EVENTS.collection(NAMESPACE)), bool)
    assert "subnet" in events[0]["message"]
    assert events[0]["source"]["component"] == "node-access-bastions"


async def test_an_unanswered_call_is_told(api: EmbeddedAPI) -> None:
    def fail(bastion: Bastion) -> Ensured:
        raise CallFailed("describe_instances: RequestLimitExceeded")

    MEMORY.ensure = fail
    async with running(api) as controller:
        await controller.create()
        found = await controller.wait(has_failed)
        assert "RequestLimitExceeded" in found["status"]["conditions"][0]["message"]
        assert controller.metrics.operations.labels(NAME, "ensure", "failed")._value.get() >= 1


@pytest.mark.parametrize(
    "spec",
    [
        {"ingress": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]},
        {"targets": [{"addresses": ["127.0.0.1"], "port": 22}]},
        {"targets": [{"addresses": ["169.254.169.254"], "port": 80}]},
        {
            "userAuthorities": [
                'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPjHUyfKmhKPaLC7D8u6oh1z9UIgXVy2Pj29E940gSaA "; touch /x'
            ]
        },
        {"principal": "root@worker-1"},
        {"unheardOf": True},
    ],
    ids=[
        "the Internet",
        "loopback",
        "the metadata service",
        "a comment with a command",
        "another principal",
        "a field",
    ],
)
async def test_an_invalid_bastion_is_not_made_and_can_be_deleted(api: EmbeddedAPI, spec: dict[str, Any]) -> None:
    """Test 45 among them."""
    async with running(api) as controller:
        await controller.create(**spec)
        await controller.wait(has_failed)
        assert MEMORY.ensured == []
        await controller.client.delete(PATH)
        await controller.wait_gone()


async def test_an_object_that_became_invalid_is_deleted_with_its_resources(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
        await controller.client.patch(PATH, {"spec": {"ingress": [], "clusterRef": None}})
        await controller.wait(has_failed)
        assert MEMORY.made
        await controller.client.delete(PATH)
        await controller.wait_gone()
    assert MEMORY.made == {}


async def test_a_provider_that_left_the_configuration_keeps_the_finalizer(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("signer.bastions.providers.Providers.check", lambda self: None)
        async with running(api, provider="other") as controller:
            await controller.client.delete(PATH)
            found = await controller.wait(lambda found: condition(found) == ("False", "DeletionInProgress"))
            assert f"no provider {NAME}" in found["status"]["conditions"][0]["message"]
            assert found["metadata"]["finalizers"] == [FINALIZER]
    assert MEMORY.made


async def test_a_namespace_that_is_no_longer_allowed_is_still_cleaned(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
    async with running(api, OperatorProvider(frozenset())) as controller:
        await controller.client.delete(PATH)
        await controller.wait_gone()
    assert MEMORY.made == {}


async def test_a_restarted_controller_goes_on(api: EmbeddedAPI) -> None:
    """And writes nothing where nothing changed: one status write in all."""
    async with running(api) as controller:
        await controller.create()
        before = await controller.wait(is_ready)
    ensured = len(MEMORY.ensured)
    async with running(api) as controller:
        await controller.wait(lambda found: len(MEMORY.ensured) > ensured)
    after = api.get("bastions.access.cluster.x-k8s.io", "repair", NAMESPACE)
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert MEMORY.ensured[0].host_key == MEMORY.ensured[-1].host_key


async def test_another_finalizer_stays(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
        both = {"metadata": {"finalizers": ["example.com/other", FINALIZER]}}
        await controller.client.patch(PATH, both)
        await controller.client.delete(PATH)
        await controller.wait(lambda found: found["metadata"].get("finalizers") == ["example.com/other"])


async def test_health(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
        (one,) = controller.controllers
        assert one.ready().passed
        assert one.alive().passed
        assert controller.metrics.bastions._value.get() == 1


async def test_settings_of_the_operator_are_checked_at_the_start(api: EmbeddedAPI) -> None:
    with pytest.raises(InvalidSettings, match=r"providers\.memory: there is no setting password"):
        async with running(api, OperatorProvider(frozenset(), {"password": "x"})):
            await asyncio.sleep(0.2)


# Targets


def has_reason(reason: str) -> Callable[[dict[str, Any]], bool]:
    return lambda manifest: condition(manifest) == ("False", reason)


@pytest.mark.parametrize(
    ("target", "setting"),
    [
        ({"addresses": ["203.0.113.80"], "port": 22}, "targetNetworks"),
        ({"addresses": ["2001:db8::80"], "port": 22}, "targetNetworks"),
        ({"addresses": ["10.0.0.5"], "port": 6443}, "targetPorts"),
    ],
    ids=["a public address", "a public address of IPv6", "another port"],
)
async def test_a_target_that_the_operator_does_not_allow(
    api: EmbeddedAPI, target: dict[str, Any], setting: str
) -> None:
    """A tenant writes the addresses of Machines, and the policy's port: beside a node that is allowed, too."""
    async with running(api) as controller:
        await controller.create(targets=[{"addresses": ["10.0.0.4"], "port": 22}, target])
        found = await controller.wait(has_reason("TargetNotAllowed"))
        assert setting in found["status"]["conditions"][0]["message"]
        assert found["status"]["lastOperation"]["state"] == "Failed"
        assert "finalizers" not in found["metadata"]
    assert MEMORY.ensured == []


async def test_an_address_outside_beside_one_within_is_left_out(api: EmbeddedAPI) -> None:
    """A Machine lists its public address, too."""
    async with running(api) as controller:
        await controller.create(targets=[{"addresses": ["10.0.0.5", "203.0.113.80"], "port": 22}])
        found = await controller.wait(is_ready)
        assert "203.0.113.80" in found["status"]["conditions"][0]["message"]
    assert {str(one) for bastion in MEMORY.ensured for one, _ in bastion.destinations} == {"10.0.0.5"}


async def test_targets_by_namespace(api: EmbeddedAPI) -> None:
    only = (ip_network("10.7.0.0/16"),)
    narrow = OperatorTargets(networks_by_namespace={NAMESPACE: only}, ports_by_namespace={"team-b": frozenset({2222})})
    async with running(api, OperatorProvider(frozenset({"*"})), targets=narrow) as controller:
        await controller.create()
        await controller.wait(has_reason("TargetNotAllowed"))
        await controller.create("team-b", targets=[{"addresses": ["10.0.0.5"], "port": 2222}])
        await controller.wait(is_ready, BASTIONS.object("repair", "team-b"))


async def test_targets_that_the_operator_withdraws_are_closed(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
    async with running(api, targets=OperatorTargets(networks=())) as controller:
        found = await controller.wait(has_reason("TargetNotAllowed"))
        await until_gone()
        assert found["status"].get("ingress") is None
    assert MEMORY.made == {}


async def until_gone() -> None:
    async with asyncio.timeout(20):
        while MEMORY.made:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


# What the operator withdraws, and ends


@pytest.mark.parametrize(
    "allowed",
    [
        OperatorProvider(frozenset(), ALLOWED.settings),
        OperatorProvider(frozenset({"*"}), ALLOWED.settings, former_namespaces=frozenset({NAMESPACE})),
        OperatorProvider(frozenset({NAMESPACE}), {"sizes": ["small"]}),
    ],
    ids=["no namespace", "a former namespace", "a setting that the policy chose"],
)
async def test_what_is_no_longer_allowed_ends(api: EmbeddedAPI, allowed: OperatorProvider) -> None:
    async with running(api) as controller:
        await controller.create(settings={"size": "large"})
        await controller.wait(is_ready)
    async with running(api, allowed) as controller:
        found = await controller.wait(lambda found: has_failed(found) and "finalizers" not in found["metadata"])
        assert "allow" in found["status"]["conditions"][0]["message"]
    assert MEMORY.made == {}
    async with running(api) as controller:  # allowed again
        await controller.wait(is_ready)


async def test_what_is_no_longer_allowed_and_cannot_be_removed_is_told(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("signer.bastions.providers.Providers.check", lambda self: None)
        async with running(api, provider="other") as controller:
            found = await controller.wait(has_failed)
            assert "namespaces: []" in found["status"]["conditions"][0]["message"]
            assert found["status"].get("ingress") is None
            assert found["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.parametrize("not_after", ["2026-11-27T22:00:00Z", "never"])
async def test_an_object_that_became_invalid_ends_at_its_end(api: EmbeddedAPI, not_after: str) -> None:
    """Without a readable end, at once."""
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
        await controller.client.patch(PATH, {"spec": {"principal": "root@worker-1"}})
        await controller.wait(has_failed)
        assert MEMORY.made
        if not_after != "never":
            controller.now[0] = datetime(2026, 11, 27, 22, 0, 1, tzinfo=UTC)
        await controller.client.patch(PATH, {"spec": {"notAfter": not_after}, "metadata": {"labels": {"a": "b"}}})
        await controller.wait(lambda found: "finalizers" not in found["metadata"])
    assert MEMORY.made == {}


# Places


async def test_what_was_made_elsewhere_is_not_taken_for_gone(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        found = await controller.wait(is_ready)
        assert [one["setting"] for one in found["status"]["place"]] == ["owner", "region"]
        assert controller.metrics.registry.get_sample_value(REFUSED, {"reason": "PlaceChanged"}) is None
        assert "north" not in str(found)
    MEMORY.region = "south"
    async with running(api) as controller:
        found = await controller.wait(has_reason("PlaceChanged"))
        assert "another value of region" in found["status"]["conditions"][0]["message"]
        counted = controller.metrics.registry.get_sample_value(REFUSED, {"reason": "PlaceChanged"})
        assert counted == 1
        await controller.client.delete(PATH)
        found = await controller.wait(lambda found: found["status"]["lastOperation"]["type"] == "Delete")
        assert has_reason("PlaceChanged")(found)
        assert found["metadata"]["finalizers"] == [FINALIZER]
    assert [*MEMORY.made] == [found["metadata"]["uid"]]  # and no second one in the south
    assert {*MEMORY.regions.values()} == {"north"}
    MEMORY.region = "north"
    async with running(api) as controller:
        await controller.wait_gone()
    assert MEMORY.made == {}


async def test_another_owner_finds_nothing(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
    async with running(api, owner="other") as controller:
        await controller.client.delete(PATH)
        found = await controller.wait(has_reason("PlaceChanged"))
        assert "another value of owner" in found["status"]["conditions"][0]["message"]


async def test_a_place_is_recorded_before_anything_is_made(api: EmbeddedAPI) -> None:
    seen: list[int] = []

    def ensure(bastion: Bastion) -> Ensured:
        manifest = api.get("bastions.access.cluster.x-k8s.io", "repair", NAMESPACE)
        seen.append(len(manifest["status"]["place"]))
        MEMORY.ensure = None
        return Pending("the instance starts", timedelta(milliseconds=20))

    MEMORY.ensure = ensure
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
    assert seen == [2]


async def test_a_lost_status_is_recorded_again_where_the_bastion_is(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
    await lose_status(api)
    async with running(api) as controller:
        await controller.wait(lambda found: is_ready(found) and bool(found["status"].get("place")))
        await controller.client.delete(PATH)
        await controller.wait_gone()
    assert MEMORY.made == {}


async def test_a_lost_status_and_another_place_keep_the_finalizer(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
    await lose_status(api)
    MEMORY.region = "south"
    async with running(api) as controller:
        await controller.wait(has_reason("PlaceUnknown"))
        await controller.client.delete(PATH)
        found = await controller.wait(lambda found: found["status"]["lastOperation"]["type"] == "Delete")
        assert has_reason("PlaceUnknown")(found)
        assert found["metadata"]["finalizers"] == [FINALIZER]


@pytest.mark.parametrize("is_lost", [False, True])
async def test_the_operator_forgets_what_is_elsewhere(api: EmbeddedAPI, is_lost: bool) -> None:
    async with running(api) as controller:
        await controller.create()
        found = await controller.wait(is_ready)
    if is_lost:
        await lose_status(api)
    MEMORY.region = "south"
    uid = found["metadata"]["uid"]
    async with running(api, forgotten=frozenset({uid})) as controller:
        await controller.client.delete(PATH)
        await controller.wait_gone()
    assert [*MEMORY.made] == [uid]


async def lose_status(api: EmbeddedAPI) -> None:
    async with Client(api.connection()) as client:
        lost = dict.fromkeys(("place", "conditions", "ingress", "hostKeys", "egress", "observedGeneration"))
        await client.patch(f"{PATH}/status", {"status": lost})


# The sweep


@dataclass
class Swept:
    """A sweep, its metrics, and its Events."""

    sweep: Sweep
    metrics: BastionMetrics
    events: list[str] = field(default_factory=list)

    def record(self, manifest: Any, reason: str, message: str) -> None:
        self.events.append(f"{reason} {manifest['metadata']['namespace']}")


@contextlib.asynccontextmanager
async def sweeping(api: EmbeddedAPI) -> AsyncIterator[Swept]:
    configuration = BastionConfiguration(Scope("suite"), {NAME: ALLOWED})
    metrics = BastionMetrics()
    providers = Providers(configuration, Surroundings(Scope("suite")), metrics, memory_registry())
    async with Client(api.connection()) as client:
        made = Swept(None, metrics)  # type: ignore[arg-type]
        made.sweep = Sweep(client, configuration, providers, metrics, made)
        yield made
    providers.close()


def leak(age: timedelta) -> str:
    uid = "aaaaaaaa-0000-4000-8000-000000000001"
    MEMORY.leaked.append(OwnedResources(BastionReference(uid, NAMESPACE, "lost", "production"), age, ("instance i-1",)))
    return uid


async def test_a_leak_is_deleted_counted_and_told(api: EmbeddedAPI) -> None:
    uid = leak(timedelta(minutes=16))
    async with sweeping(api) as swept:
        await swept.sweep.once()
    assert [one.uid for one in MEMORY.deleted] == [uid]
    assert swept.metrics.leaked.labels(NAME)._value.get() == 1
    assert swept.events == ["BastionLeaked team-a"]


async def test_a_young_resource_is_no_leak(api: EmbeddedAPI) -> None:
    leak(timedelta(minutes=14))
    async with sweeping(api) as swept:
        await swept.sweep.once()
    assert MEMORY.deleted == []


async def test_a_live_bastion_is_no_leak(api: EmbeddedAPI) -> None:
    async with running(api) as controller:
        await controller.create()
        await controller.wait(is_ready)
    async with sweeping(api) as swept:
        await swept.sweep.once()
    assert MEMORY.deleted == []


async def test_without_the_list_of_bastions_nothing_is_swept(api: EmbeddedAPI) -> None:
    leak(timedelta(minutes=16))
    api.faults.inject(lambda request: "bastions" in request.path, status=503, times=None)
    async with sweeping(api) as swept:
        await swept.sweep.once()
    assert MEMORY.deleted == []
    assert swept.metrics.sweeps.labels(NAME, "failed")._value.get() == 1
