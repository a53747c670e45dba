"""The node-client authority by its real reconciler, over the model of a cluster that rotations are tested with."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random
from typing import Any, Final, cast
from unittest.mock import Mock

import pytest

from signer.authority import IssuingSet
from signer.configuration import AllowedAuthorities, RotationSettings
from signer.controller.node_client import NodeClientService
from signer.controller.telemetry.metrics_collector import NODE_CLIENT_NODES
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.decision.authority_source import AuthoritySource, ChosenSecrets
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, Cause, Unreachable
from signer.kube.resources import MACHINES_V1BETA2
from signer.model.authority_suffixes import (
    ExpectedSecret,
    FormerAuthorities,
    NoRecord,
    NotRotated,
    Published,
    RotatingAuthorities,
    RotationOfAuthorities,
    SeparateNodeClients,
)
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.seal import ControllerKeys
from signer.rotation.authorities import AuthorityKind, AuthorityReference
from signer.rotation.bundles import bundle_of
from signer.rotation.facts import Absent, HeldPair, Unusable
from signer.rotation.node_client.reconciler import NodeClientReconciler
from signer.rotation.node_client.signing import NodeClientSigning
from signer.rotation.operations import Operation, Order
from signer.rotation.phases import Phase
from signer.rotation.rotations import RotationChanged
from signer.rotation.secrets import read_kept_pair
from signer.rotation.servers.observation import ExpectedServer, ServersObserved
from signer.rotation.servers.observing import TwoAuthorities
from signer.store.caches import Caches
from tests.unit.signer.rotation.fault_world import (
    CLUSTER,
    KEY,
    POLICY,
    Controller,
    FaultWorld,
    PlayedServers,
    State,
    certificates,
    go_on,
    in_phase,
    pair_data,
    parsed,
    run,
    secret_path,
)
from tests.unit.signer.rotation.memory_api import Call, Interfere, MemoryClient, Moment

pytestmark = pytest.mark.usefixtures("parsed_once")

OWN: Final = "node-client-ca"
ANYWHERE: Final = RotationSettings(node_client_namespaces=frozenset({"*"}))
ROTATING: Final = RotatingAuthorities(
    ExpectedSecret("x", "d", "h"), ExpectedSecret("y", "d", "h"), (), frozenset({"h"})
)


class Process(Controller):
    """A process of the controller that also looks after the node-client authority."""

    def __init__(self, world: FaultWorld, interfere: Interfere | None = None) -> None:
        super().__init__(world, interfere)
        self.signing = NodeClientSigning(self.rotations.authorities)
        self.asked = 0
        self.settings = ANYWHERE
        self.node_client = self._compose()
        self._source = AuthoritySource(
            cast("Any", MemoryClient(world.management, Interfere())),
            KEY,
            choose=ChosenSecrets(KEY, self.caches, AllowedAuthorities(), self.signing.authorities),
            now=self._now,
            monotonic=self._monotonic,
        )

    def allow(self, settings: RotationSettings) -> None:
        """Configure it otherwise."""
        self.settings, self.node_client = settings, self._compose(settings)

    def _compose(self, settings: RotationSettings = ANYWHERE) -> NodeClientReconciler:
        return NodeClientReconciler(
            KEY,
            management=cast("Any", self.client),
            caches=self.caches,
            rotation=self.rotations.of,
            signing=self.signing,
            ask_servers=self._ask,
            settings=settings,
            tell=lambda kind, reason, message: self.told.append((kind, reason, message)),
            changed=lambda: None,
            now=self._now,
            random=Random(0),
        )

    async def carry_out(self, order: Order) -> None:
        await self.node_client.carry_out(order)

    async def _ask(
        self, endpoint: ClusterConnection, expected: tuple[ExpectedServer, ...], authorities: TwoAuthorities
    ) -> ServersObserved:
        self.asked += 1
        return await PlayedServers(self.world)(endpoint, expected, authorities)

    async def pass_once(self) -> float:
        """One pass, with the errors that its loop handles."""
        try:
            return await self.node_client.look(cast("Client", self.kube))
        except (ApiError, Deferred, RotationChanged) as error:
            self.errors.append(error)
            return 1.0

    async def until_it_waits(self) -> str:
        """Passes until it waits; its condition's reason and message."""
        for _ in range(10):
            if await self.pass_once() > 0:
                return self.shown()
        raise AssertionError("no end")

    async def look(self) -> float:
        """Both parts, as they run beside each other."""
        await self.pass_once()
        return await super().look()

    def shown(self) -> str:
        """Reason and message of its condition; empty without it."""
        return next((f"{one.reason}: {one.message}" for one in self.node_client.conditions), "")

    async def signs(self) -> str:
        """Who signs nodes' client certificates now: ``own``, ``cluster`` or ``other``."""
        found = await self.signers()
        assert found.serving.certificate.der == self.world.authority(), "never anything but serving by the cluster's CA"
        der = found.client.certificate.der
        if der == self.world.authority():
            return "cluster"
        return "own" if der == own(self.world) else "other"


