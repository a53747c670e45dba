"""Sequences of orders, losses and waits after which somebody was locked out, or stuck, before they were reviewed."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from signer.authority.successor import new_node_client_authority
from signer.cli.rotate_confirm import what_is_confirmed
from signer.cli.rotate_output import next_for_person, show_status
from signer.kube.errors import Forbidden
from signer.kube.resources import MACHINES_V1BETA2
from signer.model.authority_suffixes import NODE_CLIENT_CA
from signer.model.rotation_waits import Waits
from signer.model.seal import ControllerKeys
from signer.rotation.authorities import AuthorityKind, Role, pair_suffix
from signer.rotation.bundles import bundle_of, reference_of
from signer.rotation.confirmation import CannotBeConfirmed, confirm, read_unconfirmed
from signer.rotation.management import RENEWED_BEFORE_END
from signer.rotation.operations import SKIP_GATES_ANNOTATION, Gate, Operation
from signer.rotation.phases import Phase, RollbackAvailable, SigningPairs, Step
from signer.rotation.plan import CALL_FAILED, rollback_possible
from signer.rotation.proofs import LINK_LEFT_AT_SWITCH
from signer.rotation.record import SkippedGate, record_spec
from signer.rotation.rotations import Verified
from signer.rotation.secrets import Pair, pair_manifest
from signer.rotation.status import rotation_status
from signer.rotation.view import Attention, View, rotation_view
from signer.rotation.workload import CLUSTER_INFO
from tests.unit.signer.rotation.fault_world import (
    KEY,
    PINS,
    POLICY,
    RECORD,
    Controller,
    FaultWorld,
    at_step,
    certificates,
    go_on,
    in_phase,
    pair_data,
    parsed,
    run,
    secret_path,
)
from tests.unit.signer.rotation.memory_api import Call, Interfere, MemoryClient, Moment
from tests.unit.signer.rotation.test_faults import PROGRESSING, REJECTED, STATEMENT, move, small, world_at
from tests.unit.signer.rotation.test_faults import places as places

pytestmark = pytest.mark.usefixtures("parsed_once")

CLUSTER_ONLY = (AuthorityKind.CLUSTER,)


def shown(world: FaultWorld, controller: Controller) -> tuple[View, str]:
    """What ``rotate status`` prints, by what the controller would write in the policy."""
    met = {True: "True", False: "False", None: "Unknown"}
    conditions = [
        {"type": str(one.type), "status": met[one.met], "reason": one.reason, "message": one.message}
        for one in controller.reconciler.conditions
    ]
    status: dict[str, Any] = {"conditions": conditions}
    known, last = controller.rotations.of(KEY), controller.reconciler.last
    if isinstance(known, Verified):
        said = rotation_status(known.record, last[0] if last else None)
        status["credentials"] = {"rotation": {"certificateAuthorities": said}}
    view = rotation_view(KEY, {**world.management.get(POLICY), "status": status}, world.management.get(RECORD))
    written = io.StringIO()
    show_status(view, Console(file=written, width=100), world.state.now)
    return view, written.getvalue()


async def prepared(world: FaultWorld) -> Controller:
    controller = await Controller.started(world)
    world.order(Operation.START)
    await go_on(world, controller, in_phase(Phase.PREPARED))
    return controller


# The link


@pytest.mark.parametrize("pairs", SigningPairs)
def test_the_link_outlasts_a_rollout_that_somebody_has_to_help(pairs: SigningPairs) -> None:
    """A person completes at the last moment at which the link was not renewed, and the rollout waits for nine days."""

    async def scenario() -> None:
        world = FaultWorld.new(kinds=CLUSTER_ONLY, servers=2, nodes=1, signing_pairs=pairs)
        controller = await prepared(world)
        last = parsed(world.state.servers[0].link).not_after - RENEWED_BEFORE_END - timedelta(hours=1)
        while world.state.now < last:
            for node in world.state.nodes:
                await world.renew(node, controller)
            world.wait(min(6 * 3600.0, max((last - world.state.now).total_seconds(), 1)))
        world.order(Operation.COMPLETE)
        await go_on(world, controller, at_step(Step.SERVERS_PRESENT), rounds=1)
        for _ in range(9):
            world.wait(86400)
            await controller.settle()
            for node in world.state.nodes:
                await world.renew(node, controller)
        for _ in range(4):
            world.roll_one()
            world.require_everybody_is_accepted()

    run(scenario())


def test_a_rotation_is_not_completed_shortly_before_its_link_ends() -> None:
    async def scenario() -> None:
        world = FaultWorld.new(kinds=CLUSTER_ONLY, servers=1, nodes=1)
        controller = await prepared(world)
        ends = parsed(world.state.servers[0].link).not_after
        world.wait((ends - LINK_LEFT_AT_SWITCH - world.state.now).total_seconds() + 60)
        world.order(Operation.COMPLETE)
        await controller.look()
        assert world.now_record.phase is Phase.PREPARED
        assert "the link certificate ends at" in controller.condition(REJECTED)

    run(scenario())


def test_all_of_it_can_be_taken_back_until_the_first_machine_is_replaced() -> None:
    """The second rollout is asked for, and nothing has followed: every API server still presents the old CA."""

    async def scenario() -> None:
        world = world_at(Step.SERVERS_PRESENT)
        controller = await Controller.started(world)
        await controller.settle()
        assert controller.reconciler.last is not None
        facts = controller.reconciler.last[0]
        assert rollback_possible(world.now_record, facts) is RollbackAvailable.FULL
        world.roll_one()
        await controller.settle()
        facts = controller.reconciler.last[0]
        assert rollback_possible(world.now_record, facts) is RollbackAvailable.CLIENTS_ONLY

    run(scenario())


# Rolling back


@pytest.mark.parametrize("how", ["the key is lost", "the records are deleted"])
def test_a_rollback_waits_for_nodes_without_a_record(how: str) -> None:
    """They may use the new CA, whose key would be deleted."""

    async def scenario() -> None:
        world = FaultWorld.new(kinds=CLUSTER_ONLY, servers=1, nodes=1)
        controller = await prepared(world)
        if how == "the key is lost":
            controller.stop()
            keys = ControllerKeys(bytes(32))
            world = move(world, keys)
            controller = await Controller.started(world)
            client: Any = MemoryClient(world.management, Interfere())
            await confirm(client, await read_unconfirmed(client, KEY, keys), keys, world.state.now)
        else:
            for path in [path for path in world.state.management.found if "attestednodes" in path]:
                world.management.remove(path)
        world.order(Operation.ROLLBACK)
        for _ in range(10):
            await controller.settle()
            world.wait(10)
        assert world.now_record.step is Step.NODES_RETURN
        assert "whose node has no record" in controller.condition(PROGRESSING)
        for node in world.state.nodes:
            await world.renew(node, controller)
        await go_on(world, controller, in_phase(Phase.ROLLED_BACK))

    run(scenario())


def test_a_node_that_is_off_does_not_hold_a_rollback_for_ever() -> None:
    async def scenario() -> None:
        world = world_at(Step.PREPARED)
        controller = await Controller.started(world)
        world.add_node("off")
        off = world.state.nodes[-1]
        await world.renew(off, controller)
        world.state.nodes.remove(off)
        world.order(Operation.ROLLBACK)
        for _ in range(6):
            await controller.settle()
            await world.progress(controller)
        assert world.now_record.step is Step.NODES_RETURN
        world.order(Operation.RETRY, "unreachable-nodes")
        await go_on(world, controller, in_phase(Phase.ROLLED_BACK))
        assert [one.gate for one in world.now_record.skipped] == [Gate.UNREACHABLE_NODES]

    run(scenario())


def test_a_restored_record_does_not_know_what_machines_sign_with() -> None:
    """So with split pairs all of them are replaced on the way back."""

    async def scenario() -> None:
        world, older = world_at(Step.NODES_TRUST), world_at(Step.SERVERS_TRUST)
        for path, manifest in older.state.management.found.items():
            if "/secrets/" in path or path in (RECORD, PINS):
                world.management.put(path, manifest)
        controller = await Controller.started(world)
        await controller.look()
        world.order(Operation.ROLLBACK)
        await go_on(world, controller, in_phase(Phase.ROLLED_BACK))
        assert {server.signs[0] for server in world.state.servers} == {world.authority()}
        world.wait(60)
        world.make_server()
        world.require_everybody_is_accepted()

    run(scenario())


# Orders


def test_gates_alone_do_not_wait_for_the_next_order() -> None:
    """A tenant writes them before an admission policy exists. An operator's order names none."""

    async def scenario() -> None:
        world = small()
        every = ",".join(gate.value for gate in Gate)
        world.management.edit(POLICY, {"metadata": {"annotations": {SKIP_GATES_ANNOTATION: every}}})
        controller = await Controller.started(world)
        await controller.look()
        assert SKIP_GATES_ANNOTATION not in world.management.get(POLICY)["metadata"]["annotations"]
        world.order(Operation.START)
        await controller.look()
        assert world.now_record.skipped == ()

    run(scenario())


