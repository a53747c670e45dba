"""Bad input and faults of a rotation: each has one clear condition or refusal, nothing half done is forgotten, and
nobody is locked out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from attestors.wire.statement.names import STATEMENT_CONFIG_MAP, STATEMENT_NAMESPACE
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.kube.errors import ApiError, Cause, Conflict, Forbidden, Gone, ServerError, Unreachable
from signer.kube.resources import CONFIG_MAPS, MACHINES_V1BETA2
from signer.model.fields import format_time
from signer.model.seal import ControllerKeys
from signer.rotation.authorities import AuthorityKind, Role, pair_suffix
from signer.rotation.bundles import bundle_of
from signer.rotation.confirmation import NothingToConfirm, confirm, read_unconfirmed
from signer.rotation.desired import LINK_LIFETIME
from signer.rotation.management import RENEWED_BEFORE_END
from signer.rotation.observer import ASKED_AGAIN
from signer.rotation.operations import Operation
from signer.rotation.phases import FORWARD, Phase, SigningPairs, Step
from signer.rotation.plan import FOREIGN_AUTHORITY, PAUSED
from signer.rotation.reconciler import IDLE_SECONDS
from signer.rotation.record import Moment as RecordMoment
from signer.rotation.rotations import Unverified, Verified
from signer.rotation.workload import CLUSTER_INFO
from tests.unit.signer.rotation.fault_world import (
    CLUSTER,
    KEY,
    KEYS,
    KUBELET_LIFETIME,
    PINS,
    POLICY,
    RECORD,
    Controller,
    FaultWorld,
    State,
    at_step,
    certificates,
    go_on,
    in_phase,
    pair_data,
    parsed,
    run,
    secret_path,
)
from tests.unit.signer.rotation.memory_api import Call, Interfere, MemoryAPI, MemoryClient, Moment

pytestmark = pytest.mark.usefixtures("parsed_once")

KINDS: Final = (AuthorityKind.CLUSTER, AuthorityKind.FRONT_PROXY)
PROGRESSING: Final = "CertificateAuthorityRotationProgressing"
REJECTED: Final = "OperationRejected"
STATEMENT: Final = CONFIG_MAPS.object(STATEMENT_CONFIG_MAP, STATEMENT_NAMESPACE)
STEPS: Final = tuple(step for step in FORWARD if step is not Step.PREPARED)
SOME: Final = (
    Step.ACCEPT,
    Step.NODES_TRUST,
    Step.SERVERS_PRESENT,
    Step.DROP_OLD,
    Step.CONTROLLER_MANAGERS_SIGN,
)
_STATES: dict[Step | Phase, State] = {}


def small(pairs: SigningPairs = SigningPairs.SPLIT) -> FaultWorld:
    """One API server and one node. With split pairs, since they have every step and every write."""
    return FaultWorld.new(kinds=KINDS, servers=1, nodes=1, signing_pairs=pairs)


async def reach() -> None:
    """Remember the world at the beginning of each step, and in the phases in which a rotation rests."""
    world = small()
    controller = await Controller.started(world)
    world.order(Operation.START)
    places: tuple[Step | Phase, ...] = (*FORWARD, Phase.COMPLETED)
    for step in places:
        done = at_step(step) if isinstance(step, Step) else in_phase(step)
        await go_on(world, controller, done)
        world.state.expected = frozenset(world.authority_certificates())
        _STATES[step] = world.backup()
        if step is Step.PREPARED:
            world.order(Operation.COMPLETE)


@pytest.fixture(scope="module", autouse=True)
def places() -> None:
    """Every step is reached once."""
    run(reach())


def world_at(place: Step | Phase) -> FaultWorld:
    """A world that has come to that step."""
    return FaultWorld(_STATES[place]).copied()


async def finish(world: FaultWorld, controller: Controller) -> None:
    """To the end of the rotation, whatever has been ordered before."""
    if world.now_record.phase not in (Phase.COMPLETING, Phase.COMPLETED):
        await go_on(world, controller, in_phase(Phase.PREPARED))
        world.order(Operation.COMPLETE)
    await go_on(world, controller, in_phase(Phase.COMPLETED))
    assert len(world.made_authorities()) == 2  # the old one, and one new


# A person takes longer than the link certificate lasts


@pytest.mark.parametrize("step", [Step.SERVERS_TRUST, Step.NODES_TRUST, Step.PREPARED])
def test_a_link_that_was_renewed_reaches_every_api_server(step: Step) -> None:
    """Otherwise they would present one that has ended, and nothing could be completed any more."""

    async def scenario() -> None:
        world = world_at(step)
        controller = await Controller.started(world)
        first = world.secret("trust")["link.crt"]
        published = world.now_record.at(RecordMoment.TRUST_WRITTEN)
        world.wait((LINK_LIFETIME - RENEWED_BEFORE_END).total_seconds() + 60)
        await controller.settle()
        second = world.secret("trust")["link.crt"]
        assert second != first
        assert world.now_record.at(RecordMoment.TRUST_WRITTEN) != published
        assert world.lagging(world.now_record) == world.state.servers
        for _ in range(3):
            await world.progress(controller)
            await controller.settle()
        assert {one.link for one in world.state.servers} == set(certificates(second))
        world.wait(2 * RENEWED_BEFORE_END.total_seconds())  # the first one has ended
        await finish(world, controller)

    run(scenario())


def test_a_rotation_is_not_completed_while_a_server_has_the_link_that_ends() -> None:
    async def scenario() -> None:
        world = world_at(Step.PREPARED)
        controller = await Controller.started(world)
        world.wait((LINK_LIFETIME - RENEWED_BEFORE_END).total_seconds() + 60)
        await controller.settle()
        world.order(Operation.COMPLETE)
        await controller.settle()
        assert "it cannot be completed now" in controller.condition(REJECTED)
        assert world.now_record.phase is Phase.PREPARED

    run(scenario())


# Errors of the APIs

ERRORS: Final[dict[str, Callable[[], ApiError]]] = {
    "403": lambda: Forbidden("no", status=403),
    "409": lambda: Conflict("stale", status=409),
    "410": lambda: Gone("expired", status=410),
    "500": lambda: ServerError("broken", status=500),
    "timeout": lambda: Unreachable("timed out", cause=Cause.TIMEOUT),
}


class Failing(Interfere):
    """The first attempt of each distinct call fails, and its repetition works."""

    def __init__(self, error: Callable[[], ApiError], moment: Moment) -> None:
        self.error, self.moment = error, moment
        self.failed: set[tuple[Call, str]] = set()
        self.world: FaultWorld | None = None

    async def __call__(self, call: Call, moment: Moment) -> None:
        assert self.world is not None
        record = self.world.record()
        at = call, record.step.value if record else ""
        if moment is self.moment and at not in self.failed:
            self.failed.add(at)
            raise self.error()


class EditsPinsFirst(Interfere):
    """Another client changes a MachinePool's KubeadmConfig between the controller's read and its write."""

    def __init__(self, world: FaultWorld) -> None:
        self.world, self.edits = world, 0

    async def __call__(self, call: Call, moment: Moment) -> None:
        if moment is Moment.BEFORE and (call.method, call.path) == ("PATCH", PINS) and not self.edits:
            self.edits += 1
            self.world.management.edit(PINS, {"metadata": {"labels": {"edited": "meanwhile"}}})


def test_pins_are_written_only_to_the_version_that_was_read() -> None:
    async def scenario() -> None:
        world = world_at(Step.PUBLISH_TRUST)
        interfere = EditsPinsFirst(world)
        controller = await Controller.started(world, interfere)
        await finish(world, controller)
        assert interfere.edits == 1
        assert any(isinstance(error, Conflict) for error in controller.errors)

    run(scenario())


QUICK: Final = ("500", "timeout")


@pytest.mark.parametrize(
    ("error", "moment"),
    [
        *(pytest.param(one, Moment.BEFORE, marks=[] if one in QUICK else pytest.mark.slow) for one in ERRORS),
        ("timeout", Moment.AFTER),
    ],
)
@pytest.mark.parametrize("pairs", SigningPairs)
def test_each_call_fails_once_in_each_step(pairs: SigningPairs, error: str, moment: Moment) -> None:
    """Reads and writes, of both clusters, before their effect and after it."""

    async def scenario() -> None:
        world = small(pairs)
        failing = Failing(ERRORS[error], moment)
        failing.world = world
        controller = await Controller.started(world, failing)
        world.order(Operation.START)
        await go_on(world, controller, in_phase(Phase.PREPARED), rounds=300)
        world.order(Operation.COMPLETE)
        await go_on(world, controller, in_phase(Phase.COMPLETED), rounds=300)
        assert set(world.new_authorities().values()) == {1}
        assert len(failing.failed) > 100

    run(scenario())


class MayNotCreateRoles(Interfere):
    """A kubeconfig that is no administrator's: deploy/rbac/workload-rotation.yaml does not grant it."""

    async def __call__(self, call: Call, moment: Moment) -> None:
        if call.method == "POST" and "/rbac.authorization.k8s.io/" in call.path:
            raise Forbidden("no", status=403)