def own(world: FaultWorld) -> bytes:
    """DER of the node-client authority."""
    (der,) = certificates(world.secret(OWN)["tls.crt"])
    return der


def users(process: Process) -> float:
    """The metric: how many nodes have a certificate of it."""
    (gauge,) = NodeClientService(process.node_client).gauges()
    assert gauge.family is NODE_CLIENT_NODES
    return gauge.value


def choose(world: FaultWorld, value: str = "Separate") -> None:
    world.management.edit(POLICY, {"spec": {"nodeClientAuthority": value}})


def reload(world: FaultWorld, *positions: int) -> None:
    """Write the published file to these API servers, which read it while they run; to all without positions."""
    published = certificates(world.secret("trust")["client-ca.crt"])
    for position, server in enumerate(world.state.servers):
        if not positions or position in positions:
            server.client_trust = published


def cluster() -> FaultWorld:
    return FaultWorld.new(kinds=(AuthorityKind.CLUSTER,))


async def signing_process(world: FaultWorld, interfere: Interfere | None = None) -> Process:
    """A process in which it signs, and nodes that have its certificates."""
    choose(world)
    process = await Process.started(world, interfere)
    assert isinstance(process, Process)
    await process.until_it_waits()
    reload(world)
    assert (await process.until_it_waits()).startswith("Signing: ")
    for node in world.state.nodes:
        await world.renew(node, process)
    world.require_everybody_is_accepted()
    return process


def test_it_signs_once_every_server_accepts_it() -> None:
    async def scenario() -> None:
        world = cluster()
        leaves = [server.leaf for server in world.state.servers]
        process = cast("Process", await Process.started(world))
        choose(world)
        assert await process.signs() == "cluster"
        shown = await process.until_it_waits()
        assert shown.startswith("NotAccepted: ")
        assert "control-plane-1, control-plane-2" in shown
        published = world.secret("trust")
        assert certificates(published["client-ca.crt"]) == (world.authority(), own(world))
        assert certificates(published["server-ca.crt"]) == (world.authority(),), "no client of a server trusts it"
        assert published["link.crt"] == b""
        assert await process.signs() == "cluster"

        reload(world, 0)
        shown = await process.until_it_waits()
        assert ("control-plane-1" in shown, "control-plane-2" in shown) == (False, True)
        assert await process.signs() == "cluster"

        reload(world, 1)
        assert (await process.until_it_waits()).startswith("Signing: ")
        assert await process.signs() == "own"
        assert users(process) == 0
        for node in world.state.nodes:
            await world.renew(node, process)
            assert (node.client, node.serving, node.evidence) == (own(world), world.authority(), world.authority())
        world.require_everybody_is_accepted()
        await process.until_it_waits()
        assert users(process) == 2
        assert [server.leaf for server in world.state.servers] == leaves, "no server certificate was touched"
        assert "tls.key" not in repr(process.node_client)

    run(scenario())


def test_what_it_is() -> None:
    """A CA for client certificates alone, that makes no other CA, sealed for this place."""

    async def scenario() -> None:
        world = cluster()
        await signing_process(world)
        made = parsed(own(world))
        assert made.extended_key_usage is not None
        assert [one.dotted_string for one in made.extended_key_usage] == ["1.3.6.1.5.5.7.3.2"]
        assert made.basic_constraints is not None
        assert made.basic_constraints.path_length == 0
        manifest = world.management.get(secret_path(OWN))
        assert isinstance(read_kept_pair(AuthorityKind.CLUSTER, manifest, world.keys()).held, HeldPair)
        assert manifest["metadata"]["ownerReferences"][0]["kind"] == "Cluster"
        moved = {**manifest, "metadata": {**manifest["metadata"], "name": f"{KEY.name}-ca-abcdefgh"}}
        assert isinstance(read_kept_pair(AuthorityKind.CLUSTER, moved, world.keys()).held, Unusable)

    run(scenario())