@pytest.mark.parametrize("kind", [AuthorityKind.CLUSTER, AuthorityKind.FRONT_PROXY])
def test_a_rotation_is_not_completed_while_a_secret_is_foreign(kind: AuthorityKind) -> None:
    async def scenario() -> None:
        world = world_at(Step.PREPARED)
        controller = await Controller.started(world)
        for _ in range(3):
            await controller.settle()
            await world.progress(controller)
        world.put_secret(kind.value, pair_data(kind, 5))
        world.order(Operation.COMPLETE)
        await controller.look()
        assert world.now_record.phase is Phase.PREPARED
        assert "restore it from a backup" in controller.condition(REJECTED)

    run(scenario())


# Abandoning


def test_a_stranger_does_not_become_the_signer_by_an_abandonment() -> None:
    """The rotation's own Secrets sign until then."""

    async def scenario() -> None:
        world = world_at(Step.NODES_TRUST)
        controller = await Controller.started(world)
        world.put_secret("ca", pair_data(AuthorityKind.CLUSTER, 9))
        world.order(Operation.ABANDON)
        await controller.look()
        assert world.now_record.phase is Phase.PREPARING
        assert "holds another CA, which would sign: restore it first" in controller.condition(REJECTED)
        world.management.remove(secret_path("ca"))
        world.order(Operation.ABANDON)
        await controller.look()
        assert "does not exist: restore it first" in controller.condition(REJECTED)

    run(scenario())


