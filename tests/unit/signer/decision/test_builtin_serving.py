"""Built-in serving requests: judged by the record, journaled before they are approved, once."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from attestors.contract import Denied, NotProvableYet, Security, StillAllowed
from signer.audit.decision_inputs import DecisionInputs
from signer.configuration import OperatorAttestor
from signer.decision import builtin_serving as module
from signer.decision.builtin_serving import SETTLED_REQUESTS_ARE_KEPT
from signer.kube.errors import ServerError
from signer.model.decision import ApproveOnly, Defer, Deferred, Deny, LeftAlone, Refused
from signer.model.fields import format_time
from signer.model.reasons import Reason
from signer.model.record import (
    BUILTIN_APPROVALS,
    AttestedIdentity,
    AttestedNode,
    MachineKey,
    record_of,
)
from signer.model.reservation import FROM_RECORD, Basis, Pair, ReservationSide
from signer.model.signing_request import MalformedBuiltinServingRequest, parse_signing_request
from tests.support.reservations import ATTESTED
from tests.unit.signer.builders import (
    CLUSTER,
    NODE,
    PROVIDER_ID,
    PROVIDERS,
    alternative_names,
    attested_identity,
    builtin_approval,
    builtin_serving_manifest,
    builtin_serving_request,
    cluster_view,
    dns,
    ip,
    journal_entry,
    machine_view,
    pkcs10,
    record,
)
from tests.unit.signer.controller.support import NOW
from tests.unit.signer.decision.builtin_serving_fixtures import (
    APPROVED,
    CSR,
    DIGEST,
    MACHINE,
    World,
    manifest_of,
    named,
    no_answer,
    numbered,
    reservation,
)


@pytest.fixture
def world() -> World:
    return World()


class TestApproval:
    async def test_is_journaled(self, world: World) -> None:
        assert await world.decide() == APPROVED
        assert world.approvals == [("csr-x1", "7f9c1f5e-0000-4000-8000-000000000001")]
        assert world.api.calls == ["replace"]
        recorded = world.records.recorded(CLUSTER, NODE)
        assert isinstance(recorded, AttestedNode)
        request = builtin_serving_request(CSR)
        assert recorded.has_builtin_approval(request.header.uid, request.header.spec_digest)
        assert recorded.journal == record().journal

    async def test_again_after_a_crash_writes_nothing(self, world: World) -> None:
        await world.decide()
        assert await world.decide() == APPROVED
        assert world.api.calls == ["replace"]

    async def test_again_is_judged_again(self, world: World) -> None:
        await world.decide()
        world.machine(deletionTimestamp="2026-03-01T12:00:00Z")
        world.policy(certificates={"deletingDuration": "0s"})
        assert (await world.refused()).reason == Reason.MACHINE_DELETING

    async def test_of_one_that_was_re_created_is_another(self, world: World) -> None:
        await world.decide(numbered(1))
        re_created = numbered(1)
        re_created["metadata"]["uid"] = "another"
        await world.decide(re_created)
        assert world.approvals == [("csr-1", "uid-1"), ("csr-1", "another")]

    async def test_of_other_content_is_another(self, world: World) -> None:
        await world.decide(numbered(1))
        changed = numbered(1)
        changed["spec"]["usages"].append("key encipherment")
        await world.decide(changed)
        assert world.approvals == [("csr-1", "uid-1")] * 2

    async def test_that_cannot_be_journaled_is_none(self, world: World) -> None:
        def fail() -> None:
            raise ServerError("no")

        world.api.before_write = fail
        with pytest.raises(ServerError):
            await world.decide()
        assert world.approvals == []

    async def test_with_the_credential_that_we_issued(self, world: World) -> None:
        assert await world.decide(named(DIGEST)) == APPROVED
        assert world.api.calls == ["replace"]

    async def test_of_a_record_that_somebody_else_changed(self, world: World) -> None:
        other = builtin_approval(csr_name="other", csr_uid="other", spec_digest="00" * 32, decided=world.clock.now())

        def change() -> None:
            world.api.before_write = lambda: None
            world.record(record().with_builtin_approval(other), seen=False)

        world.api.before_write = change
        assert await world.decide() == APPROVED
        assert [name for name, _ in world.approvals] == ["other", "csr-x1"]

    async def test_of_a_contended_record_waits(self, world: World) -> None:
        world.api.before_write = lambda: world.record(record(), seen=False)
        assert (await world.deferred()).reason == Reason.RESERVATION_PENDING
        assert world.approvals == []

    async def test_in_a_cluster_that_is_paused_while_it_is_written(self, world: World) -> None:
        def pause() -> None:
            world.cluster(paused=True)
            world.record(record(), seen=False)

        world.api.before_write = pause
        assert (await world.deferred()).reason == Reason.CLUSTER_PAUSED

    @pytest.mark.parametrize("journaled", [False, True])
    @pytest.mark.parametrize(
        "change",
        [
            lambda world: world.cluster(paused=True),
            lambda world: world.policy(builtinServingRequests="Ignore"),
            lambda world: world.policy(authorizedAttestors=[{"name": "gcp"}]),
        ],
        ids=["paused", "ignored", "attestor"],
    )
    async def test_while_the_workload_api_server_holds_back_its_time(
        self, world: World, change: Callable[[World], None], journaled: bool
    ) -> None:
        """A paused Cluster may be moved to another controller at that moment."""
        if journaled:
            await world.decide()
        before, calls = world.approvals, list(world.api.calls)

        async def held(now: datetime) -> None:
            change(world)

        world.builtin_serving.clocks = SimpleNamespace(require_agree=held)
        defer = await world.deferred()
        assert (defer.reason, defer.retry_after) == (Reason.RESERVATION_PENDING, timedelta(seconds=0.1))
        assert (world.approvals, world.api.calls) == (before, calls)

    async def test_in_a_cluster_that_was_away(self, world: World) -> None:
        """The watch of records may lag behind that of Clusters, and another node has the name."""
        other = record(machine_view(name="other", provider_id="aws:///other"), node_name="www")
        world.machine(addresses=(NODE, "10.0.0.1", "www"))
        world.api.listed = [manifest_of(other, 5)]
        csr = builtin_serving_manifest(pkcs10(extensions=[alternative_names(dns("www"))]))
        assert (await world.deferred(csr)).reason == Reason.MACHINE_AMBIGUOUS

    async def test_as_many_as_the_record_holds(self, world: World) -> None:
        for number in range(BUILTIN_APPROVALS):
            await world.decide(numbered(number))
            world.clock.pass_by(1)
        defer = await world.deferred(numbered(99))
        assert defer.reason == Reason.RESERVATION_PENDING
        assert defer.retry_after == SETTLED_REQUESTS_ARE_KEPT - timedelta(seconds=BUILTIN_APPROVALS)
        assert await world.decide(numbered(0)) == APPROVED  # journaled already
        world.clock.pass_by(defer.retry_after.total_seconds())
        assert await world.decide(numbered(99)) == APPROVED
        assert [name for name, _ in world.approvals][-2:] == [f"csr-{BUILTIN_APPROVALS - 1}", "csr-99"]

    async def test_as_many_while_the_clock_was_a_day_ahead(self, world: World) -> None:
        world.clock.pass_by(86400)
        for number in range(BUILTIN_APPROVALS):
            await world.decide(numbered(number))
        world.clock.pass_by(-86400)
        assert await world.decide(numbered(99)) == APPROVED


class TestNotAttested:
    async def test_no_record(self, world: World) -> None:
        world.caches.records.forget("team-a", record().name)
        defer = await world.deferred()
        assert defer.reason == Reason.NODE_NOT_ATTESTED
        assert defer.waits_for == (record_of(NODE),)

    async def test_a_record_wakes_who_waits_for_it(self, world: World) -> None:
        woken: list[Any] = []
        world.caches.on_change(lambda cluster, names: woken.append((cluster, names)))
        world.record(record())
        assert (CLUSTER, frozenset({record_of(NODE)})) in woken

    async def test_forged_record(self, world: World) -> None:
        forged = manifest_of(record(), 99)
        forged["spec"]["lastNotAfter"] = "2036-03-01T12:00:00Z"
        world.caches.records.applied(forged)
        assert (await world.deferred()).reason == Reason.NODE_NOT_ATTESTED

    async def test_insecure_record(self, world: World) -> None:
        insecure = replace(record(), identity=AttestedIdentity("tpm", "ek:1", Security.INSECURE))
        world.record(insecure)
        world.reserve(insecure)
        defer = await world.deferred()
        assert defer.reason == Reason.NODE_NOT_ATTESTED
        assert defer.waits_for == (record_of(NODE), PROVIDER_ID)

    async def test_machine_gone(self, world: World) -> None:
        world.caches.machines.forget("team-a", MACHINE)
        assert (await world.deferred()).reason == Reason.NODE_NOT_ATTESTED

    async def test_machine_is_another_now(self, world: World) -> None:
        other = machine_view(provider_id="aws:///new")
        world.record(record(other))
        world.reserve(record(other))
        defer = await world.deferred()
        assert defer.reason == Reason.NODE_NOT_ATTESTED
        assert "no longer exists" in defer.message

    @pytest.mark.parametrize("side", list(ReservationSide))
    async def test_half_a_reservation(self, world: World, side: ReservationSide) -> None:
        world.reserve(record(), side)
        assert (await world.deferred()).reason == Reason.NODE_NOT_ATTESTED

    async def test_reservations_that_are_no_pair(self, world: World) -> None:
        """Machine and identity are both reserved, each for another."""
        elsewhere = replace(record().machine, name="other")
        plugins = (
            (ReservationSide.MACHINE, Pair(record().machine, record(identity="ek:2").identity)),
            (ReservationSide.IDENTITY, Pair(elsewhere, record().identity)),
        )
        world.caches.reservations.replaced([reservation(pair, side) for side, pair in plugins])
        assert (await world.deferred()).reason == Reason.NODE_NOT_ATTESTED

    async def test_reservation_of_another_identity(self, world: World) -> None:
        world.reserve(record(identity="ek:2"))
        assert (await world.deferred()).reason == Reason.NODE_NOT_ATTESTED

    @pytest.mark.parametrize(
        ("basis", "part"),
        [
            (FROM_RECORD, "only because of the record"),
            (replace(ATTESTED, cluster_uid="c-0"), "another Cluster object"),
            (replace(ATTESTED, machine_uid="m-0"), "another UID"),
            (replace(ATTESTED, at=NOW + timedelta(minutes=6)), "an older copy"),
        ],
        ids=["rebuilt", "another Cluster", "another Machine", "attested since"],
    )
    async def test_reserved_on_another_basis(self, world: World, basis: Basis, part: str) -> None:
        """A record alone approves nothing: its holder may have the controller key, or an older copy of the record."""
        world.reserve(record(), basis=basis)
        defer = await world.deferred()
        assert defer.reason == Reason.NODE_NOT_ATTESTED
        assert part in defer.message

    async def test_an_older_record_put_back_after_everything_was_made_anew(self, world: World) -> None:
        """It is older than the Cluster object, as after a move, and its reservation was never released."""
        assert isinstance(await world.decide(), ApproveOnly)
        anew = {"uid": "c-2", "creationTimestamp": format_time(NOW + timedelta(seconds=1))}
        world.caches.clusters.applied({"metadata": {"namespace": "team-a", "name": "prod", **anew}, "spec": {}})
        world.machine(uid="m-2")
        assert "another Cluster object" in (await world.deferred()).message

    async def test_a_former_identity_whose_record_and_pair_were_put_back(self, world: World) -> None:
        """Both are authentic; another identity of the Machine was attested later."""
        world.caches.authentic.newest.see(record(identity="ek:2", last_attestation=NOW + timedelta(minutes=1)))
        assert "an older copy" in (await world.deferred()).message

    async def test_forged_reservations(self, world: World) -> None:
        sealed = [reservation(Pair(record().machine, record().identity), side) for side in ReservationSide]
        for one in sealed:
            one["spec"]["seal"] = f"{one['spec']['seal'][:-64]}{'0' * 64}"
            one["metadata"]["resourceVersion"] = "forged"
        world.caches.reservations.replaced(sealed)
        assert "is not reserved" in (await world.deferred()).message

    async def test_certificates_have_run_out(self, world: World) -> None:
        world.clock.pass_by(timedelta(days=7).total_seconds())
        assert (await world.deferred()).reason == Reason.NODE_NOT_ATTESTED

    async def test_attestor_no_longer_allowed_here(self) -> None:
        world = World(attestors={"tpm": OperatorAttestor(namespaces=frozenset({"team-b"}))})
        assert (await world.deferred()).reason == Reason.NODE_NOT_ATTESTED

    async def test_nothing_is_written(self, world: World) -> None:
        world.caches.reservations.replaced([])
        await world.deferred()
        assert world.api.calls == []


class TestNames:
    async def test_of_another_machine(self, world: World) -> None:
        world.machine(addresses=(NODE, "10.0.0.1"))
        world.machine("other", ("10.0.0.1",))
        assert (await world.deferred()).reason == Reason.MACHINE_AMBIGUOUS

    async def test_of_another_recorded_node(self, world: World) -> None:
        """The node of a Machine that is gone keeps its name as long as its record."""
        former = record(machine_view(name="former", provider_id="aws:///former"), node_name="10-0-0-1.example")
        manifest = manifest_of(former, 5)
        world.caches.records.applied(manifest)
        world.machine(addresses=(NODE, "10.0.0.1", "10-0-0-1.example"))
        assert await world.decide() == APPROVED
        csr = builtin_serving_manifest(pkcs10(extensions=[alternative_names(dns("10-0-0-1.example"))]))
        assert (await world.deferred(csr)).reason == Reason.MACHINE_AMBIGUOUS

    async def test_own_former_node_name(self, world: World) -> None:
        former = record(node_name="old.example")
        world.caches.records.applied(manifest_of(former, 5))
        world.machine(addresses=(NODE, "10.0.0.1", "old.example"))
        csr = builtin_serving_manifest(pkcs10(extensions=[alternative_names(dns("old.example"))]))
        assert await world.decide(csr) == APPROVED


class TestMachineThatChanged:
    """What our cache of Machines lacks is never a denial."""

    ASKS = builtin_serving_manifest(pkcs10(extensions=[alternative_names(ip(bytes((10, 0, 0, 2))))]))

    async def test_another_address_that_is_not_known_yet(self, world: World) -> None:
        world.machine(addresses=(NODE, "10.0.0.2"), seen=False)
        defer = await world.deferred(self.ASKS)
        assert defer.reason == Reason.RESERVATION_PENDING
        assert defer.message.startswith(f"Machine team-a/{MACHINE} has changed")
        world.machine(addresses=(NODE, "10.0.0.2"))
        assert await world.decide(self.ASKS) == APPROVED

    async def test_foreign_address(self, world: World) -> None:
        assert (await world.refused(self.ASKS)).reason == Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES
        assert world.api.calls == ["get Machine"]
        assert world.approvals == []

    async def test_what_the_request_alone_is_refused_for_costs_no_call(self, world: World) -> None:
        csr = builtin_serving_manifest(usages=["client auth", "digital signature"])
        assert (await world.refused(csr)).reason == Reason.INVALID_USAGES
        assert world.api.calls == []

    async def test_deleting(self, world: World) -> None:
        world.machine(deletionTimestamp="2026-03-01T12:00:00Z")
        assert await world.decide() == APPROVED
        world.policy(certificates={"deletingDuration": "0s"})
        world.api.calls.clear()
        assert (await world.refused()).reason == Reason.MACHINE_DELETING
        assert world.api.calls == ["get", "get Machine"]

    async def test_gone_and_still_known_as_one_that_is_going(self, world: World) -> None:
        world.machine(deletionTimestamp="2026-03-01T12:00:00Z")
        world.policy(certificates={"deletingDuration": "0s"})
        world.api.machines.clear()
        assert (await world.deferred()).reason == Reason.RESERVATION_PENDING


class TestCredential:
    async def test_foreign(self, world: World) -> None:
        assert (await world.refused(named("00" * 32))).reason == Reason.FOREIGN_CREDENTIAL
        assert world.api.calls == ["get"]
        assert world.approvals == []

    async def test_that_another_replica_issued_a_moment_ago(self, world: World) -> None:
        newer = record().with_entry(
            journal_entry(2, certificate_digest="11" * 32), machine=machine_view(), identity=record().identity
        )
        world.record(newer, seen=False)
        assert await world.decide(named("11" * 32)) == APPROVED

    async def test_two(self, world: World) -> None:
        csr = named(DIGEST)
        csr["spec"]["extra"]["authentication.kubernetes.io/credential-id"] *= 2
        assert (await world.refused(csr)).reason == Reason.FOREIGN_CREDENTIAL


class TestLeftAlone:
    @pytest.fixture
    def world(self) -> World:
        world = World()
        world.policy(mode="Observe")
        return world

    async def test_what_would_be_approved(self, world: World) -> None:
        world.api.listed = [None]  # a list would raise: this makes no call
        assert await world.decide() == LeftAlone(APPROVED)
        assert world.api.calls == []

    async def test_what_would_be_denied(self, world: World) -> None:
        left = await world.decide(named("00" * 32))
        assert isinstance(left, LeftAlone)
        assert isinstance(left.instead_of, Deny)
        assert left.instead_of.reason == Reason.FOREIGN_CREDENTIAL
        assert world.api.calls == []

    async def test_what_would_wait(self, world: World) -> None:
        world.caches.records.forget("team-a", record().name)
        left = await world.decide()
        assert isinstance(left.instead_of, Defer)
        assert left.instead_of.reason == Reason.NODE_NOT_ATTESTED

    async def test_what_cannot_be_read(self, world: World) -> None:
        left = await world.builtin_serving.decide(malformed(), DecisionInputs())
        assert isinstance(left, LeftAlone)
        assert isinstance(left.instead_of, Deny)

    @pytest.mark.parametrize(
        ("mode", "setting", "alone"),
        [
            ("Observe", "FollowMode", True),
            ("Enforce", "FollowMode", False),
            ("Observe", "Approve", False),
            ("Enforce", "Ignore", True),
        ],
    )
    async def test_by_the_policy(self, world: World, mode: str, setting: str, alone: bool) -> None:
        world.policy(mode=mode, builtinServingRequests=setting)
        assert isinstance(await world.decide(), LeftAlone) is alone


def malformed() -> MalformedBuiltinServingRequest:
    csr = builtin_serving_manifest()
    csr["spec"]["request"] = "LS0t"
    parsed = parse_signing_request(csr, PROVIDERS)
    assert isinstance(parsed, MalformedBuiltinServingRequest)
    return parsed


async def test_malformed(world: World) -> None:
    with pytest.raises(Refused, match="MalformedRequest"):
        await world.builtin_serving.decide(malformed(), DecisionInputs())


async def test_paused_cluster(world: World) -> None:
    world.cluster(paused=True)
    assert (await world.deferred()).reason == Reason.CLUSTER_PAUSED


async def test_without_a_policy_it_waits(world: World) -> None:
    world.caches.policies.forget("team-a", "prod")
    assert (await world.deferred()).reason == Reason.POLICY_INVALID


def test_the_cluster_of_the_tests() -> None:
    assert cluster_view().key == CLUSTER
    assert MachineKey.of(machine_view()) == record().machine


class TestOnlyTheNewest:
    """A kubelet posts another request every quarter of an hour, and waits for that one alone."""

    def posted(self, number: int, minutes: float) -> dict[str, Any]:
        csr = copy.deepcopy(named(DIGEST))
        csr["metadata"].update(
            name=f"csr-{number}", uid=f"uid-{number}", creationTimestamp=format_time(NOW + timedelta(minutes=minutes))
        )
        return csr

    async def test_what_a_kubelet_has_given_up_takes_no_room(self) -> None:
        world = World()
        world.policy(builtinServingRequests="Ignore")
        waiting = [self.posted(number, number - 30) for number in range(12)]
        for csr in waiting:
            await world.decide(csr)
        world.policy(builtinServingRequests="Approve")
        for csr in waiting[:-1]:
            defer = await world.deferred(csr)
            assert (defer.reason, defer.retry_after) == (Reason.RESERVATION_PENDING, None)
            assert "has posted another at 2026-03-01 11:41:00 UTC" in defer.message
        assert isinstance(await world.decide(waiting[-1]), ApproveOnly)
        assert world.approvals == [("csr-11", "uid-11")]

    async def test_the_order_in_which_they_come_is_no_matter(self) -> None:
        world = World()
        newest = await world.decide(self.posted(2, -1))
        assert isinstance(newest, ApproveOnly)
        assert "given this request up" in (await world.deferred(self.posted(1, -2))).message
        assert isinstance(await world.decide(self.posted(2, -1)), ApproveOnly)

    async def test_one_of_a_foreign_certificate_makes_no_other_older(self) -> None:
        """A thief of what kube-controller-manager issued before Enforce would keep the node from its own."""
        world = World()
        csr = self.posted(1, -2)
        foreign = copy.deepcopy(self.posted(2, -1))
        foreign["spec"]["extra"] = named("00" * 32)["spec"]["extra"]
        assert (await world.refused(foreign)).reason == Reason.FOREIGN_CREDENTIAL
        assert isinstance(await world.decide(csr), ApproveOnly)

    async def test_two_of_one_second_are_both_judged(self) -> None:
        world = World()
        for number in (1, 2):
            assert isinstance(await world.decide(self.posted(number, -1)), ApproveOnly)

    async def test_one_of_a_clock_that_is_ahead_makes_no_other_older(self) -> None:
        world = World()
        await world.decide(self.posted(1, 1))
        assert isinstance(await world.decide(self.posted(2, -1)), ApproveOnly)

    async def test_what_was_approved_already_is_approved_again(self) -> None:
        """After a crash between journal and approval."""
        world = World()
        older = self.posted(1, -2)
        await world.decide(older)
        await world.decide(self.posted(2, -1))
        assert isinstance(await world.decide(older), ApproveOnly)

    async def test_longer_names_than_a_node_has_are_not_remembered(self) -> None:
        """A hostile API server would fill the controller's memory with them."""
        world = World()
        csr = self.posted(1, -1)
        longer = csr["spec"]["username"] + "n" * 253
        assert (await world.refused({**csr, "spec": {**csr["spec"], "username": longer}})).reason
        assert not world.builtin_serving._newest
        await world.decide(csr)
        assert [username for username, _ in world.builtin_serving._newest] == [csr["spec"]["username"]]

    async def test_what_is_remembered_is_bounded(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "_KUBELETS", 1)
        world = World()
        await world.decide(self.posted(2, -1))
        other = self.posted(3, -1)
        other["spec"]["username"] = "system:node:other"
        with pytest.raises((Deferred, Refused)):
            await world.decide(other)
        assert isinstance(await world.decide(self.posted(1, -2)), ApproveOnly)


