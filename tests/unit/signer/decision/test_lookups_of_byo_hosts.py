"""The host of a Machine of BYOH: the one ByoHost that is labelled with its ByoMachine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from attestors.contract import Host
from signer.decision.lookups import ConfinedLookups
from signer.kube.errors import ApiError, Forbidden, NotFound, ResourceNotServed, ServerError
from signer.model.cluster import InfrastructureReference
from tests.unit.signer.builders import CLUSTER
from tests.unit.signer.decision.lookups_fixtures import (
    GROUP,
    MACHINE,
    OURS,
    OWNER,
    World,
    cause,
    definition,
    infra_machine,
)

DEFINITION = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/byomachines.{GROUP}"
BYO_MACHINE = f"/apis/{GROUP}/v1beta2/namespaces/team-a/byomachines/m1-infra"
HOSTS = (
    f"/apis/{GROUP}/v1beta1/namespaces/team-a/byohosts"
    "?byoh.infrastructure.cluster.x-k8s.io/byomachine-name=team-a.m1-infra"
)
ON_HOST = replace(MACHINE, infrastructure=InfrastructureReference(GROUP, "", "ByoMachine", "m1-infra"))


def host(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "annotations": OURS}}


@pytest.fixture
def world() -> World:
    world = World()
    world.objects[DEFINITION] = definition(names={"kind": "ByoMachine", "plural": "byomachines"})
    world.objects[BYO_MACHINE] = infra_machine(OWNER)
    world.objects[HOSTS] = {"items": [host("host-1")]}
    return world


async def found(world: World, machine: Any = ON_HOST) -> Any:
    return await ConfinedLookups(world.lookups, CLUSTER, machine).host()


async def test_host_of_the_machine(world: World) -> None:
    """Without its annotations: its agent writes them."""
    assert await found(world) == Host("byoh://host-1", {})


async def test_no_host_yet(world: World) -> None:
    world.objects[HOSTS] = {"items": []}
    assert "no ByoHost of namespace team-a is labelled with ByoMachine team-a/m1-infra" in cause(await found(world))


@pytest.mark.parametrize("names", [("host-1", "host-2"), ("host-1", "host-2", "host-3")])
async def test_two_hosts_of_one_machine(world: World, names: tuple[str, ...]) -> None:
    """A host may have labelled itself."""
    world.objects[HOSTS] = {"items": list(map(host, names))}
    assert "ByoHosts host-1 and host-2 are both labelled" in cause(await found(world))


async def test_byo_machine_of_another_machine(world: World) -> None:
    world.objects[BYO_MACHINE] = infra_machine(OWNER | {"uid": "u2"})
    assert "is not owned by" in cause(await found(world))
    assert HOSTS not in world.asked


async def test_name_that_no_label_holds(world: World) -> None:
    name = "m" * 57
    reference = InfrastructureReference(GROUP, "", "ByoMachine", name)
    world.objects[BYO_MACHINE.replace("m1-infra", name)] = infra_machine(OWNER)
    assert "too long" in cause(await found(world, replace(MACHINE, infrastructure=reference)))
    assert not any("byohosts" in path for path in world.asked)


@pytest.mark.parametrize(
    ("failure", "part"),
    [
        (Forbidden("no", status=403), "the grant to list byohosts in team-a is missing"),
        (ResourceNotServed("no"), "does not exist"),
        (NotFound("no"), "does not exist"),
    ],
)
async def test_without_grant_or_byoh(world: World, failure: ApiError, part: str) -> None:
    world.failures[HOSTS] = failure
    assert part in cause(await found(world))


async def test_outage_is_no_answer(world: World) -> None:
    world.failures[HOSTS] = ServerError("busy", status=503)
    with pytest.raises(ServerError):
        await found(world)
