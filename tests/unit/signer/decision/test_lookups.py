"""The claimed Machine's own InfraMachine may be looked at, and no other object of its provider."""

from __future__ import annotations

from typing import Any

import pytest

from attestors.contract import NoClaimedMachine, NotThere
from signer.kube.coalescing_cache import FRESH_SECONDS
from signer.kube.errors import ApiError, Cause, Forbidden, ResourceNotServed, ServerError, Unreachable
from signer.model.cluster import InfrastructureReference, NoInfrastructure
from signer.store.infrastructure_definition import DEFINITION_SECONDS
from tests.unit.signer.builders import machine_view
from tests.unit.signer.decision.lookups_fixtures import (
    DEFINITION,
    GROUP,
    HIDDEN,
    INFRA_MACHINE,
    OURS,
    OWNER,
    REFERENCE,
    World,
    cause,
    definition,
    infra_machine,
    version,
)


@pytest.fixture
def world() -> World:
    return World()


async def test_annotations_of_the_inframachine(world: World) -> None:
    assert await world.annotations() == OURS
    assert world.asked == [DEFINITION, INFRA_MACHINE]


async def test_they_cannot_be_changed(world: World) -> None:
    """All who ask within a second get the same."""
    found = await world.annotations()
    with pytest.raises(TypeError):
        found["key"] = "value"


async def test_they_are_bounded_like_a_machines(world: World) -> None:
    many = {f"attestation.cluster.x-k8s.io/{number:02}": "x" for number in range(20)}
    world.objects[INFRA_MACHINE] = infra_machine(**{"attestation.cluster.x-k8s.io/long": "x" * 2049}, **many)
    found = await world.annotations()
    assert len(found) == 8
    assert all(len(value) == 1 for value in found.values())


async def test_none_is_none(world: World) -> None:
    world.objects[INFRA_MACHINE] = {"metadata": {"ownerReferences": [OWNER]}}
    assert await world.annotations() == {}


@pytest.mark.parametrize(
    "owner",
    [
        OWNER | {"name": "m2"},
        OWNER | {"uid": "u2"},
        OWNER | {"kind": "MachineSet"},
        OWNER | {"apiVersion": "example.com/v1"},
        OWNER | {"apiVersion": "v1"},
        {key: value for key, value in OWNER.items() if key != "uid"},
    ],
)
async def test_an_inframachine_of_another_machine(world: World, owner: dict[str, Any]) -> None:
    """A tenant may name in its Machine what belongs to another: also to the former Machine of that name."""
    world.objects[INFRA_MACHINE] = infra_machine(owner)
    assert cause(await world.annotations()) == (
        "TestMachine team-a/m1-infra is not owned by Machine team-a/m1, which names it"
    )


async def test_an_inframachine_that_nobody_owns(world: World) -> None:
    world.objects[INFRA_MACHINE] = {"metadata": {"annotations": OURS}}
    assert "is not owned by" in cause(await world.annotations())


async def test_one_owner_of_several_is_enough(world: World) -> None:
    world.objects[INFRA_MACHINE] = infra_machine({"kind": "Host", "name": "h"}, OWNER)
    assert await world.annotations() == OURS


async def test_without_a_claimed_machine(world: World) -> None:
    assert "no Machine has the claimed provider ID" in cause(await world.annotations(NoClaimedMachine()))
    assert world.asked == []


@pytest.mark.parametrize(
    "reference",
    [
        NoInfrastructure(),
        InfrastructureReference("apps", "v1", "Deployment", "m1-infra"),
        InfrastructureReference("cluster.x-k8s.io", "v1beta2", "Machine", "m1"),
        InfrastructureReference(f"x{GROUP}", "", "TestMachine", "m1-infra"),
    ],
)
async def test_only_the_providers_group_is_looked_at(world: World, reference: Any) -> None:
    assert "InfraMachine" in cause(await world.annotations(machine_view(infrastructure=reference)))
    assert world.asked == []


async def test_the_references_own_version_is_asked_for(world: World) -> None:
    world.objects[DEFINITION] = definition(version(), version("v1beta1"), version("v1alpha1", served=False))
    old = INFRA_MACHINE.replace("v1beta2", "v1beta1")
    world.objects[old] = world.objects.pop(INFRA_MACHINE)
    reference = InfrastructureReference(GROUP, "v1beta1", "TestMachine", "m1-infra")
    assert await world.annotations(machine_view(name="m1", uid="u1", infrastructure=reference)) == OURS