class TestDeniedSince:
    """Identities that the operator denies after they were attested."""

    DENIED = Denied("EndorsementKeyDenied", "the key is on the operator's deny list")

    async def test_an_identity_that_is_still_allowed(self, world: World) -> None:
        assert await world.decide() == APPROVED
        (asked,) = world.attestor.asked
        assert (asked.identity, asked.hardware) == ("ek:1", "")

    async def test_an_attestor_that_denies_no_identities(self, world: World) -> None:
        world.attestor.plugin = SimpleNamespace(pre_filter=no_answer, verify_client=no_answer, verify_serving=no_answer)
        assert await world.decide() == APPROVED
        assert world.attestor.asked == []

    async def test_one_that_is_denied_is_refused_and_not_journaled(self, world: World) -> None:
        world.attestor.standing = self.DENIED
        deny = await world.refused()
        assert (deny.reason, deny.message) == (self.DENIED.reason, self.DENIED.message)
        assert (world.approvals, world.api.calls) == ([], ["get"])

    async def test_again_after_a_crash(self, world: World) -> None:
        """The approval is in the record already, and not on the request."""
        await world.decide()
        world.attestor.standing = self.DENIED
        assert (await world.refused()).reason == self.DENIED.reason

    async def test_while_the_approval_is_written(self, world: World) -> None:
        """Another writer was first, so the checks run again."""

        def deny() -> None:
            world.attestor.standing = self.DENIED
            world.record(record(), seen=False)

        world.api.before_write = deny
        assert (await world.refused()).reason == self.DENIED.reason
        assert world.approvals == []

    async def test_of_a_node_that_has_another_identity_by_now(self, world: World) -> None:
        """The operator denied the former chip and replaced it: the cache does not know yet."""
        other = replace(record(), identity=attested_identity("ek:2"))
        world.attestor.denied_identities = {"ek:1": self.DENIED}
        world.record(other, seen=False)
        pairs = [Pair(one.machine, one.identity) for one in (record(), other)]
        both = [reservation(pair, ReservationSide.IDENTITY) for pair in pairs]
        world.caches.reservations.replaced([*both, reservation(pairs[0], ReservationSide.MACHINE)])
        world.api.before_read = lambda: world.reserve(other)
        assert await world.decide() == APPROVED

    async def test_the_name_of_the_hardware_is_asked_about(self, world: World) -> None:
        pair = Pair(record().machine, record().identity)
        sides = [reservation(one, side) for one in (pair, pair.of_hardware("chip:1")) for side in ReservationSide]
        world.caches.reservations.replaced(sides)
        await world.decide()
        (asked,) = world.attestor.asked
        assert (asked.identity, asked.hardware) == ("ek:1", "chip:1")

    async def test_hardware_that_another_attestor_named_is_not_asked_about(self, world: World) -> None:
        pair, identity = Pair(record().machine, record().identity), record().identity
        former = Pair(pair.machine, replace(identity, provider="composite")).of_hardware("chip:1")
        sides = [reservation(one, side) for one in (pair, former) for side in ReservationSide]
        world.caches.reservations.replaced(sides)
        assert await world.decide() == APPROVED
        assert [one.hardware for one in world.attestor.asked] == [""]

    @pytest.mark.parametrize("changed", ["identity", "seal"])
    async def test_another_name_of_the_hardware_than_the_controller_wrote(self, world: World, changed: str) -> None:
        """Else a writer of reservations could give a denied chip another name."""
        pair = Pair(record().machine, record().identity)
        forged = reservation(pair.of_hardware("chip:1"), ReservationSide.MACHINE)
        other = reservation(pair.of_hardware("chip:2"), ReservationSide.MACHINE)
        forged["spec"][changed] = other["spec"][changed]
        world.caches.reservations.replaced([*(reservation(pair, side) for side in ReservationSide), forged])
        assert (await world.deferred()).reason == Reason.RESERVATION_PENDING
        assert world.attestor.asked == []

    async def test_a_list_that_cannot_be_used_makes_it_wait(self, world: World) -> None:
        world.attestor.standing = NotProvableYet("OperatorFileUnusable", "the list is gone", timedelta(seconds=7))
        defer = await world.deferred()
        assert (defer.reason, defer.retry_after) == ("OperatorFileUnusable", timedelta(seconds=7))
        assert defer.grows
        assert world.approvals == []

    @pytest.mark.parametrize("answer", [True, None, "allowed", StillAllowed, OSError("secret"), SystemExit(1)])
    async def test_another_answer_or_a_fault_of_the_attestor_makes_it_wait(self, world: World, answer: Any) -> None:
        world.attestor.standing = answer
        defer = await world.deferred()
        assert defer.reason == Reason.INTERNAL_ERROR
        assert "attestor tpm" in defer.message
        assert "secret" not in defer.message
        assert world.approvals == []

    async def test_an_attestor_that_cannot_be_prepared_makes_it_wait(self, world: World) -> None:
        world.attestor.plugin = object()
        defer = await world.deferred()
        assert (defer.reason, defer.message) == (
            Reason.ATTESTOR_UNAVAILABLE,
            "attestor tpm: its server plugin has no pre_filter",
        )

    async def test_an_attestor_that_is_no_longer_authorized_is_not_asked(self, world: World) -> None:
        world.policy(authorizedAttestors=[{"name": "aws"}])
        assert (await world.deferred()).reason == Reason.NODE_NOT_ATTESTED
        assert world.attestor.asked == []

    async def test_left_alone_it_is_reported_without_a_call(self, world: World) -> None:
        world.policy(mode="Observe")
        world.attestor.standing = self.DENIED
        left = await world.decide()
        assert isinstance(left, LeftAlone)
        assert isinstance(left.instead_of, Deny)
        assert (left.instead_of.reason, world.api.calls) == (self.DENIED.reason, [])