def test_a_policy_that_does_not_choose_it() -> None:
    async def scenario() -> None:
        world = cluster()
        process = cast("Process", await Process.started(world))
        assert await process.until_it_waits() == ""
        assert (process.asked, await process.signs(), NodeClientService(process.node_client).gauges()) == (
            0,
            "cluster",
            (),
        )
        assert {secret_path(OWN), secret_path("trust")}.isdisjoint(world.state.management.found)

    run(scenario())


def test_it_is_given_up() -> None:
    """At once, also before the next pass. The nodes that still have its certificates are named, and lose nothing."""

    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        choose(world, "Shared")
        assert await process.signs() == "cluster"
        shown = await process.until_it_waits()
        assert shown.startswith("NotChosen: ")
        assert "node-0, node-1" in shown
        world.require_everybody_is_accepted()
        for node in world.state.nodes:
            await world.renew(node, process)
        assert "no node has a certificate" in await process.until_it_waits()
        assert own(world) in certificates(world.secret("trust")["client-ca.crt"]), "it takes nothing away"

    run(scenario())


def test_after_a_restart_it_is_proven_again() -> None:
    async def scenario() -> None:
        world = cluster()
        before = await signing_process(world)
        before.stop()
        process = cast("Process", await Process.started(world))
        assert await process.signs() == "cluster"
        world.state.kube_down = True
        assert (await process.until_it_waits()).startswith("NotProven: ")
        assert await process.signs() == "cluster"
        world.state.kube_down = False
        assert (await process.until_it_waits()).startswith("Signing: ")

    run(scenario())


def test_a_server_that_is_off_changes_nothing_and_one_that_refuses_stops_it() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        gone = world.state.servers.pop()
        shown = await process.until_it_waits()
        assert shown.startswith("Signing: ")
        assert gone.name in shown
        assert await process.signs() == "own"
        gone.client_trust = (world.authority(),)
        world.state.servers.append(gone)
        shown = await process.until_it_waits()
        assert shown.startswith("NotAccepted: ")
        assert gone.name in shown
        assert await process.signs() == "cluster"

    run(scenario())


def test_machines_that_are_made_later_accept_it() -> None:
    """From what is published; without a word to anybody."""

    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        world.make_server()
        old = world.state.servers.pop(0)
        world.management.remove(MACHINES_V1BETA2.object(old.name, KEY.namespace))
        assert (await process.until_it_waits()).startswith("Signing: ")
        world.require_everybody_is_accepted()

    run(scenario())


@pytest.mark.parametrize(
    "settings", [RotationSettings(), RotationSettings(node_client_namespaces=frozenset({"other"}))]
)
def test_beyond_the_operators_bounds(settings: RotationSettings) -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        process.allow(settings)
        assert (await process.until_it_waits()).startswith("NotAllowed: ")
        assert await process.signs() == "cluster"
        fresh = cluster()
        choose(fresh)
        process = cast("Process", await Process.started(fresh))
        process.allow(settings)
        assert (await process.until_it_waits()).startswith("NotAllowed: ")
        assert secret_path(OWN) not in fresh.state.management.found

    run(scenario())


@pytest.mark.parametrize(
    ("path", "patch", "reason"),
    [
        (CLUSTER, {"spec": {"controlPlaneRef": {"kind": "RKE2ControlPlane"}}}, "NotSupported"),
        (CLUSTER, {"spec": {"controlPlaneRef": None}}, "NotSupported"),
        (CLUSTER, {"spec": {"controlPlaneRef": {"kind": "OtherControlPlane"}}}, "NotSupported"),
        (CLUSTER, {"spec": {"paused": True}}, "Paused"),
    ],
)
def test_where_it_cannot_be_used(path: str, patch: dict[str, Any], reason: str) -> None:
    async def scenario() -> None:
        world = cluster()
        choose(world)
        world.management.edit(path, patch)
        world.management.edit(POLICY, {"spec": {"certificateAuthorities": {"client": "ca", "serving": "ca"}}})
        process = cast("Process", await Process.started(world))
        assert (await process.until_it_waits()).startswith(f"{reason}: ")
        assert (process.asked, process.errors) == (0, [])
        assert {secret_path(OWN), secret_path("trust")}.isdisjoint(world.state.management.found)

    run(scenario())


def test_a_policy_that_names_other_secrets() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        world.management.edit(POLICY, {"spec": {"certificateAuthorities": {"client": "cca", "serving": "ca"}}})
        assert (await process.until_it_waits()).startswith("NotSupported: ")

    run(scenario())


