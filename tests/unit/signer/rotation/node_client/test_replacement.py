"""The node-client authority is replaced on an order, over the model of a cluster that rotations are tested with."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, cast

import pytest

from attestors.wire import statement
from attestors.wire.statement import ClientRenewal
from attestors.wire.statement.names import RENEWAL_KEY, STATEMENT_KEY
from signer.controller.node_client import NodeClientService
from signer.controller.telemetry.metrics_collector import NODE_CLIENT_FORMER_NODES, NODE_CLIENT_NODES, MetricFamily
from signer.kube.errors import Cause, Unreachable
from signer.kube.resources import CONFIG_MAPS
from signer.model.seal import ControllerKeys
from signer.rotation.bundles import bundle_of
from signer.rotation.facts import Absent
from signer.rotation.node_client.former import FORMER_SUFFIX, Retired, Retiring, read_former
from signer.rotation.operations import Operation
from signer.rotation.phases import Phase
from signer.rotation.workload import AUTHENTICATION, CLIENT_CA_FIELD
from tests.unit.signer.rotation.fault_world import (
    KEY,
    FaultWorld,
    certificates,
    go_on,
    in_phase,
    parsed,
    run,
    secret_path,
)
from tests.unit.signer.rotation.memory_api import Call, Interfere, Moment
from tests.unit.signer.rotation.node_client.test_reconciler import (
    OWN,
    Process,
    choose,
    cluster,
    own,
    reload,
    signing_process,
)

pytestmark = pytest.mark.usefixtures("parsed_once")

ORDER: Final = Operation.ROTATE_NODE_CLIENT
STATEMENT: Final = CONFIG_MAPS.object("node-attestation-trust", "kube-system")
AGAIN_SECONDS: Final = 66
REJECTED: Final = "CertificateAuthorityOperationRejected"


def reload_and_join(world: FaultWorld, *positions: int) -> None:
    """The API servers read the file, and add what they trust to the ConfigMap of aggregated API servers."""
    reload(world, *positions)
    for position, server in enumerate(world.state.servers):
        if not positions or position in positions:
            world._join_authentication(server.client_trust)


def former(world: FaultWorld) -> Any:
    found = world.state.management.found.get(secret_path(FORMER_SUFFIX), {})
    return read_former(found, world.keys()).former


def authentication(world: FaultWorld) -> tuple[bytes, ...]:
    return certificates(world.state.workload.found[AUTHENTICATION]["data"][CLIENT_CA_FIELD].encode())


def published(world: FaultWorld) -> tuple[bytes, ...]:
    return certificates(world.secret("trust")["client-ca.crt"])


def gauges(process: Process) -> dict[MetricFamily, float]:
    """What the metrics show."""
    return {one.family: one.value for one in NodeClientService(process.node_client).gauges()}


async def ordered(process: Process, *gates: str) -> str:
    """Order it, and let the rotation's part take the order; the rejection, or an empty text."""
    process.world.order(ORDER, *gates)
    assert await process.reconciler.look(cast("Any", process.kube)) == 0.0
    assert not process.world.has_order()
    rejected = [one for one in process.reconciler.conditions if one.reason == "Rejected"]
    return rejected[0].message if rejected else ""


async def until_the_new_one_signs(world: FaultWorld, process: Process) -> None:
    shown = await process.until_it_waits()
    assert shown.startswith("NotAccepted: ")
    world.require_everybody_is_accepted()
    reload_and_join(world)
    while await process.pass_once() == 0:
        pass
    world.require_everybody_is_accepted()


async def renew_all(world: FaultWorld, process: Process) -> None:
    for node in world.state.nodes:
        await world.renew(node, process)


async def to_its_end(world: FaultWorld, process: Process) -> None:
    """From nodes that have renewed."""
    for _ in range(4):
        await process.until_it_waits()
        reload(world)
        world.wait(AGAIN_SECONDS)
    await process.until_it_waits()