def test_nodes_are_told_although_the_controller_may_not_create_roles(caplog: pytest.LogCaptureFixture) -> None:
    """Its grants came with a Role of that name, or a person has to make one: the log says so, once."""

    async def scenario() -> None:
        world = small()
        controller = await Controller.started(world, MayNotCreateRoles())
        world.order(Operation.START)
        await go_on(world, controller, in_phase(Phase.PREPARED))
        assert STATEMENT in world.state.workload.found

    run(scenario())
    assert caplog.text.count("deploy/rbac/workload-rotation.yaml") == 1


class Down(Interfere):
    """Nothing answers while ``down``."""

    down = False

    async def __call__(self, call: Call, moment: Moment) -> None:
        if self.down:
            raise Unreachable("no route", cause=Cause.NETWORK)


@pytest.mark.parametrize("step", SOME, ids=lambda one: one.value)
@pytest.mark.parametrize("which", ["management", "workload"])
def test_a_cluster_is_unreachable_in_the_middle(which: str, step: Step) -> None:
    """The record does not change but by what needs no look at API servers, and the rotation goes on afterwards."""

    async def scenario() -> None:
        world = world_at(step)
        down = Down()
        controller = await Controller.started(world)
        (controller.client if which == "management" else controller.kube).interfere = down
        down.down, world.state.kube_down = True, which == "workload"
        before = world.now_record
        for _ in range(30):
            await controller.look()
            world.require_everybody_is_accepted()
        if which == "management":
            assert world.now_record == before
        elif step not in (Step.NEW_AUTHORITY, Step.ACCEPT, Step.SIGN_CLIENTS, Step.NODES_TRUST, Step.FORGET):
            assert world.now_record.step is before.step
        down.down = world.state.kube_down = False
        await finish(world, controller)

    run(scenario())