def test_it_stops_although_nothing_can_be_read() -> None:
    async def scenario() -> None:
        world = cluster()
        away = Away()
        process = await signing_process(world, away)
        away.away = True
        assert await process.pass_once() > 0
        assert await process.signs() == "own", "an outage of the management cluster takes nothing back"
        choose(world, "Shared")
        await process.pass_once()
        assert isinstance(process.signing.of(KEY), Absent)
        choose(world)
        assert await process.signs() == "cluster"

    run(scenario())


def test_without_a_connection_it_does_not_sign() -> None:
    """The next connection may lead to other API servers."""

    async def scenario() -> None:
        process = await signing_process(cluster())
        running = asyncio.create_task(process.node_client.run(cast("Client", process.kube)))
        await asyncio.sleep(0.05)
        assert await process.signs() == "own"
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert await process.signs() == "cluster"

    run(scenario())


def test_while_the_caches_are_out_of_touch_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """They say which Machines have an API server."""

    async def scenario() -> None:
        world = cluster()
        choose(world)
        process = cast("Process", await Process.started(world))
        out_of_touch = Deferred("ManagementClusterUnreachable", "no watch")
        monkeypatch.setattr(Caches, "require_in_touch", Mock(side_effect=out_of_touch))
        await process.pass_once()
        assert process.errors == [out_of_touch]
        assert secret_path(OWN) not in world.state.management.found

    run(scenario())


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (NotRotated(), SeparateNodeClients(ExpectedSecret(OWN, "d", "h"))),
        (NoRecord(), SeparateNodeClients(ExpectedSecret(OWN, "d", "h"), published=Published.READ)),
        (FormerAuthorities(frozenset({"f"})), SeparateNodeClients(ExpectedSecret(OWN, "d", "h"), frozenset({"f"}))),
        (ROTATING, ROTATING),
    ],
)
def test_a_rotation_that_is_under_way_decides(said: RotationOfAuthorities, expected: RotationOfAuthorities) -> None:
    """Also before this part has seen that it began."""
    signing = NodeClientSigning(lambda key: said)
    assert signing.authorities(KEY) == said
    signing.sign(KEY, AuthorityReference("d", "h", State.now))
    assert signing.authorities(KEY) == expected
    assert signing.authorities(ClusterKey("tenant", "other")) == said


# Attacks


def test_a_tenants_own_ca_is_neither_published_nor_signs() -> None:
    """Published, its holder would be any user of the cluster."""

    async def scenario() -> None:
        world = cluster()
        choose(world)
        world.put_secret(OWN, pair_data(AuthorityKind.CLUSTER, 7))
        process = cast("Process", await Process.started(world))
        shown = await process.until_it_waits()
        assert shown.startswith("ForeignAuthority: ")
        assert "this controller did not put it there" in shown
        assert (await process.signs(), process.asked) == ("cluster", 0)
        assert secret_path("trust") not in world.state.management.found

    run(scenario())


def test_a_tenant_replaces_its_pair_while_it_signs() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        before = world.management.get(secret_path(OWN))
        published = world.secret("trust")
        world.put_secret(OWN, pair_data(AuthorityKind.CLUSTER, 7))  # with the seal of the former content
        world.wait(1)
        with pytest.raises(AuthorityUnavailable) as waiting:
            await process.signers()
        assert waiting.value.reason == "ForeignAuthority"
        assert (await process.until_it_waits()).startswith("ForeignAuthority: ")
        assert await process.signs() == "cluster"
        assert world.secret("trust") == published
        world.management.put(secret_path(OWN), before)
        assert (await process.until_it_waits()).startswith("Signing: ")

    run(scenario())


def test_the_controller_key_is_rotated_twice() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        before = own(world)
        for number in range(2):
            world.set_keys(ControllerKeys(bytes([number]) * 32, world.keys().current))
            await process.read_key()
            assert (await process.until_it_waits()).startswith("Signing: ")
        assert own(world) == before
        assert await process.signs() == "own"

    run(scenario())


def test_a_seal_of_another_place_is_no_seal() -> None:
    """The Secrets of a rotation are sealed by the same controller. A CA of it must not come back by that way."""

    async def scenario() -> None:
        world = cluster()
        process = cast("Process", await Process.started(world))
        world.order(Operation.START)
        await go_on(world, process, in_phase(Phase.PREPARED))
        world.order(Operation.ROLLBACK)
        kept = world.management.get(secret_path(f"ca-{world.now_record.rotation_id}"))
        await go_on(world, process, in_phase(Phase.ROLLED_BACK))
        del kept["metadata"]["name"]
        world.management.put(secret_path(OWN), kept)
        choose(world)
        assert (await process.until_it_waits()).startswith("ForeignAuthority: ")
        assert await process.signs() == "cluster"

    run(scenario())