def test_the_whole_replacement() -> None:
    """Nobody is refused at any moment, the key goes last, and no server certificate is touched."""

    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        reload_and_join(world)
        first, leaves = own(world), [server.leaf for server in world.state.servers]
        assert await ordered(process) == ""
        assert isinstance(former(world), Retiring)
        assert own(world) == first, "the copy is durable before anything else"
        assert await process.signs() == "cluster", "the former one signs nothing from the order on"

        shown = await process.until_it_waits()
        assert shown.startswith("NotAccepted: ")
        assert "control-plane-1, control-plane-2" in shown
        assert parsed(first).public_key_hash in shown
        assert own(world) != first
        assert published(world) == (world.authority(), first, own(world))
        assert await process.signs() == "cluster"
        reload_and_join(world, 0)
        assert (await process.until_it_waits()).startswith("NotAccepted: ")
        reload_and_join(world)
        shown = await process.until_it_waits()
        assert gauges(process) == {NODE_CLIENT_NODES: 0, NODE_CLIENT_FORMER_NODES: 2}
        assert shown.startswith("NodesRenew: ")
        assert "node-0, node-1" in shown
        assert await process.signs() == "own"
        world.require_everybody_is_accepted()

        await world.renew(world.state.nodes[0], process)
        shown = await process.until_it_waits()
        assert ("node-0" in shown, "node-1" in shown) == (False, True)
        assert gauges(process) == {NODE_CLIENT_NODES: 1, NODE_CLIENT_FORMER_NODES: 1}
        assert first in published(world), "one node has nothing else"
        await world.renew(world.state.nodes[1], process)
        shown = await process.until_it_waits()
        assert shown.startswith("ServersDropFormer: ")
        assert "control-plane-1, control-plane-2" in shown
        assert published(world) == (world.authority(), own(world))
        world.require_everybody_is_accepted()

        reload(world, 0)
        shown = await process.until_it_waits()
        assert ("control-plane-1" in shown, "control-plane-2" in shown) == (False, True)
        reload(world)
        assert "asked again" in await process.until_it_waits()
        assert first in authentication(world), "not before every API server refuses it twice"
        world.wait(AGAIN_SECONDS)
        assert (await process.until_it_waits()).startswith("ForgetFormer: ")
        assert first not in authentication(world)
        assert "tls.key" in world.secret(FORMER_SUFFIX), "not before the ConfigMap was read again"
        world.wait(AGAIN_SECONDS)
        assert (await process.until_it_waits()).startswith("Signing: every API server accepts")
        assert isinstance(former(world), Retired)
        assert gauges(process) == {NODE_CLIENT_NODES: 2}
        assert set(world.secret(FORMER_SUFFIX)) == {"tls.crt"}
        assert (await process.signs(), [node.client for node in world.state.nodes]) == ("own", [own(world)] * 2)
        assert [server.leaf for server in world.state.servers] == leaves
        assert not any(first in server.client_trust for server in world.state.servers)
        assert [reason for _, reason, _ in process.told] == [
            "NodeClientAuthorityReplaced",
            "NodeClientAuthorityForgotten",
        ]

    run(scenario())


def test_it_is_replaced_again() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        made, sequences = {own(world)}, []
        for number in range(2):
            assert await ordered(process) == ""
            await until_the_new_one_signs(world, process)
            sequences.append(statement.decode(renewal(world).encode()).statement.sequence)
            await renew_all(world, process)
            await to_its_end(world, process)
            assert isinstance(former(world), Retired), number
            made.add(own(world))
        assert len(made) == 3
        assert sequences[0] < sequences[1]
        world.require_everybody_is_accepted()

    run(scenario())