# Orders


@pytest.mark.parametrize(
    ("place", "operation", "says"),
    [
        (Step.NODES_TRUST, "start-ca-rotation", "complete it or roll it back before"),
        (Step.NODES_TRUST, "complete-ca-rotation", "once it is Prepared"),
        (Step.SWITCH, "complete-ca-rotation", "once it is Prepared"),
        (Step.DROP_OLD, "rollback-ca-rotation", "nothing can be rolled back"),
        (Phase.COMPLETED, "rollback-ca-rotation", "nothing can be rolled back"),
        (Phase.COMPLETED, "retry-ca-rotation", "nothing to retry"),
        (Step.NODES_TRUST, "rotate-everything", "is no operation"),
        (Step.NODES_TRUST, "\n" * 9999, "is no operation"),
    ],
)
def test_an_order_that_is_not_possible(place: Step | Phase, operation: str, says: str) -> None:
    """The annotation goes, the condition says why, and nothing else changes."""

    async def scenario() -> None:
        world = world_at(place)
        controller = await Controller.started(world)
        before = world.now_record
        world.order(operation)
        await controller.look()
        assert world.now_record == before
        assert not world.has_order()
        assert says in controller.condition(REJECTED)
        assert [kind for kind, reason, _ in controller.told if reason == REJECTED] == ["Warning"]

    run(scenario())


def test_an_unknown_gate_is_rejected() -> None:
    async def scenario() -> None:
        world = world_at(Step.PREPARED)
        controller = await Controller.started(world)
        world.order(Operation.COMPLETE, "everything")
        await controller.look()
        assert world.now_record.phase is Phase.PREPARED
        assert "no gate" in controller.condition(REJECTED)

    run(scenario())


class CrashAfterRecord(Interfere):
    """The process ends between the record's write and the removal of the annotation."""

    async def __call__(self, call: Call, moment: Moment) -> None:
        if call.method == "PATCH" and call.path == POLICY and moment is Moment.BEFORE:
            raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("place", "operation"),
    [
        (None, Operation.START),
        (Step.PREPARED, Operation.COMPLETE),
        (Step.NODES_TRUST, Operation.ROLLBACK),
    ],
)
@pytest.mark.parametrize("status_written", [False, True])
def test_the_same_order_is_seen_again(place: Step | None, operation: Operation, status_written: bool) -> None:
    """After a crash between the record's write and the removal of the annotation: it is not carried out twice, and not
    reported as rejected, also if the policy has got another resourceVersion by a write of its status.
    """

    async def scenario() -> None:
        world = small() if place is None else world_at(place)
        controller = await Controller.started(world, CrashAfterRecord())
        world.order(operation)
        with pytest.raises(KeyboardInterrupt):
            await controller.look()
        controller.stop()
        if status_written:
            world.management.edit(POLICY, {"status": {"conditions": []}})
        carried_out = world.now_record
        again = await Controller.started(world)
        await again.look()
        assert world.now_record == carried_out
        assert not world.has_order()
        assert again.condition(REJECTED) == ""

    run(scenario())


def test_two_orders_in_a_row() -> None:
    """The second takes the place of the first before it is seen, or after the first was carried out."""

    async def scenario() -> None:
        world = small()
        controller = await Controller.started(world)
        world.order(Operation.START)
        await controller.look()
        world.order(Operation.ROLLBACK)
        await go_on(world, controller, in_phase(Phase.ROLLED_BACK))
        world.order(Operation.START)
        await go_on(world, controller, in_phase(Phase.PREPARED))
        assert world.new_authorities()["ca"] >= 1

    run(scenario())


def test_an_order_while_paused() -> None:
    async def scenario() -> None:
        world = small()
        controller = await Controller.started(world)
        world.pause(True)
        world.order(Operation.START)
        await controller.look()
        assert world.record() is None
        assert "the Cluster is paused" in controller.condition(REJECTED)

    run(scenario())


# Secrets that somebody changed


def foreign() -> Any:
    """The Secret of another CA with the same name."""
    return pair_data(AuthorityKind.CLUSTER, 1)


@pytest.mark.parametrize("step", STEPS[:-1], ids=lambda one: one.value)
def test_somebody_edits_the_cluster_ca(step: Step) -> None:
    """The rotation holds by name, no decision signs by the foreign CA, and it goes on once the CA is restored."""

    async def scenario() -> None:
        world = world_at(step)
        controller = await Controller.started(world)
        await controller.settle()
        before, kept = world.now_record, world.secret("ca")
        world.put_secret("ca", foreign())
        for _ in range(5):
            await controller.look()
            for node in world.state.nodes:
                await world.renew(node, controller)
        assert world.now_record.step is before.step
        assert controller.condition(PROGRESSING).startswith(FOREIGN_AUTHORITY)
        assert controller.condition("RotationStalled").startswith(FOREIGN_AUTHORITY)
        world.put_secret("ca", kept)
        await finish(world, controller)

    run(scenario())