def test_a_bundle_of_others_stays() -> None:
    async def scenario() -> None:
        world = cluster()
        choose(world)
        other = certificates(pair_data(AuthorityKind.CLUSTER, 9)["tls.crt"])[0]
        world.put_secret("trust", {"client-ca.crt": bundle_of(other), "server-ca.crt": b"mine", "link.crt": b"too"})
        process = cast("Process", await Process.started(world))
        await process.until_it_waits()
        trust = world.secret("trust")
        assert certificates(trust["client-ca.crt"]) == (other, world.authority(), own(world))
        assert (trust["server-ca.crt"], trust["link.crt"]) == (b"mine", b"too")

    run(scenario())


def test_a_bundle_that_was_made_ready_for_rotations() -> None:
    """As docs/rotation.md says: the cluster's CA is there already."""

    async def scenario() -> None:
        world = cluster()
        choose(world)
        world.put_secret(
            "trust", {"client-ca.crt": bundle_of(world.authority()), "server-ca.crt": b"", "link.crt": b""}
        )
        process = cast("Process", await Process.started(world))
        await process.until_it_waits()
        assert certificates(world.secret("trust")["client-ca.crt"]) == (world.authority(), own(world))

    run(scenario())


def test_a_bundle_that_cannot_be_read_is_not_overwritten() -> None:
    async def scenario() -> None:
        world = cluster()
        choose(world)
        world.put_secret("trust", {"client-ca.crt": b"garbage", "server-ca.crt": b"", "link.crt": b""})
        process = cast("Process", await Process.started(world))
        assert (await process.until_it_waits()).startswith("ForeignAuthority: ")
        assert world.secret("trust")["client-ca.crt"] == b"garbage"

    run(scenario())


def test_evidence_must_not_name_it() -> None:
    """A node that knew the cluster by it could be lied to by its holder."""

    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        found: IssuingSet = await process.signers()
        name = parsed(own(world)).public_key_hash
        assert name not in found.accepted_hashes
        assert name not in found.waiting_hashes
        assert found.accepted_hashes == {parsed(world.authority()).public_key_hash}

    run(scenario())


def test_it_is_replaced_by_hand() -> None:
    """As docs/rotation.md says; nobody is refused at any moment."""

    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        former = own(world)
        choose(world, "Shared")
        for node in world.state.nodes:
            await world.renew(node, process)
        assert "no node has a certificate" in await process.until_it_waits()
        world.management.remove(secret_path(OWN))
        left = [one for one in certificates(world.secret("trust")["client-ca.crt"]) if one != former]
        world.put_secret("trust", {**world.secret("trust"), "client-ca.crt": bundle_of(*left)})
        reload(world)
        world.require_everybody_is_accepted()
        choose(world)
        assert (await process.until_it_waits()).startswith("NotAccepted: ")
        reload(world)
        assert (await process.until_it_waits()).startswith("Signing: ")
        for node in world.state.nodes:
            await world.renew(node, process)
        world.require_everybody_is_accepted()
        assert own(world) != former
        assert all(former not in server.client_trust for server in world.state.servers)

    run(scenario())


# A rotation of the cluster's CAs


@pytest.mark.parametrize("back", [False, True])
def test_through_a_rotation(back: bool) -> None:
    """The rotation's record decides who signs, the published authority stays, and everybody is accepted throughout."""

    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        world.order(Operation.START)
        await go_on(world, process, in_phase(Phase.PREPARED))
        assert process.shown().startswith("RotationUnderWay: ")
        assert [node.client for node in world.state.nodes] != [own(world)] * 2
        world.order(Operation.ROLLBACK if back else Operation.COMPLETE)
        await go_on(world, process, in_phase(Phase.ROLLED_BACK if back else Phase.COMPLETED))
        assert certificates(world.secret("trust")["client-ca.crt"]) == (world.authority(), own(world))
        if back:
            reload(world)
        assert (await process.until_it_waits()).startswith("Signing: ")
        for node in world.state.nodes:
            await world.renew(node, process)
        world.require_everybody_is_accepted()
        assert [node.client for node in world.state.nodes] == [own(world)] * 2

    run(scenario())