def test_a_pass_that_began_before_the_order_does_not_have_the_former_one_sign() -> None:
    """It ends after the order, and says again that the present one signs. Its Secret is about to hold another one."""

    async def scenario() -> None:
        world = cluster()
        seen: list[bool] = []
        process = await signing_process(world)
        present = process.signing.of(KEY)
        assert not isinstance(present, Absent)
        assert await ordered(process) == ""

        class Watching(Interfere):
            async def __call__(self, call: Call, moment: Moment) -> None:
                if moment is Moment.BEFORE and call.method == "PUT" and call.path == secret_path(OWN):
                    seen.append(isinstance(process.signing.of(KEY), Absent))

        process.client.interfere = Watching()
        process.signing.sign(KEY, present)
        await process.until_it_waits()
        assert seen == [True]

    run(scenario())


# What nodes are told


def renewal(world: FaultWorld) -> str:
    return str(world.state.workload.found[STATEMENT]["data"][RENEWAL_KEY])


def test_nodes_are_told_once_what_to_renew() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        first = parsed(own(world))
        assert await ordered(process) == ""
        await process.until_it_waits()
        assert STATEMENT not in world.state.workload.found, "not before the new one signs"
        reload(world)
        while await process.pass_once() == 0:
            pass
        await process.pass_once()
        told = statement.decode(renewal(world).encode())
        payload = told.statement.payload
        assert isinstance(payload, ClientRenewal)
        assert first.subject_key_identifier is not None
        assert payload.authority == first.subject_key_identifier.digest.hex()
        assert payload.begin == int(world.state.now.timestamp())
        assert payload.spread_seconds == 60
        assert told.statement.cluster.name == KEY.name
        world.wait(20)
        await process.pass_once()
        assert renewal(world) == statement.encode(told).decode(), "it keeps its times"

        del world.state.workload.found[STATEMENT]
        await process.pass_once()
        again = statement.decode(renewal(world).encode())
        assert again.statement.sequence == told.statement.sequence, "nodes that have acted on it do not again"

        world.workload.edit(STATEMENT, {"data": {STATEMENT_KEY: "of a rotation", RENEWAL_KEY: "tampered"}})
        await process.pass_once()
        data = world.state.workload.found[STATEMENT]["data"]
        assert (data[STATEMENT_KEY], statement.decode(data[RENEWAL_KEY].encode()).statement.sequence) == (
            "of a rotation",
            told.statement.sequence,
        )

    run(scenario())


def test_that_nodes_cannot_be_told_holds_nothing_else() -> None:
    async def scenario() -> None:
        world = cluster()
        refusing = RefusesConfigMap()
        process = await signing_process(world, refusing)
        assert await ordered(process) == ""
        await process.until_it_waits()
        reload(world)
        refusing.refuses = True
        assert (await process.until_it_waits()).startswith("NodesRenew: ")
        await renew_all(world, process)
        refusing.refuses = False
        await to_its_end(world, process)
        assert isinstance(former(world), Retired)

    run(scenario())


# Who is waited for


def test_a_node_that_is_off_holds_it_until_a_person_skips_it() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        first = own(world)
        assert await ordered(process) == ""
        await until_the_new_one_signs(world, process)
        await world.renew(world.state.nodes[0], process)
        for _ in range(3):
            world.wait(7200)
            shown = await process.until_it_waits()
            assert shown.startswith("NodesRenew: ")
            assert "node-1" in shown
        assert first in published(world), "no time advances it"

        assert "is still being retired" in await ordered(process)
        assert "unreachable-nodes alone" in await ordered(process, "overlap")
        assert "is no gate" in await ordered(process, "everything")
        assert await ordered(process, "unreachable-nodes") == ""
        warnings = [message for kind, reason, message in process.told if reason == "NodesSkipped"]
        assert len(warnings) == 1
        assert "node-1" in warnings[0]
        process.stop()
        process = cast("Process", await Process.started(world))
        await process.until_it_waits()
        assert (await process.until_it_waits()).startswith("ServersDropFormer: "), "also after a restart"
        assert first not in published(world)
        assert "no longer already" in await ordered(process, "unreachable-nodes")
        await to_its_end(world, process)
        assert isinstance(former(world), Retired)
        assert not any(first in server.client_trust for server in world.state.servers)

    run(scenario())