async def test_a_version_that_is_not_served_is_not_asked_for(world: World) -> None:
    world.objects[DEFINITION] = definition(version("v1beta1", served=False), version())
    reference = InfrastructureReference(GROUP, "v1beta1", "TestMachine", "m1-infra")
    assert await world.annotations(machine_view(name="m1", uid="u1", infrastructure=reference)) == OURS
    world.clock.pass_by(DEFINITION_SECONDS + 1)
    world.objects[DEFINITION] = definition(version(served=False))
    assert cause(await world.annotations()) == "no version of TestMachine is served"


@pytest.mark.parametrize("spec", [{"scope": "Cluster"}, {"names": {"kind": "Other", "plural": "testmachines"}}])
async def test_a_definition_of_something_else(world: World, spec: dict[str, Any]) -> None:
    world.objects[DEFINITION] = definition(**spec)
    assert "another kind, or not namespaced" in cause(await world.annotations())
    assert world.asked == [DEFINITION]


async def test_the_definition_is_asked_for_now_and_then(world: World) -> None:
    for _ in range(3):
        await world.annotations()
        world.clock.pass_by(FRESH_SECONDS + 0.1)
    assert world.asked.count(DEFINITION) == 1
    world.clock.pass_by(DEFINITION_SECONDS)
    await world.annotations()
    assert world.asked.count(DEFINITION) == 2


async def test_a_version_that_went_is_found_out(world: World) -> None:
    await world.annotations()
    world.objects[DEFINITION] = definition(version("v1"))
    world.objects[INFRA_MACHINE.replace("v1beta2", "v1")] = world.objects.pop(INFRA_MACHINE)
    world.failures[INFRA_MACHINE] = ResourceNotServed("404 page not found", status=404)
    world.clock.pass_by(FRESH_SECONDS + 0.1)
    with pytest.raises(ResourceNotServed):
        await world.annotations()
    world.clock.pass_by(FRESH_SECONDS + 0.1)
    assert await world.annotations() == OURS


async def test_an_object_that_is_gone_is_not_there(world: World) -> None:
    await world.annotations()
    del world.objects[INFRA_MACHINE]
    world.clock.pass_by(FRESH_SECONDS + 0.1)
    assert "does not exist" in cause(await world.annotations())


@pytest.mark.parametrize("path", [DEFINITION, INFRA_MACHINE])
async def test_no_inframachine_or_no_definition(world: World, path: str) -> None:
    del world.objects[path]
    assert cause(await world.annotations()) == "TestMachine team-a/m1-infra, or its definition, does not exist"


@pytest.mark.parametrize("path", [DEFINITION, INFRA_MACHINE])
async def test_no_grant_for_the_inframachine(world: World, path: str) -> None:
    world.failures[path] = Forbidden(HIDDEN, status=403)
    assert "a grant to get its definition or infrastructure.cluster.x-k8s.io is missing" in cause(
        await world.annotations()
    )


@pytest.mark.parametrize("path", [DEFINITION, INFRA_MACHINE])
@pytest.mark.parametrize("failure", [ServerError("away", status=503), Unreachable("gone", cause=Cause.TIMEOUT)])
async def test_a_fault_makes_it_wait(world: World, path: str, failure: ApiError) -> None:
    world.failures[path] = failure
    with pytest.raises(type(failure)):
        await world.annotations()


async def test_a_flood_costs_one_look(world: World) -> None:
    for _ in range(100):
        await world.annotations()
    assert world.asked == [DEFINITION, INFRA_MACHINE]
    world.clock.pass_by(FRESH_SECONDS + 0.1)
    world.objects[INFRA_MACHINE] = infra_machine(OWNER | {"uid": "u2"})
    assert isinstance(await world.annotations(), NotThere)


@pytest.mark.parametrize("change", [{"uid": "u2"}, {"name": "m2"}])
async def test_what_one_machine_was_answered_no_other_gets(world: World, change: dict[str, str]) -> None:
    assert await world.annotations() == OURS
    other = machine_view(**{"name": "m1", "uid": "u1", "infrastructure": REFERENCE, **change})
    assert "is not owned by" in cause(await world.annotations(other))