@pytest.mark.parametrize("place", [Step.NODES_TRUST, Step.PREPARED])
def test_an_abandoned_rotation_is_cleared_as_documented(place: Step) -> None:
    """Every node renews first; then Machines are replaced; then the Secrets go. Nobody is refused at any moment."""

    async def scenario() -> None:
        world = world_at(place)
        before = world_at(Step.NEW_AUTHORITY)
        controller = await Controller.started(world)
        identifier = world.now_record.rotation_id
        world.order(Operation.ABANDON)
        await controller.look()
        for name in ("kubeconfig", *(kind.value for kind in world.state.kinds)):  # step 1
            world.put_secret(name, before.secret(name))
        pair = world.secret("ca")
        signing = {f"{one}.{end}": pair[f"tls.{end}"] for one in ("client", "serving") for end in ("crt", "key")}
        world.put_secret("signing", signing)
        world.workload.put(CLUSTER_INFO, before.workload.get(CLUSTER_INFO))
        if STATEMENT in world.state.workload.found:
            world.workload.remove(STATEMENT)
        world.management.edit(PINS, {"spec": before.management.get(PINS)["spec"]})
        await go_on_renewing(world, controller)  # step 2
        replace_control_plane(world)  # with split pairs
        only = bundle_of(world.authority())  # step 3
        world.put_secret("trust", {"client-ca.crt": only, "server-ca.crt": only, "link.crt": b""})
        replace_control_plane(world)
        for node in list(world.state.nodes):
            world.state.nodes.remove(node)
            world.management.remove(MACHINES_V1BETA2.object(node.name, KEY.namespace))
        world.add_node("replaced")
        world.require_everybody_is_accepted()
        for kind in world.state.kinds:  # step 4
            for role in Role:
                path = secret_path(pair_suffix(kind, identifier, role))
                if path in world.state.management.found:
                    world.management.remove(path)
        world.order(Operation.START)
        await controller.look()
        assert controller.condition(REJECTED) == ""
        assert world.now_record.rotation_id != identifier

    run(scenario())


def replace_control_plane(world: FaultWorld) -> None:
    for old in list(world.state.servers):
        world.wait(60)
        world.make_server()
        world.require_everybody_is_accepted()
        world.state.servers.remove(old)
        world.management.remove(MACHINES_V1BETA2.object(old.name, KEY.namespace))


async def go_on_renewing(world: FaultWorld, controller: Controller) -> None:
    for _ in range(3):
        world.wait(3600)
        for node in world.state.nodes:
            await world.renew(node, controller)
            assert node.waits == 0
    world.require_everybody_is_accepted()


# What a person sees


@pytest.mark.parametrize("step", [Step.PREPARED, Step.NODES_TRUST, Step.SERVERS_PRESENT])
def test_a_record_that_does_not_count_offers_no_orders(step: Step) -> None:
    async def scenario() -> None:
        world = move(world_at(step), ControllerKeys(bytes(32)))
        controller = await Controller.started(world)
        await controller.look()
        view, text = shown(world, controller)
        for order in ("rotate team-a/production complete", "rollback`", "Roll back"):
            assert order not in text
        assert "confirm" in next_for_person(view)

    run(scenario())


@pytest.mark.parametrize("cause", ["foreign", "paused", "lost"])
def test_nobody_is_told_to_complete_what_cannot_be_completed(cause: str) -> None:
    async def scenario() -> None:
        world = world_at(Step.PREPARED)
        controller = await Controller.started(world)
        await controller.settle()
        if cause == "foreign":
            world.put_secret("ca", pair_data(AuthorityKind.CLUSTER, 9))
        elif cause == "lost":
            suffix = pair_suffix(AuthorityKind.CLUSTER, world.now_record.rotation_id, Role.NEW)
            world.management.remove(secret_path(suffix))
        else:
            world.pause(True)
        await controller.look()
        view, _ = shown(world, controller)
        assert "complete" not in next_for_person(view)

    run(scenario())