def test_nobody_is_skipped_before_the_new_one_signs() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        assert "without skip-gates first" in await ordered(process, "unreachable-nodes")
        assert isinstance(former(world), Absent)
        assert await ordered(process) == ""
        await process.until_it_waits()
        assert "once the new authority signs" in await ordered(process, "unreachable-nodes")
        await until_the_new_one_signs(world, process)
        assert await ordered(process, "unreachable-nodes") == ""

    run(scenario())


def test_a_joined_machine_without_a_record_holds_it() -> None:
    """A lost record may have named the former authority."""

    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        assert await ordered(process) == ""
        await until_the_new_one_signs(world, process)
        await renew_all(world, process)
        world._put_machine("worker-without-record", {})
        shown = await process.until_it_waits()
        assert shown.startswith("NodesRenew: ")
        assert "worker-without-record" in shown

    run(scenario())


def test_an_api_server_that_cannot_be_asked_holds_it() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        first = own(world)
        assert await ordered(process) == ""
        await until_the_new_one_signs(world, process)
        await renew_all(world, process)
        gone = world.state.servers.pop()
        shown = await process.until_it_waits()
        assert shown.startswith("ServersDropFormer: ")
        assert gone.name in shown
        assert first in published(world), "not before every API server accepts the new one"
        assert await process.signs() == "own"
        world.state.servers.append(gone)
        await process.until_it_waits()
        assert first not in published(world)
        reload(world)
        await process.until_it_waits()
        world.state.servers.remove(gone)
        for _ in range(3):
            world.wait(AGAIN_SECONDS)
            shown = await process.until_it_waits()
            assert gone.name in shown
        world.state.servers.append(gone)
        assert "asked again" in await process.until_it_waits(), "the wait begins anew"
        assert isinstance(former(world), Retiring)

    run(scenario())


def test_one_api_server_has_a_former_file_again() -> None:
    """Between both times at which it is asked."""

    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        first = own(world)
        assert await ordered(process) == ""
        await until_the_new_one_signs(world, process)
        await renew_all(world, process)
        await process.until_it_waits()
        reload(world)
        assert "asked again" in await process.until_it_waits()
        world.state.servers[0].client_trust = (world.authority(), own(world), first)
        world.wait(AGAIN_SECONDS)
        assert "control-plane-1" in await process.until_it_waits()
        reload(world)
        assert "asked again" in await process.until_it_waits()

    run(scenario())


def test_an_api_server_adds_it_to_the_config_map_again() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        first = own(world)
        assert await ordered(process) == ""
        await until_the_new_one_signs(world, process)
        await renew_all(world, process)
        await process.until_it_waits()
        reload(world)
        await process.until_it_waits()
        world.wait(AGAIN_SECONDS)
        await process.until_it_waits()
        assert first not in authentication(world)
        world._join_authentication((first,))
        world.wait(AGAIN_SECONDS)
        assert (await process.until_it_waits()).startswith("ForgetFormer: ")
        assert first not in authentication(world)
        assert "tls.key" in world.secret(FORMER_SUFFIX)

    run(scenario())


def test_the_config_map_cannot_be_read() -> None:
    async def scenario() -> None:
        world = cluster()
        refusing = RefusesConfigMap("extension-apiserver-authentication")
        process = await signing_process(world, refusing)
        assert await ordered(process) == ""
        await until_the_new_one_signs(world, process)
        await renew_all(world, process)
        await process.until_it_waits()
        reload(world)
        refusing.refuses = True
        await process.until_it_waits()
        for _ in range(3):
            world.wait(AGAIN_SECONDS)
            await process.until_it_waits()
        assert "cannot be read" in process.shown()
        assert isinstance(former(world), Retiring)

    run(scenario())


# When it is rejected


def test_where_there_is_none() -> None:
    async def scenario() -> None:
        world = cluster()
        process = cast("Process", await Process.started(world))
        assert "does not choose it" in await ordered(process)
        choose(world)
        assert "there is no node-client authority yet" in await ordered(process)
        assert secret_path(FORMER_SUFFIX) not in world.state.management.found

    run(scenario())


