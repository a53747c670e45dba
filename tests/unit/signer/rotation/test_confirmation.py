"""What a person can confirm: a rotation whose record and Secrets agree."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from signer.model.seal import ControllerKeys
from signer.rotation.authorities import AuthorityKind, Role, pair_suffix
from signer.rotation.confirmation import CannotBeConfirmed, NothingToConfirm, read_unconfirmed
from signer.rotation.operations import Operation
from signer.rotation.phases import Step
from tests.unit.signer.rotation.fault_world import (
    KEY,
    RECORD,
    Controller,
    FaultWorld,
    at_step,
    certificates,
    go_on,
    pair_data,
    run,
    secret_path,
)
from tests.unit.signer.rotation.memory_api import Interfere, MemoryClient

KEYS = ControllerKeys(bytes(32))


async def at(step: Step) -> FaultWorld:
    world = FaultWorld.new(kinds=(AuthorityKind.CLUSTER,), servers=1, nodes=1)
    controller = await Controller.started(world)
    world.order(Operation.START)
    await go_on(world, controller, at_step(step))
    return world


@pytest.fixture(scope="module")
def reached() -> FaultWorld:
    world: FaultWorld = run(at(Step.NODES_TRUST))
    return world


def read(world: FaultWorld, keys: ControllerKeys = KEYS) -> Any:
    client: Any = MemoryClient(world.management, Interfere())
    return asyncio.run(read_unconfirmed(client, KEY, keys))


def test_what_agrees_is_shown(reached: FaultWorld) -> None:
    found = read(reached)
    assert (found.record, found.signs) == (reached.now_record, Role.OLD)
    assert {(one.kind, one.role) for one in found.pairs} == {(AuthorityKind.CLUSTER, role) for role in Role}
    assert "PRIVATE KEY" not in repr(found)


def test_what_the_present_key_has_sealed_needs_nobody(reached: FaultWorld) -> None:
    with pytest.raises(NothingToConfirm, match="has sealed the rotation"):
        read(reached, reached.keys())


def test_without_a_rotation(reached: FaultWorld) -> None:
    world = reached.copied()
    world.management.remove(RECORD)
    with pytest.raises(NothingToConfirm, match="has no CertificateAuthorityRotation"):
        read(world)


@pytest.mark.parametrize("role", Role)
def test_a_foreign_pair(reached: FaultWorld, role: Role) -> None:
    """A tenant may write Secrets in the namespace."""
    world = reached.copied()
    suffix = pair_suffix(AuthorityKind.CLUSTER, world.now_record.rotation_id, role)
    world.put_secret(suffix, pair_data(AuthorityKind.CLUSTER, 1))
    with pytest.raises(CannotBeConfirmed, match=f"{suffix} holds another CA than the record names"):
        read(world)
    world.put_secret(suffix, {"tls.crt": b"garbage", "tls.key": b""})
    with pytest.raises(CannotBeConfirmed, match=f"{suffix} cannot be used"):
        read(world)
    two = world.secret("trust")["client-ca.crt"]
    assert len(certificates(two)) == 2
    world.put_secret(suffix, {**reached.secret(suffix), "tls.crt": two})
    with pytest.raises(CannotBeConfirmed, match=f"{suffix} cannot be used: it holds several"):
        read(world)


def test_a_pair_that_is_gone_is_no_obstacle(reached: FaultWorld) -> None:
    """The rotation says what it misses, and is then abandoned at the worst."""
    world = reached.copied()
    world.management.remove(secret_path(pair_suffix(AuthorityKind.CLUSTER, world.now_record.rotation_id, Role.NEW)))
    assert {one.role for one in read(world).pairs} == {Role.OLD}


def test_the_cluster_signs_by_a_stranger(reached: FaultWorld) -> None:
    world = reached.copied()
    world.put_secret("ca", pair_data(AuthorityKind.CLUSTER, 1))
    with pytest.raises(CannotBeConfirmed, match="holds neither CA of the record"):
        read(world)
    world.management.remove(secret_path("ca"))
    with pytest.raises(CannotBeConfirmed, match="does not exist"):
        read(world)


def test_an_object_that_is_no_rotation(reached: FaultWorld) -> None:
    world = reached.copied()
    world.management.edit(RECORD, {"spec": {"phase": "Unheard"}})
    with pytest.raises(CannotBeConfirmed, match="cannot be read"):
        read(world)