@pytest.mark.parametrize("place", [Step.FORGET, Phase.COMPLETED])
def test_somebody_edits_the_cluster_ca_at_the_end(place: Step | Phase) -> None:
    """A node that names the CA of the rotation waits, and is not denied for good."""

    async def scenario() -> None:
        world = world_at(place)
        controller = await Controller.started(world)
        await controller.settle()
        kept, node = world.secret("ca"), world.state.nodes[0]
        world.put_secret("ca", foreign())
        await world.renew(node, controller)
        assert node.waits == 1
        world.put_secret("ca", kept)
        world.wait(60)
        await world.renew(node, controller)
        assert node.waits == 0

    run(scenario())


@pytest.mark.parametrize("step", SOME[:3], ids=lambda one: one.value)
@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("how", ["deleted", "replaced", "key removed"])
def test_somebody_changes_a_kept_pair(how: str, role: Role, step: Step) -> None:
    """No other CA is made in its place, no decision signs by a foreign one, and the rotation goes on once the Secret is
    restored.
    """

    async def scenario() -> None:
        world = world_at(step)
        controller = await Controller.started(world)
        await controller.settle()
        suffix = pair_suffix(AuthorityKind.CLUSTER, world.now_record.rotation_id, role)
        path = secret_path(suffix)
        kept = world.management.get(path)
        if how == "deleted":
            world.management.remove(path)
        elif how == "replaced":
            world.put_secret(suffix, foreign())
        else:
            world.management.edit(path, {"data": {"tls.key": None}})
        for _ in range(5):
            await controller.look()
            for node in world.state.nodes:
                await world.renew(node, controller)
            world.require_everybody_is_accepted()
        assert len(world.made_authorities()) == 2
        world.management.put(path, kept)
        await finish(world, controller)

    run(scenario())


# A person takes over


def test_a_rotation_that_leads_nowhere_is_abandoned() -> None:
    """The key of the new CA is lost before the switch. Nothing is written any more, both CAs stay accepted as far as
    their Secrets are there, and another rotation starts once nothing uses the lost CA.
    """

    async def scenario() -> None:
        world = world_at(Step.NODES_TRUST)
        controller = await Controller.started(world)
        await controller.settle()
        identifier = world.now_record.rotation_id
        world.management.remove(secret_path(pair_suffix(AuthorityKind.CLUSTER, identifier, Role.NEW)))
        await controller.look()
        assert controller.condition(PROGRESSING).startswith(FOREIGN_AUTHORITY)
        world.order(Operation.ABANDON)
        await controller.look()
        assert world.now_record.phase is Phase.ABANDONED
        assert not world.has_order()
        before = world.state.management.version
        for _ in range(3):
            assert await controller.look() == IDLE_SECONDS
        assert world.state.management.version == before
        assert controller.condition(PROGRESSING).startswith("Abandoned")
        signs = await controller.signers()
        assert signs.client.certificate.der == signs.serving.certificate.der == world.authority()

        async def is_rejected(*because: str) -> None:
            world.order(Operation.START)
            await controller.look()
            assert world.now_record.phase.is_over
            for one in ("was abandoned", *because):
                assert one in controller.condition(REJECTED)

        await is_rejected("Secret <cluster>-signing holds another pair")
        pair = world.secret("ca")
        both = {f"{one}.{end}": pair[f"tls.{end}"] for one in ("client", "serving") for end in ("crt", "key")}
        world.put_secret("signing", both)
        await is_rejected("Secret <cluster>-kubeconfig is of another CA")
        former = world_at(Step.NEW_AUTHORITY)
        world.put_secret("kubeconfig", former.secret("kubeconfig"))
        await is_rejected("ConfigMap kube-public/cluster-info")
        world.workload.put(CLUSTER_INFO, former.workload.get(CLUSTER_INFO))
        await is_rejected("KubeadmConfigs of MachinePools pin another CA")
        world.management.edit(PINS, {"spec": former.management.get(PINS)["spec"]})
        for kind in KINDS:
            if len(certificates(world.secret(kind.value)["tls.crt"])) > 1:
                await is_rejected(f"Secret <cluster>-{kind.value} holds more than")
                world.put_secret(kind.value, former.secret(kind.value))
        (node,) = world.state.nodes
        await is_rejected("these nodes have a certificate of another CA", node.name)  # the lost CA has signed it
        await world.renew(node, controller)
        assert node.waits, "it names the lost CA, so its Machine is replaced"
        world.state.nodes.remove(node)
        world.management.remove(MACHINES_V1BETA2.object(node.name, KEY.namespace))
        world.add_node("replaced")
        await is_rejected("Secret <cluster>-trust does not hold the CA of Secret <cluster>-ca alone")
        only = bundle_of(world.authority())
        world.put_secret("trust", {"client-ca.crt": only, "server-ca.crt": only, "link.crt": b""})
        for kind in KINDS:
            for role in Role:
                path = secret_path(pair_suffix(kind, identifier, role))
                if path in world.state.management.found:
                    await is_rejected("<rotationID> still exist")
                    world.management.remove(path)
        world.order(Operation.START)
        await controller.look()
        started = world.now_record
        assert started.phase is Phase.PREPARING
        assert started.rotation_id != identifier

    run(scenario())


@pytest.mark.parametrize("step", STEPS, ids=lambda one: one.value)
def test_after_an_abandonment_nobody_is_locked_out(step: Step) -> None:
    """Everything is as it was, nodes get certificates by what Secret ``<cluster>-ca`` holds, and name either CA."""

    async def scenario() -> None:
        world = world_at(step)
        controller = await Controller.started(world)
        world.order(Operation.ABANDON)
        await controller.look()
        assert world.now_record.phase is Phase.ABANDONED
        world.wait(120)
        for node in world.state.nodes:
            await world.renew(node, controller)
            assert node.waits == 0
        world.require_everybody_is_accepted()

    run(scenario())