def test_during_a_rotation() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        world.order(Operation.START)
        await go_on(world, process, in_phase(Phase.PREPARED))
        assert "a rotation of the cluster's CAs" in await ordered(process)
        assert isinstance(former(world), Absent)

    run(scenario())


def test_a_tenants_own_ca_is_not_kept_as_former() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        world.put_secret(OWN, world.secret("ca"))
        assert "this controller did not put it there" in await ordered(process)
        assert isinstance(former(world), Absent)

    run(scenario())


def test_a_tenant_cannot_choose_what_is_dropped_nor_who_is_skipped() -> None:
    """The seal is of the content, of the order, and of whether nodes are waited for."""

    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        first = own(world)
        sealed = world.management.get(secret_path(OWN))
        sealed["metadata"]["name"] = f"{KEY.name}-{FORMER_SUFFIX}"
        world.management.put(secret_path(FORMER_SUFFIX), sealed)
        assert (await process.until_it_waits()).startswith("ForeignAuthority: ")
        assert "cannot be used" in await ordered(process)
        world.management.remove(secret_path(FORMER_SUFFIX))

        assert await ordered(process) == ""
        await until_the_new_one_signs(world, process)
        kept = world.management.get(secret_path(FORMER_SUFFIX))
        annotation = kept["metadata"]["annotations"]["attestation.cluster.x-k8s.io/node-client-retirement"]
        forged = annotation.replace("WaitedFor", "Skipped")
        assert forged != annotation
        world.management.edit(
            secret_path(FORMER_SUFFIX),
            {"metadata": {"annotations": {"attestation.cluster.x-k8s.io/node-client-retirement": forged}}},
        )
        assert (await process.until_it_waits()).startswith("ForeignAuthority: ")
        assert first in published(world)
        world.management.put(secret_path(FORMER_SUFFIX), kept)
        assert (await process.until_it_waits()).startswith("NodesRenew: ")

    run(scenario())


def test_the_former_one_does_not_come_back_unnoticed() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        first, backup = own(world), world.secret(OWN)
        manifest = world.management.get(secret_path(OWN))
        assert await ordered(process) == ""
        await until_the_new_one_signs(world, process)
        await renew_all(world, process)
        await to_its_end(world, process)

        trust = world.secret("trust")
        world.put_secret("trust", {**trust, "client-ca.crt": trust["client-ca.crt"] + bundle_of(first)})
        await process.until_it_waits()
        assert first not in published(world), "an old bundle was restored"
        present = world.management.get(secret_path(OWN))
        world.management.put(secret_path(OWN), manifest)
        assert world.secret(OWN) == backup
        shown = await process.until_it_waits()
        assert shown.startswith("ForeignAuthority: ")
        assert "the former authority again" in shown
        assert first not in published(world)
        world.management.put(secret_path(OWN), present)
        assert (await process.until_it_waits()).startswith("Signing: ")

    run(scenario())


# Rotations of the CAs, and of the controller key


@pytest.mark.parametrize("renewed", [False, True])
def test_a_rotation_begins_meanwhile(renewed: bool) -> None:
    """It leaves both published for as long as the former one may be in use, and the replacement goes on afterwards."""

    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        first = own(world)
        assert await ordered(process) == ""
        await until_the_new_one_signs(world, process)
        if renewed:
            await renew_all(world, process)
        world.order(Operation.START)
        await go_on(world, process, in_phase(Phase.PREPARED))
        assert (first in published(world), own(world) in published(world)) == (not renewed, True)
        world.order(Operation.COMPLETE)
        await go_on(world, process, in_phase(Phase.COMPLETED))
        while await process.pass_once() == 0:
            pass
        await renew_all(world, process)
        await to_its_end(world, process)
        assert isinstance(former(world), Retired)
        world.require_everybody_is_accepted()
        assert [node.client for node in world.state.nodes] == [own(world)] * 2

    run(scenario())


