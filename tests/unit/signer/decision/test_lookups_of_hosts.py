"""The host of a Machine: a BareMetalHost that its Metal3Machine names, and that names it back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attestors.contract import Host, NoClaimedMachine
from signer.decision.lookups import ConfinedLookups
from signer.kube.errors import ApiError, Forbidden, ResourceNotServed, ServerError
from signer.model.cluster import InfrastructureReference
from tests.unit.signer.builders import CLUSTER
from tests.unit.signer.decision.lookups_fixtures import (
    GROUP,
    HIDDEN,
    MACHINE,
    OURS,
    OWNER,
    World,
    cause,
    definition,
    infra_machine,
)

DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/metal3machines.{GROUP}"
METAL3_MACHINE = f"/apis/{GROUP}/v1beta2/namespaces/team-a/metal3machines/m1-infra"
HOST = "/apis/metal3.io/v1alpha1/namespaces/team-a/baremetalhosts/node-0"
ON_HOST = replace(MACHINE, infrastructure=InfrastructureReference(GROUP, "", "Metal3Machine", "m1-infra"))
CONSUMER = {"apiVersion": f"{GROUP}/v1beta1", "kind": "Metal3Machine", "namespace": "team-a", "name": "m1-infra"}


def named(host: str) -> dict[str, Any]:
    return infra_machine(OWNER, **{"metal3.io/BareMetalHost": host})


@pytest.fixture
def world() -> World:
    world = World()
    names = {"kind": "Metal3Machine", "plural": "metal3machines"}
    world.objects[DEFINITION] = definition(names=names)
    world.objects[METAL3_MACHINE] = named("team-a/node-0")
    annotations = {**OURS, "example.com/note": HIDDEN}
    world.objects[HOST] = {"metadata": {"annotations": annotations}, "spec": {"consumerRef": CONSUMER}}
    return world


async def found(world: World, machine: Any = ON_HOST) -> Any:
    return await ConfinedLookups(world.lookups, CLUSTER, machine).host()


async def test_host_of_the_machine(world: World) -> None:
    assert await found(world) == Host("metal3://team-a/node-0", OURS)


@pytest.mark.parametrize("host", ["team-b/node-0", "node-0", "team-a/", "team-a/../secrets", "team-a/Node", ""])
async def test_name_that_is_no_host_of_the_namespace(world: World, host: str) -> None:
    world.objects[METAL3_MACHINE] = named(host)
    assert "metal3.io/BareMetalHost" in cause(await found(world))
    assert not any("baremetalhosts" in path for path in world.asked)


@pytest.mark.parametrize(
    "change",
    [
        {"name": "other"},
        {"namespace": "team-b"},
        {"kind": "Machine"},
        {"apiVersion": "metal3.io/v1alpha1"},
        {"name": None},
    ],
)
async def test_host_of_another_consumer(world: World, change: dict[str, str]) -> None:
    world.objects[HOST]["spec"]["consumerRef"] = CONSUMER | change
    assert "another consumer" in cause(await found(world))


async def test_host_without_a_consumer(world: World) -> None:
    world.objects[HOST]["spec"] = {}
    assert "another consumer" in cause(await found(world))


async def test_metal3_machine_of_another_machine(world: World) -> None:
    world.objects[METAL3_MACHINE] = infra_machine(OWNER | {"uid": "u2"}, **{"metal3.io/BareMetalHost": "team-a/node-0"})
    assert "is not owned by" in cause(await found(world))


async def test_other_infrastructure_has_no_host(world: World) -> None:
    assert "is a TestMachine, which has no host object known here" in cause(await found(world, MACHINE))
    assert "no host" in cause(await found(world, NoClaimedMachine()))


@pytest.mark.parametrize(
    ("failure", "part"),
    [
        (Forbidden("no", status=403), "the grant to get baremetalhosts is missing"),
        (ResourceNotServed("no"), "does not exist"),
    ],
)
async def test_without_grant_or_metal3(world: World, failure: ApiError, part: str) -> None:
    world.failures[HOST] = failure
    assert part in cause(await found(world))


async def test_host_that_is_gone(world: World) -> None:
    del world.objects[HOST]
    assert "does not exist" in cause(await found(world))


async def test_outage_is_no_answer(world: World) -> None:
    world.failures[HOST] = ServerError("busy", status=503)
    with pytest.raises(ServerError):
        await found(world)