# Objects that come and go


@pytest.mark.parametrize("step", STEPS, ids=lambda one: one.value)
def test_the_record_is_deleted(step: Step) -> None:
    """Secret ``<cluster>-ca`` decides who signs, as without a rotation, and nothing more is written."""

    async def scenario() -> None:
        world = world_at(step)
        controller = await Controller.started(world)
        world.management.remove(RECORD)
        before = world.state.management.version
        for _ in range(5):
            await controller.look()
        assert world.state.management.version == before
        signs = await controller.signers()
        assert signs.client.certificate.der == signs.serving.certificate.der == world.authority()
        for node in world.state.nodes:  # one that names the other CA waits
            await world.renew(node, controller)
        assert world.state.management.found.get(RECORD) is None

    run(scenario())


@pytest.mark.parametrize("step", SOME, ids=lambda one: one.value)
def test_the_policy_is_deleted_and_made_again(step: Step) -> None:
    """Signing goes on by the record, nothing is written meanwhile, and the rotation goes on with the next policy."""

    async def scenario() -> None:
        world = world_at(step)
        controller = await Controller.started(world)
        policy = world.management.get(POLICY)
        world.management.remove(POLICY)
        before = world.now_record
        for _ in range(3):
            assert await controller.look() == IDLE_SECONDS
            for node in world.state.nodes:
                await world.renew(node, controller)
        assert world.now_record == before
        assert not controller.errors
        del policy["metadata"]["uid"]
        world.management.put(POLICY, policy)
        await finish(world, controller)

    run(scenario())


@pytest.mark.parametrize("step", STEPS, ids=lambda one: one.value)
def test_the_cluster_is_paused_and_unpaused(step: Step) -> None:
    """Nothing is written, the condition says so, and signing goes on by the record."""

    async def scenario() -> None:
        world = world_at(step)
        controller = await Controller.started(world)
        world.pause(True)
        before = world.now_record
        for _ in range(3):
            await controller.look()
            for node in world.state.nodes:
                await world.renew(node, controller)
            world.wait(60)
        assert world.now_record == before
        assert controller.condition(PROGRESSING).startswith(PAUSED)
        assert not [call for call in (*controller.client.calls, *controller.kube.calls) if call.writes]
        world.pause(False)
        await finish(world, controller)

    run(scenario())


def test_the_cluster_ca_is_about_to_end() -> None:
    """It ends while the rotation waits for a person: nothing is forgotten, and no expired CA signs."""

    async def scenario() -> None:
        world = world_at(Step.PREPARED)
        controller = await Controller.started(world)
        world.wait((parsed(world.authority()).not_after - world.state.now).total_seconds() + 60)
        for _ in range(3):
            await controller.look()
        assert controller.condition("AuthorityTrusted") != ""
        assert world.now_record.phase is Phase.PREPARED
        world.order(Operation.COMPLETE)
        await controller.look()
        assert world.now_record.phase is Phase.PREPARED
        assert "cannot be completed now" in controller.condition(REJECTED)
        with pytest.raises(AuthorityUnavailable):
            await controller.signers()

    run(scenario())


def test_the_cluster_is_deleted() -> None:
    """Nothing is written any more: the Secrets go with their owner."""

    async def scenario() -> None:
        world = world_at(Step.SWITCH)
        controller = await Controller.started(world)
        world.management.edit(CLUSTER, {"metadata": {"deletionTimestamp": format_time(world.state.now)}})
        for _ in range(3):
            assert await controller.look() > 0
        world.management.remove(CLUSTER)
        assert await controller.look() > 0
        assert not [call for call in (*controller.client.calls, *controller.kube.calls) if call.writes]

    run(scenario())


# A leaked CA


def test_in_an_emergency_no_wait_is_kept_and_each_skip_is_recorded() -> None:
    """From Prepared to the end within an hour instead of 24: what is proven is proven all the same."""

    async def scenario() -> None:
        world = world_at(Step.PREPARED)
        controller = await Controller.started(world)
        began = world.state.now
        world.order(Operation.COMPLETE, "overlap", "trust-age", "machines", "unreachable-nodes")
        for _ in range(200):
            if world.now_record.phase is Phase.COMPLETED:
                break
            if await controller.look():
                world.roll_one()
                for node in world.state.nodes:
                    await world.renew(node, controller)
                world.wait(70)
            world.require_everybody_is_accepted()
        assert world.now_record.phase is Phase.COMPLETED
        assert world.state.now - began < timedelta(hours=1)
        assert {one.gate.value for one in world.now_record.skipped} == {
            "overlap",
            "trust-age",
            "machines",
            "unreachable-nodes",
        }

    run(scenario())


# The controller key


@pytest.mark.parametrize("step", SOME, ids=lambda one: one.value)
def test_the_controller_key_is_rotated(step: Step) -> None:
    """Record and pairs of the previous key stay valid."""

    async def scenario() -> None:
        world = world_at(step)
        controller = await Controller.started(world)
        world.set_keys(ControllerKeys(bytes(32), KEYS.current))
        await controller.read_key()
        await finish(world, controller)

    run(scenario())