def test_the_controller_key_is_rotated_twice_meanwhile() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        assert await ordered(process) == ""
        await until_the_new_one_signs(world, process)
        for number in range(2):
            world.set_keys(ControllerKeys(bytes([number]) * 32, world.keys().current))
            await process.read_key()
            assert (await process.until_it_waits()).startswith("NodesRenew: ")
        assert isinstance(former(world), Retiring)

    run(scenario())


def test_it_is_replaced_in_its_last_month() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        world.state.now += timedelta(days=3650 - 29)
        assert (await process.until_it_waits()).startswith("Ends: ")
        assert "not read" not in await ordered(process)
        assert isinstance(former(world), Retiring)

    run(scenario())


# Faults


class RefusesConfigMap(Interfere):
    """A ConfigMap of the workload cluster cannot be reached while ``refuses``."""

    def __init__(self, name: str = "node-attestation-trust") -> None:
        self.name, self.refuses = name, False

    async def __call__(self, call: Call, moment: Moment) -> None:
        if self.refuses and call.path.endswith(f"configmaps/{self.name}"):
            raise Unreachable("no", cause=Cause.NETWORK)


class Ends(BaseException):
    """The process ends here."""


class KilledAt(Interfere):
    """The process ends at its write of that number, before it or after it."""

    def __init__(self, number: int, moment: Moment) -> None:
        self.left, self.moment, self.path = number, moment, ""

    async def __call__(self, call: Call, moment: Moment) -> None:
        if call.writes and moment is self.moment:
            self.left -= 1
            if self.left == 0:
                self.path = f"{call.method} {call.path}"
                raise Ends


WRITES: Final = (
    "POST /api/v1/namespaces/tenant/secrets",  # the copy
    "PATCH nodeattestationpolicies",  # the order is taken
    f"PUT {secret_path(OWN)}",
    f"PUT {secret_path('trust')}",
    "POST roles",
    "POST rolebindings",
    "POST configmaps",  # what nodes are told
    f"PUT {secret_path('trust')}",
    f"PUT {AUTHENTICATION}",
    f"PUT {secret_path(FORMER_SUFFIX)}",
)
KILLS: Final = tuple((number, moment) for number in range(1, len(WRITES) + 1) for moment in Moment)


@pytest.mark.parametrize(("number", "moment"), KILLS)
def test_killed_at_each_write(number: int, moment: Moment) -> None:
    """The next process goes on: one new authority, nobody refused, and the same end."""

    async def scenario() -> None:
        world = cluster()
        (await signing_process(world)).stop()
        reload_and_join(world)
        first = own(world)
        world.order(ORDER)
        killed = KilledAt(number, moment)
        with pytest.raises(Ends):
            await replaced(world, killed)
        method, _, path = WRITES[number - 1].partition(" ")
        assert killed.path.startswith(method), "the writes are those"
        assert path in killed.path, "the writes are those"
        await replaced(world, Interfere())
        made = {str(one["data"]["tls.crt"]) for one in world.state.management.contents[secret_path(OWN)]}
        assert len(made) == 2, "one new authority"
        assert isinstance(former(world), Retired)
        assert first not in authentication(world)
        assert published(world) == (world.authority(), own(world))
        assert [node.client for node in world.state.nodes] == [own(world)] * 2

    run(scenario())


async def replaced(world: FaultWorld, interfere: Interfere) -> None:
    """One process takes the order to its end, while the world does its part and nobody is refused."""
    process = cast("Process", await Process.started(world, interfere))
    try:
        for _ in range(30):
            while await process.look() == 0 or await process.pass_once() == 0:
                world.require_everybody_is_accepted()
            if isinstance(former(world), Retired):
                assert process.reconciler.conditions == (), "the order was not rejected"
                return
            reload(world)
            if process.shown().startswith("NodesRenew: "):
                await renew_all(world, process)
            world.require_everybody_is_accepted()
            world.wait(AGAIN_SECONDS)
    finally:
        process.stop()
    raise AssertionError(f"no end: {process.shown()}")