def test_without_its_key_it_stays_published_in_a_rotation() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        certificate = world.secret(OWN)["tls.crt"]
        world.put_secret(OWN, {"tls.crt": certificate})
        world.order(Operation.START)
        await go_on(world, process, in_phase(Phase.PREPARED))
        assert certificates(certificate)[0] in certificates(world.secret("trust")["client-ca.crt"])

    run(scenario())


@pytest.mark.parametrize("lost", [True, False])
def test_a_rotation_publishes_it_where_the_bundle_is_lost(lost: bool) -> None:
    """Nodes have certificates of it: without it, the next Machine would refuse them."""

    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        choose(world, "Shared")  # nothing else publishes it
        if lost:
            world.management.remove(secret_path("trust"))
        else:
            world.put_secret("trust", {"client-ca.crt": b"garbage"})
        world.order(Operation.START)
        await go_on(world, process, in_phase(Phase.PREPARED))
        assert own(world) in certificates(world.secret("trust")["client-ca.crt"])

    run(scenario())


def test_a_rotation_does_not_publish_again_what_was_removed() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        choose(world, "Shared")
        for node in world.state.nodes:
            await world.renew(node, process)
        world.put_secret("trust", {**world.secret("trust"), "client-ca.crt": bundle_of(world.authority())})
        world.order(Operation.START)
        await go_on(world, process, in_phase(Phase.PREPARED))
        assert own(world) not in certificates(world.secret("trust")["client-ca.crt"])

    run(scenario())


def test_a_tenants_ca_is_no_reason_to_keep_it_published() -> None:
    """Whatever stands in the Secret without a seal is foreign in the bundle, too: a rotation writes the bundle anew."""

    async def scenario() -> None:
        world = cluster()
        process = cast("Process", await Process.started(world))
        foreign = pair_data(AuthorityKind.CLUSTER, 7)
        world.put_secret(OWN, foreign)
        world.put_secret("trust", {"client-ca.crt": bundle_of(world.authority()) + foreign["tls.crt"]})
        world.order(Operation.START)
        await go_on(world, process, in_phase(Phase.PREPARED))
        assert certificates(foreign["tls.crt"])[0] not in certificates(world.secret("trust")["client-ca.crt"])

    run(scenario())


# Faults


class Away(Interfere):
    """The management cluster cannot be reached while ``away``."""

    away = False

    async def __call__(self, call: Call, moment: Moment) -> None:
        if self.away:
            raise Unreachable("away", cause=Cause.NETWORK)


class At(Interfere):
    """The process ends at its write of that number, before it or after it."""

    def __init__(self, number: int, moment: Moment) -> None:
        self.left, self.moment = number, moment

    async def __call__(self, call: Call, moment: Moment) -> None:
        if call.writes and moment is self.moment:
            self.left -= 1
            if self.left == 0:
                raise Unreachable("the process ends here", cause=Cause.NETWORK)


@pytest.mark.parametrize("moment", list(Moment))
@pytest.mark.parametrize("number", [1, 2])
def test_killed_at_each_write(number: int, moment: Moment) -> None:
    async def scenario() -> None:
        world = cluster()
        choose(world)
        first = cast("Process", await Process.started(world, At(number, moment)))
        while not first.errors:
            await first.pass_once()
        first.stop()
        assert await first.signs() == "cluster" if secret_path(OWN) in world.state.management.found else True
        second = await signing_process(world)
        made = {str(one["data"]) for one in world.state.management.contents[secret_path(OWN)]}
        assert len(made) == 1, "never another one in its place"
        assert certificates(world.secret("trust")["client-ca.crt"]) == (world.authority(), own(world))
        assert await second.signs() == "own"

    run(scenario())


def test_two_controllers() -> None:
    """The one that is too late takes what the other one has made."""

    async def scenario() -> None:
        world = cluster()
        choose(world)
        one, other = [cast("Process", await Process.started(world)) for _ in range(2)]
        for _ in range(6):
            await one.pass_once()
            await other.pass_once()
        reload(world)
        assert (await one.until_it_waits()).startswith("Signing: ")
        assert (await other.until_it_waits()).startswith("Signing: ")
        assert len({str(each["data"]) for each in world.state.management.contents[secret_path(OWN)]}) == 1

    run(scenario())


def test_it_signs_nothing_in_its_last_month() -> None:
    async def scenario() -> None:
        world = cluster()
        process = await signing_process(world)
        world.state.now += timedelta(days=3650 - 29)
        assert (await process.until_it_waits()).startswith("Ends: ")

    run(scenario())