@pytest.mark.parametrize(
    "place", [*(step for step in FORWARD if step is not Step.NEW_AUTHORITY), Phase.COMPLETED], ids=lambda one: one.value
)
def test_the_controller_key_is_rotated_twice(place: Step | Phase) -> None:
    """What nothing changes for months, as a record in Prepared and the pairs, is sealed anew in between."""

    async def scenario() -> None:
        world = world_at(place)
        controller = await Controller.started(world)
        before = world.now_record.rotation_id
        for number in range(2):
            world.set_keys(ControllerKeys(bytes([number]) * 32, world.keys().current))
            await controller.read_key()
            await controller.settle()
            for node in world.state.nodes:  # its record is sealed anew when it renews
                world.wait(KUBELET_LIFETIME.total_seconds())
                await world.renew(node, controller)
        await controller.settle()
        if place is not Phase.COMPLETED:
            await finish(world, controller)
        assert world.now_record.rotation_id == before
        world.order(Operation.START)
        await go_on(world, controller, in_phase(Phase.PREPARING))

    run(scenario())


def test_nothing_is_sealed_anew_while_the_cluster_is_paused() -> None:
    """Between ``clusterctl move``'s steps, an object must not change."""

    async def scenario() -> None:
        world = world_at(Step.PREPARED)
        controller = await Controller.started(world)
        world.pause(True)
        world.set_keys(ControllerKeys(bytes(32), KEYS.current))
        await controller.read_key()
        writes = world.state.management.version
        await controller.settle()
        assert world.state.management.version == writes
        world.pause(False)
        await controller.settle()
        assert world.state.management.version > writes

    run(scenario())


def move(world: FaultWorld, keys: ControllerKeys) -> FaultWorld:
    """``clusterctl move``: every object is created again in another management cluster, and status is dropped."""
    other = FaultWorld(world.backup())
    objects = other.state.management
    moved, objects.found = objects.found, {}
    uids: dict[str, str] = {}
    other.management = MemoryAPI(objects)
    for path, manifest in moved.items():
        metadata = dict(manifest["metadata"])
        before = metadata.pop("uid")
        for name in ("resourceVersion", "creationTimestamp"):
            metadata.pop(name)
        kept = {name: value for name, value in manifest.items() if name != "status" or "/machines/" in path}
        made = other.management.put(path, {**kept, "metadata": metadata})
        uids[before] = made["metadata"]["uid"]
    for path, manifest in list(objects.found.items()):
        owners = manifest["metadata"].get("ownerReferences") or []
        again = [{**one, "uid": uids.get(one.get("uid", ""), "")} for one in owners]
        if again:
            other.management.edit(path, {"metadata": {"ownerReferences": again}})
    other.set_keys(keys)
    return other


@pytest.mark.parametrize("step", STEPS, ids=lambda one: one.value)
def test_the_cluster_is_moved(step: Step) -> None:
    """T14: to a management cluster whose controller has the same key: the rotation goes on."""

    async def scenario() -> None:
        before = world_at(step)
        old = await Controller.started(before)
        before.pause(True)
        await old.look()
        world = move(before, KEYS)
        controller = await Controller.started(world)
        assert controller.condition(PROGRESSING).partition(":")[0] in (PAUSED, step.value)
        world.pause(False)
        await finish(world, controller)
        assert world.management.get(RECORD)["metadata"]["ownerReferences"] == [
            {
                "apiVersion": "cluster.x-k8s.io/v1beta2",
                "kind": "Cluster",
                "name": KEY.name,
                "uid": world.management.get(CLUSTER)["metadata"]["uid"],
            }
        ]

    run(scenario())


@pytest.mark.parametrize("step", SOME, ids=lambda one: one.value)
def test_the_cluster_is_moved_to_another_key(step: Step) -> None:
    """Nothing of the rotation counts, nothing is written, and condition and refusal say what to do. It goes on once the
    former controller's key is there.
    """

    async def scenario() -> None:
        world = move(world_at(step), ControllerKeys(bytes(32)))
        controller = await Controller.started(world)
        before = world.now_record
        for operation in (None, Operation.START, Operation.ROLLBACK):
            if operation is not None:
                world.order(operation)
            await controller.look()
            assert isinstance(controller.rotations.of(KEY), Unverified)
            assert world.now_record == before
            assert controller.condition(PROGRESSING).startswith("Unverified")
        assert "as previous" in controller.condition(PROGRESSING)
        assert "as previous" in controller.condition(REJECTED)
        assert not [call for call in controller.client.calls if call.method in ("PUT", "POST")]
        signs = await controller.signers()
        assert signs.client.certificate.der == world.authority()
        kept = world.backup()
        for node in world.state.nodes:  # one that names the other CA waits
            await world.renew(node, controller)
        world = FaultWorld(kept)
        controller = await Controller.started(world)
        world.set_keys(ControllerKeys(bytes(32), KEYS.current))  # the way on
        await controller.read_key()
        await finish(world, controller)

    run(scenario())