class NoSecretWrites(Interfere):
    """The role lacks a verb."""

    async def __call__(self, call: Call, moment: Moment) -> None:
        if call.method == "PUT" and "/secrets/" in call.path:
            raise Forbidden("secrets is forbidden: cannot update", status=403)


@pytest.mark.parametrize("step", [Step.PUBLISH_TRUST, Step.SWITCH, Step.DROP_OLD])
def test_a_write_that_fails_for_long_is_shown(step: Step) -> None:
    async def scenario() -> None:
        world = world_at(step)
        controller = await Controller.started(world, NoSecretWrites())
        for _ in range(10):
            await controller.look()
            world.wait(3600)
        view, text = shown(world, controller)
        assert view.attention is Attention.NEEDED
        assert controller.condition(PROGRESSING).startswith(CALL_FAILED)
        assert controller.condition("RotationStalled").startswith(CALL_FAILED)
        assert "secrets is forbidden" in text
        assert "the controller goes on by itself" not in text

    run(scenario())


def test_a_record_of_a_later_version_is_not_to_be_deleted() -> None:
    async def scenario() -> None:
        world = world_at(Step.PREPARED)
        controller = await Controller.started(world)
        world.management.edit(RECORD, {"spec": {"laterField": "x"}})
        _, text = shown(world, controller)
        assert "has no rotation" not in text
        assert "Do not delete it" in text

    run(scenario())


# Confirming


def test_a_record_that_was_edited_is_not_confirmed() -> None:
    """The present key has sealed another content: that is no lost key."""
    world = world_at(Step.NODES_TRUST)
    edited = replace(world.now_record, waits=Waits(timedelta(), timedelta(), timedelta()))
    world.management.edit(RECORD, {"spec": record_spec(edited)})
    client: Any = MemoryClient(world.management, Interfere())
    with pytest.raises(CannotBeConfirmed, match="was edited"):
        run(read_unconfirmed(client, KEY, world.keys()))


def test_the_node_client_authority_stays_published_after_a_confirmation() -> None:
    """It falls out of the trust otherwise, and API servers refuse nodes that have its certificates."""

    async def scenario() -> None:
        world = world_at(Step.SERVERS_TRUST)
        controller = await Controller.started(world)
        made = new_node_client_authority("abcdefgh", like=parsed(world.authority()), now=world.state.now)
        own = Pair(reference_of(made.certificate), made.certificate_pem, made.private_key_pem)
        name = f"{KEY.name}-{NODE_CLIENT_CA}"
        cluster = controller.caches.clusters.get(KEY.namespace, KEY.name)
        assert cluster is not None
        manifest = pair_manifest(name, own, cluster, "cluster.x-k8s.io/v1beta2", world.keys())
        world.management.put(secret_path(NODE_CLIENT_CA), manifest)
        trust = world.secret("trust")
        published = trust.get("client-ca.crt", b"") + own.certificate
        world.put_secret("trust", {**trust, "client-ca.crt": published})
        controller.stop()
        keys = ControllerKeys(bytes(32))
        world = move(world, keys)
        controller = await Controller.started(world)
        client: Any = MemoryClient(world.management, Interfere())
        left_out = await read_unconfirmed(client, KEY, keys)
        own_hash = made.certificate.public_key_hash
        assert f"--node-client-authority {own_hash}" in "\n".join(what_is_confirmed(left_out))
        found = await read_unconfirmed(client, KEY, keys, node_client=frozenset({own_hash}))
        assert own_hash in "\n".join(what_is_confirmed(found))
        assert len(found.pairs) == len(left_out.pairs) + 1
        await confirm(client, found, keys, world.state.now)
        await controller.settle()
        assert made.certificate.der in certificates(world.secret("trust")["client-ca.crt"])

    run(scenario())


def test_what_is_confirmed_shows_waits_and_gates() -> None:
    keys = ControllerKeys(bytes(32))
    world = move(world_at(Step.NODES_TRUST), keys)
    record = world.now_record
    skipped = tuple(SkippedGate(gate, world.state.now) for gate in Gate)
    edited = replace(record, waits=Waits(timedelta(seconds=7), timedelta(), timedelta()), skipped=skipped)
    world.management.edit(RECORD, {"spec": record_spec(edited)})
    client: Any = MemoryClient(world.management, Interfere())
    text = "\n".join(what_is_confirmed(run(read_unconfirmed(client, KEY, keys))))
    for gate in Gate:
        assert gate.value in text
    assert "0:00:07" in text
    assert all(parsed(der).public_key_hash in text for der in certificates(world.secret("trust")["server-ca.crt"]))