@pytest.mark.parametrize("step", SOME, ids=lambda one: one.value)
@pytest.mark.parametrize("writes", [0, 1, 99])
def test_a_person_confirms_a_rotation_whose_key_is_lost(step: Step, writes: int) -> None:
    """Also after an end between its writes. It then goes on under the present key."""

    async def scenario() -> None:
        keys = ControllerKeys(bytes(32))
        world = move(world_at(step), keys)
        controller = await Controller.started(world)
        client: Any = MemoryClient(world.management, EndsAfter(writes))
        before = world.now_record
        found = await read_unconfirmed(client, KEY, keys)
        assert (found.record, len(found.pairs)) == (before, len(_kept_secrets(world)))
        assert world.authority() == certificates(world.secret("ca")["tls.crt"])[0]
        if writes < 99:
            with pytest.raises(KeyboardInterrupt):
                await confirm(client, found, keys, world.state.now)
            assert isinstance(controller.rotations.of(KEY), Unverified)
            client = MemoryClient(world.management, Interfere())
            again = await read_unconfirmed(client, KEY, keys)
            assert len(again.pairs) == max(len(found.pairs) - writes, 0)
            found = again
        await confirm(client, found, keys, world.state.now)
        assert isinstance(controller.rotations.of(KEY), Verified)
        assert world.now_record == replace(before, sequence=before.sequence + 1)
        with pytest.raises(NothingToConfirm):
            await read_unconfirmed(client, KEY, keys)
        await finish(world, controller)

    run(scenario())


class EndsAfter(Interfere):
    """The process ends before its next write."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    async def __call__(self, call: Call, moment: Moment) -> None:
        if call.method == "PUT" and moment is Moment.BEFORE:
            self.left -= 1
            if self.left < 0:
                raise KeyboardInterrupt


def _kept_secrets(world: FaultWorld) -> list[str]:
    identifier = world.now_record.rotation_id
    return [path for path in world.state.management.found if "/secrets/" in path and identifier in path]


# Restored state


RESTORES: Final = (
    (Step.SIGN_CLIENTS, Step.SERVERS_TRUST),
    (Step.NODES_TRUST, Step.ACCEPT),
    (Step.SWITCH, Step.NODES_TRUST),
    (Step.SERVERS_PRESENT, Step.NODES_TRUST),
    (Step.SIGN_SERVING, Step.SWITCH),
    (Step.DROP_OLD, Step.SIGN_CLIENTS),
    (Step.DROP_OLD, Step.CONTROLLER_MANAGERS_SIGN),
    (Step.NODES_TRUST, Step.SIGN_CLIENTS),
)


@pytest.mark.parametrize(("now", "restored"), RESTORES)
def test_the_management_cluster_is_restored(now: Step, restored: Step) -> None:
    """An older record with the older Secrets, while the machines are where they were: every write that a member would
    suffer from is held, no CA is made anew, and the rotation comes to its end.
    """

    async def scenario() -> None:
        world, older = world_at(now), world_at(restored)
        for path, manifest in older.state.management.found.items():
            if "/secrets/" in path or path in (RECORD, PINS):
                world.management.put(path, manifest)
        controller = await Controller.started(world)
        await controller.look()
        further = now.is_at_least(Step.SIGN_SERVING) and not restored.is_at_least(Step.SWITCH)
        assert bool(controller.condition("RotationRecordOutdated")) == further
        await go_on(world, controller, in_phase(Phase.PREPARED, Phase.COMPLETED))
        await finish(world, controller)
        assert not controller.condition("RotationRecordOutdated")

    run(scenario())


@pytest.mark.parametrize(
    ("now", "former"),
    [
        (Step.DROP_OLD, Step.ACCEPT),
        (Step.DROP_OLD, Step.NODES_TRUST),
        (Step.SIGN_SERVING, Step.ACCEPT),
        (Step.NODES_TRUST, Step.ACCEPT),
    ],
)
def test_somebody_puts_an_older_record_back(now: Step, former: Step) -> None:
    """Its seal is valid, and the old CA would sign for nodes: API servers may refuse that by now."""

    async def scenario() -> None:
        world = world_at(now)
        controller = await Controller.started(world)
        await controller.settle()
        for _ in range(3):  # API servers may drop the old CA
            await world.progress(controller)
        kept = world.state.management.found[RECORD]
        older = world_at(former).state.management.found[RECORD]
        world.management.put(RECORD, {**older, "metadata": kept["metadata"]})
        secrets = {path: one for path, one in world.state.management.found.items() if "/secrets/" in path}
        for _ in range(3):
            await controller.look()
            for node in world.state.nodes:
                node.renewed -= KUBELET_LIFETIME
                await world.renew(node, controller)
            world.require_everybody_is_accepted()
        found = {path: one for path, one in world.state.management.found.items() if "/secrets/" in path}
        assert found == secrets, "nothing of the older record is carried out"
        assert "is older than one that this controller has seen" in controller.condition(PROGRESSING)
        world.order(Operation.ROLLBACK)
        await controller.look()
        assert "is older than" in controller.condition(REJECTED)
        world.management.put(RECORD, kept)
        await finish(world, controller)

    run(scenario())


def test_no_canary_while_the_cluster_is_paused() -> None:
    """Nothing is written then, in either cluster: PlayedLeader refuses."""

    async def scenario() -> None:
        world = world_at(Step.CONTROLLER_MANAGERS_SIGN)
        controller = await Controller.started(world)
        await controller.settle()
        while world.lagging(world.now_record):
            world.roll_one()
        world.pause(True)
        for _ in range(3):
            await controller.look()
        assert world.now_record.step is Step.CONTROLLER_MANAGERS_SIGN
        world.pause(False)
        await finish(world, controller)

    run(scenario())


def test_an_api_server_that_misses_the_service_account_key_holds_the_rotation() -> None:
    """Its Machine is new, and got another file: from a stale cache, or by hand. No server signs by the new key."""

    async def scenario() -> None:
        kind = AuthorityKind.SERVICE_ACCOUNT
        world = FaultWorld.new(kinds=(AuthorityKind.CLUSTER, kind), servers=2, nodes=1)
        controller = await Controller.started(world)
        world.order(Operation.START)
        await go_on(world, controller, in_phase(Phase.PREPARED))
        new = world.now_record.authority(kind).made.public_key_hash
        server = world.state.servers[0]
        kept, server.keys = server.keys, tuple(one for one in server.keys if one != new)
        world.order(Operation.COMPLETE)
        for _ in range(3):
            await controller.look()
        assert world.now_record.phase is Phase.PREPARED
        assert server.name in controller.condition(REJECTED)
        assert "/openid/v1/jwks" in controller.condition(REJECTED)
        assert server.name in controller.condition("ServiceAccountKeyPublished")
        assert world.service_account_keys()[0] != new
        server.keys = kept
        world.order(Operation.COMPLETE)
        await go_on(world, controller, at_step(Step.SWITCH))
        server.keys = tuple(one for one in kept if one != new)
        await controller.settle()
        assert controller.condition(PROGRESSING).startswith("WriteWouldBeUnsafe: I2")
        assert world.service_account_keys()[0] != new
        server.keys = kept
        await go_on(world, controller, in_phase(Phase.COMPLETED))
        assert world.service_account_keys()[0] == new

    run(scenario())


# Canaries are certificates


async def minutes_pass(world: FaultWorld, controller: Controller, minutes: int = 60) -> int:
    """A pass each minute; returns how often the API servers were asked."""
    before = controller.servers.asked
    for _ in range(minutes):
        world.wait(60)
        assert await controller.look() > 0
    return controller.servers.asked - before


@pytest.mark.parametrize("step", [Step.PREPARED, Step.SIGN_SERVING], ids=lambda one: one.value)
def test_few_canaries_while_nothing_but_a_person_or_the_clock_is_waited_for(step: Step) -> None:
    async def scenario() -> None:
        world = world_at(step)
        controller = await Controller.started(world)
        await controller.settle()
        assert 1 <= await minutes_pass(world, controller) <= 60 / (ASKED_AGAIN.total_seconds() / 60) + 1

    run(scenario())


@pytest.mark.parametrize("step", [Step.SERVERS_TRUST, Step.SERVERS_PRESENT, Step.DROP_OLD], ids=lambda one: one.value)
def test_every_pass_asks_where_api_servers_are_waited_for(step: Step) -> None:
    async def scenario() -> None:
        world = world_at(step)
        controller = await Controller.started(world)
        await controller.settle()
        assert await minutes_pass(world, controller, 10) == 10

    run(scenario())


def test_an_order_asks_anew() -> None:
    """What was accepted minutes ago completes nothing."""

    async def scenario() -> None:
        world = world_at(Step.PREPARED)
        controller = await Controller.started(world)
        world.wait(3600)
        await controller.settle()
        (server,) = world.state.servers
        kept, server.client_trust = server.client_trust, server.client_trust[:1]
        world.order(Operation.COMPLETE)
        await controller.look()
        assert "refuse client certificates of the new CA: " + server.name in controller.condition(REJECTED)
        assert world.now_record.step is Step.PREPARED
        server.client_trust = kept
        world.order(Operation.COMPLETE)
        await go_on(world, controller, in_phase(Phase.COMPLETED))

    run(scenario())


def test_a_write_asks_anew() -> None:
    """No invariant is asserted by earlier answers."""

    async def scenario() -> None:
        world = world_at(Step.PREPARED)
        controller = await Controller.started(world)
        await controller.settle()
        trust, before = world.secret("trust"), controller.servers.asked
        world.put_secret("trust", {**trust, "server-ca.crt": world.secret("ca")["tls.crt"]})
        world.wait(1)
        await controller.look()
        assert controller.servers.asked == before + 1
        assert world.secret("trust")["server-ca.crt"] == trust["server-ca.crt"]

    run(scenario())


def test_another_machine_is_asked_at_once() -> None:
    async def scenario() -> None:
        world = world_at(Step.PREPARED)
        controller = await Controller.started(world)
        await controller.settle()
        before = controller.servers.asked
        world.wait(1)
        world.make_server()
        world.state.servers[-1].client_trust = world.state.servers[-1].client_trust[:1]
        await controller.look()
        assert controller.servers.asked == before + 1
        assert world.state.servers[-1].name in controller.condition(PROGRESSING)
        assert await minutes_pass(world, controller, 5) == 5, "one that refuses the new CA is asked at every pass"

    run(scenario())


def test_the_controller_connects_anew_with_each_kubeconfig_that_it_writes(caplog: pytest.LogCaptureFixture) -> None:
    """With the former one it refuses API servers of the new CA, until its watch has failed often."""

    async def scenario() -> None:
        world = small()
        controller = await Controller.started(world)
        world.order(Operation.START)
        await go_on(world, controller, in_phase(Phase.PREPARED))
        assert controller.reconnected == [world.secret("kubeconfig")["value"]]
        world.order(Operation.COMPLETE)
        await go_on(world, controller, in_phase(Phase.COMPLETED))
        assert len(controller.reconnected) == len(set(controller.reconnected)) == 3, "published, switched, dropped"
        assert controller.reconnected[-1] == world.secret("kubeconfig")["value"]

    run(scenario())
    assert "nodes are not told" not in caplog.text
