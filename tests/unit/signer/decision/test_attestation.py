"""What an attestor is told of the Machine that a request claims, and of whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, cast

import pytest

from attestors.contract import (
    AttestationRequest,
    ClaimedMachine,
    Denied,
    MachineRole,
    NoClaimedMachine,
    NodeCredential,
    NotProvableYet,
    OtherToken,
    Outcome,
    Plausible,
    PreFiltered,
    RecordedIdentity,
    TokenNotTraceableNow,
    TokenOfMachine,
)
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.controller.telemetry.logs import describe_exception
from signer.decision import attestation
from signer.decision.attestation import Attestation, AttestationRequests
from signer.decision.attestor_set import AttestorSet, AttestorTimings, ReadyAttestor
from signer.decision.authority_sharing import AuthoritySharing
from signer.decision.authority_source import AuthoritySource
from signer.decision.lookups import ConfinedLookups, Lookups
from signer.decision.snapshot import Snapshot
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINE_POOLS_V1BETA2, MACHINES_V1BETA2
from signer.model.bootstrap_token import NodeAsks, TokenAsks, TokenOwner, TracedTo, TracingInterrupted, Untraceable
from signer.model.cluster import ClusterKey, MachineView
from signer.model.decision import Defer, Deferred
from signer.model.floors import NO_FLOORS
from signer.model.reasons import Reason
from signer.model.record import AttestedNode
from signer.model.reservation import FROM_RECORD, Basis, Pair, ReservationSide
from signer.model.seal import ControllerKeys
from signer.rules.shape import node_name_of
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.support.reservations import ATTESTED, reservation_spec
from tests.unit.signer.builders import (
    BOOTSTRAP,
    CLUSTER,
    NOW,
    PROVIDER_ID,
    TPM,
    attested_identity,
    cluster_view,
    machine_view,
    policy,
    record,
    signing_request,
)
from tests.unit.signer.store.test_authentic_records import KEYS, ROTATED, manifest

VERSION: Final = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)
SAID: Final = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: "sha256:" + "ab" * 32}


class Asked:
    """A server plugin, and the set of attestors that has it alone."""

    def __init__(self) -> None:
        self.requests: list[AttestationRequest] = []

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        self.requests.append(request)
        return Plausible()

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        return NotProvableYet("NotYet", "later", timedelta(seconds=10))

    def ready(self, provider: str) -> ReadyAttestor:
        return ReadyAttestor(TPM, cast("Any", self))


class Tokens:
    """What tracing says."""

    def __init__(self) -> None:
        self.asked: list[tuple[ClusterKey, str]] = []
        self.answer: NodeAsks | TokenAsks = TokenAsks(Untraceable())

    def asks(self, cluster: ClusterKey, username: str) -> NodeAsks | TokenAsks:
        self.asked.append((cluster, username))
        return self.answer


class World:
    def __init__(self) -> None:
        self.caches = Caches(VERSION, own_namespace="own", floors=NO_FLOORS)
        self.caches.authentic.use_keys(KEYS)
        self.tokens = Tokens()
        self.lookups = cast("Lookups", object())
        self.clock = 0.0
        self.held: list[tuple[str, float]] = []
        timings = AttestorTimings(lambda provider, seconds: self.held.append((provider, seconds)), lambda: self.clock)
        attestation_requests = AttestationRequests(
            CLUSTER, self.caches, cast("BootstrapTokens", self.tokens), self.lookups
        )
        self._attestation = Attestation(
            CLUSTER, cast("AuthoritySource", None), cast("AuthoritySharing", None), attestation_requests, timings
        )

    def reserve(self, basis: Basis = ATTESTED) -> None:
        """Reserve the pair of every record."""
        for one in self.caches.authentic.values():
            pair = Pair(one.machine, one.identity)
            for side in ReservationSide:
                metadata = {"namespace": "own", "name": pair.name(side), "uid": side.value, "resourceVersion": "1"}
                spec = reservation_spec(side, pair, basis, KEYS)
                self.caches.reservations.applied({"metadata": metadata, "spec": spec})

    def add_record(self, made: AttestedNode, keys: ControllerKeys = KEYS) -> None:
        self.caches.records.applied(manifest(made, keys=keys))

    def add_machine(self, name: str, provider_id: str = PROVIDER_ID, cluster: str = CLUSTER.name, **more: Any) -> None:
        metadata = {"namespace": CLUSTER.namespace, "name": name, "uid": name, "annotations": SAID, **more}
        self.caches.machines.applied(
            {"metadata": metadata, "spec": {"clusterName": cluster, "providerID": provider_id}}
        )

    def add_pool(self, name: str, *provider_ids: str) -> None:
        metadata = {"namespace": CLUSTER.namespace, "name": name, "uid": name, "annotations": SAID}
        spec = {"clusterName": CLUSTER.name, "providerIDList": list(provider_ids)}
        self.caches.machine_pools.applied({"metadata": metadata, "spec": spec})

    def told(self) -> AttestationRequest:
        asked = Asked()
        snapshot = Snapshot(cluster_view(), policy(), cast("AttestorSet", asked), NOW)
        self.pre_filter(snapshot)
        (request,) = asked.requests
        return request

    def pre_filter(self, snapshot: Snapshot) -> None:
        assert self._attestation.pre_filter(signing_request(), snapshot, TPM) == Plausible()

    async def attest(self, asked: Asked) -> None:
        """What is checked before the attestor is asked passes."""
        snapshot, request = Snapshot(cluster_view(), policy(), cast("AttestorSet", asked), NOW), signing_request()
        claim = self._attestation.claim(request, node_name_of(request), snapshot, TPM, lambda compares: None)
        await self._attestation.answer(claim.attestation, request, snapshot, lambda compares: None)

    async def retry_after(self) -> timedelta | None:
        """When what is not provable yet is judged again."""
        with pytest.raises(Deferred) as raised:
            await self.attest(Asked())
        return raised.value.defer.retry_after


@pytest.fixture
def world() -> World:
    return World()


def test_what_the_management_cluster_says_of_the_machine(world: World) -> None:
    world.add_machine("worker-1", annotations={**SAID, "example.com/note": "of somebody else"})
    assert world.told().machine == ClaimedMachine("worker-1", SAID)
    assert world.told().provider_id == PROVIDER_ID
    assert world.told().now == NOW


def test_it_cannot_be_changed(world: World) -> None:
    world.add_machine("worker-1")
    machine = world.told().machine
    assert isinstance(machine, ClaimedMachine)
    with pytest.raises(TypeError):
        cast("Any", machine.annotations)["key"] = "value"


def test_a_machine_of_which_nobody_says_anything(world: World) -> None:
    world.add_machine("worker-1", annotations={})
    assert world.told().machine == ClaimedMachine("worker-1", {})


def assert_told_nothing(world: World, reason: Reason) -> None:
    """The attestor does not hear of it, and nothing is judged again soon that nothing wakes."""
    with pytest.raises(Deferred) as caught:
        world.told()
    assert caught.value.defer.reason == reason
    assert caught.value.defer.retry_after == timedelta(minutes=5)


def test_no_machine(world: World) -> None:
    world.add_machine("another", "test:///another")
    world.add_machine("of-another-cluster", cluster="lab")
    assert_told_nothing(world, Reason.MACHINE_NOT_FOUND)


async def test_a_near_miss_says_what_differs(world: World) -> None:
    world.add_machine("near", PROVIDER_ID.replace("eu-west-1a", "eu-west-1b"))
    with pytest.raises(Deferred) as caught:
        await world.attest(Asked())
    assert caught.value.defer.message == (
        f"no Machine has provider ID {PROVIDER_ID} yet; the nearest is Machine team-a/near with "
        f"{PROVIDER_ID.replace('eu-west-1a', 'eu-west-1b')}: the availability zone is eu-west-1a in the request and "
        "eu-west-1b in the Machine"
    )


def test_a_machine_that_is_gone(world: World) -> None:
    world.add_machine("worker-1")
    world.caches.machines.removed({"metadata": {"namespace": CLUSTER.namespace, "name": "worker-1"}})
    assert_told_nothing(world, Reason.MACHINE_NOT_FOUND)


def test_of_two_machines_with_one_provider_id_it_is_neither(world: World) -> None:
    """Else a tenant's second Machine would say which TPM is in the first."""
    world.add_machine("worker-1")
    world.add_machine("worker-2")
    assert_told_nothing(world, Reason.MACHINE_AMBIGUOUS)


def test_an_instance_of_a_pool_is_no_machine(world: World) -> None:
    """What the pool's annotations say is of no instance of it."""
    world.add_pool("pool", PROVIDER_ID)
    assert world.told().machine == NoClaimedMachine(pool="pool")


def test_a_machine_beside_a_pools_instance_is_neither(world: World) -> None:
    world.add_pool("pool", PROVIDER_ID)
    world.add_machine("worker-1")
    assert_told_nothing(world, Reason.MACHINE_AMBIGUOUS)


def test_the_machine_of_a_pool_is_one(world: World) -> None:
    world.add_pool("pool", PROVIDER_ID)
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": "pool", "uid": "pool"}
    world.add_machine("pool-1", ownerReferences=[owner])
    assert world.told().machine == ClaimedMachine("pool-1", SAID, MachineRole.POOL_MEMBER)


def test_a_machine_of_the_control_plane(world: World) -> None:
    world.add_machine("control-plane-1", labels={"cluster.x-k8s.io/control-plane": ""})
    assert world.told().machine == ClaimedMachine("control-plane-1", SAID, MachineRole.CONTROL_PLANE)


# What is recorded for it


def test_what_this_attestor_proved_before(world: World) -> None:
    world.add_machine("worker-1")
    world.add_record(record(machine_view(name="worker-1", uid="worker-1")))
    world.reserve()
    assert world.told().machine == ClaimedMachine("worker-1", SAID, recorded=RecordedIdentity("ek:1"))


def test_what_another_attestor_proved_is_not_this_ones(world: World) -> None:
    world.add_machine("worker-1")
    aws = replace(attested_identity(), provider="aws")
    world.add_record(replace(record(machine_view(name="worker-1", uid="worker-1")), identity=aws))
    assert world.told().machine == ClaimedMachine("worker-1", SAID)


@pytest.mark.parametrize("former", [{"name": "worker-2"}, {"uid": "former"}, {"provider_id": "test:///former"}])
def test_what_was_recorded_for_another_machine_is_not_this_ones(world: World, former: dict[str, str]) -> None:
    world.add_machine("worker-1")
    world.add_record(record(machine_view(**{"name": "worker-1", "uid": "worker-1", **former})))
    assert world.told().machine == ClaimedMachine("worker-1", SAID)


def test_the_machine_of_a_pool_has_the_record_of_its_instance(world: World) -> None:
    world.add_pool("pool", PROVIDER_ID)
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": "pool", "uid": "pool"}
    world.add_machine("pool-1", ownerReferences=[owner])
    world.add_record(record(machine_view(name="pool-1", uid="pool-1", owner_pool="pool")))
    world.reserve()
    assert world.told().machine == ClaimedMachine("pool-1", SAID, MachineRole.POOL_MEMBER, RecordedIdentity("ek:1"))


@pytest.mark.parametrize("basis", [None, FROM_RECORD], ids=["no reservation", "rebuilt from the record"])
def test_a_record_without_a_reservation_of_its_own_is_not_told(world: World, basis: Basis | None) -> None:
    """The controller key alone can seal it."""
    world.add_machine("worker-1")
    world.add_record(record(machine_view(name="worker-1", uid="worker-1")))
    if basis is not None:
        world.reserve(basis)
    assert world.told().machine == ClaimedMachine("worker-1", SAID)


def test_a_forged_record_is_not_told(world: World) -> None:
    world.add_machine("worker-1")
    world.add_record(record(machine_view(name="worker-1", uid="worker-1")), ControllerKeys(b"o" * 32))
    world.caches.authentic.begin_key_read()
    world.caches.authentic.use_keys(KEYS)
    assert world.told().machine == ClaimedMachine("worker-1", SAID)


def test_a_record_that_cannot_be_verified_yet_makes_it_wait(world: World) -> None:
    """That there is none is only said when it is sure."""
    world.add_machine("worker-1")
    world.add_record(record(machine_view(name="worker-1", uid="worker-1")), ROTATED)
    with pytest.raises(Deferred, match="not read yet"):
        world.told()


# Who asks


def test_whose_token_it_is(world: World) -> None:
    world.add_machine("worker-1")
    world.tokens.answer = TokenAsks(
        TracedTo(frozenset({TokenOwner(CLUSTER.namespace, "Machine", "worker-1", "worker-1")}))
    )
    assert world.told().credential == TokenOfMachine()
    assert world.tokens.asked == [(CLUSTER, BOOTSTRAP[0])]


def test_a_token_that_leads_nowhere_or_not_now(world: World) -> None:
    world.add_machine("worker-1")
    assert isinstance(world.told().credential, OtherToken)
    world.tokens.answer = TokenAsks(TracingInterrupted("out of touch"))
    assert world.told().credential == TokenNotTraceableNow("out of touch")


def test_a_node_asks(world: World) -> None:
    world.add_machine("worker-1")
    world.tokens.answer = NodeAsks()
    assert world.told().credential == NodeCredential()


# What may be looked up


def test_look_ups_are_confined_to_the_claimed_machine(world: World) -> None:
    world.add_machine("worker-1")
    world.add_machine("another", "test:///another")
    machine = world.caches.machines.get(CLUSTER.namespace, "worker-1")
    assert isinstance(machine, MachineView)
    assert world.told().management == ConfinedLookups(world.lookups, CLUSTER, machine)


def test_an_instance_of_a_pool_has_nothing_to_look_at(world: World) -> None:
    world.add_pool("pool", PROVIDER_ID)
    assert world.told().management == ConfinedLookups(world.lookups, CLUSTER, NoClaimedMachine(pool="pool"))


# When it is judged again


async def test_what_has_a_machine_is_judged_again_when_the_attestor_says(world: World) -> None:
    world.add_machine("worker-1")
    assert await world.retry_after() == timedelta(seconds=10)


async def test_so_is_an_instance_of_a_pool(world: World) -> None:
    world.add_pool("pool", PROVIDER_ID)
    assert await world.retry_after() == timedelta(seconds=10)


async def test_what_nothing_in_the_cluster_claims_is_not_judged_again_soon(world: World) -> None:
    """Thousands of invented provider IDs would keep the controller busy; a Machine that appears wakes its own."""
    assert await world.retry_after() == timedelta(minutes=5)


class OutOfTime(Asked):
    """One that gives up by itself, as a library's socket does, or that never answers."""

    def __init__(self, *, by_itself: bool) -> None:
        super().__init__()
        self._by_itself = by_itself

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        if self._by_itself:
            raise TimeoutError("a socket's")
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody answers")


async def test_an_attestor_that_does_not_answer_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.add_machine("worker-1")
    monkeypatch.setattr(attestation, "_ATTESTATION_SECONDS", 0.0)
    with pytest.raises(Deferred, match="did not answer within"):
        await world.attest(OutOfTime(by_itself=False))


async def test_its_own_running_out_of_time_is_not_told_as_ours(world: World) -> None:
    """It is logged where every fault of an attestor is, with the place that it came from."""
    world.add_machine("worker-1")
    with pytest.raises(Deferred, match="attestor tpm failed with TimeoutError; see"):
        await world.attest(OutOfTime(by_itself=True))


class Blocking(Asked):
    """One that waits without letting others go on: in its screen, before it is awaited, and then."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        self._world.clock += 1
        return super().pre_filter(request)

    def verify_client(self, request: AttestationRequest) -> Any:
        self._world.clock += 2
        return self._verify(request)

    async def _verify(self, request: AttestationRequest) -> Outcome:
        self._world.clock += 3
        return await super().verify_client(request)


async def test_an_attestor_that_holds_up_the_event_loop_is_told_of(world: World) -> None:
    world.add_machine("worker-1")
    blocking = Blocking(world)
    snapshot = Snapshot(cluster_view(), policy(), cast("AttestorSet", blocking), NOW)
    world.pre_filter(snapshot)
    with pytest.raises(Deferred) as waits:
        await world.attest(blocking)
    assert waits.value.defer == Defer("NotYet", "later", timedelta(seconds=10), grows=True)
    assert world.held == [("tpm", 1.0), ("tpm", 2.0), ("tpm", 3.0)]


class Forgetful(Asked):
    """One without a type checker: it forgets to return what it found, or returns something else."""

    def __init__(self, answer: object) -> None:
        super().__init__()
        self._answer = answer

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        return cast("Outcome", self._answer or request)


@pytest.mark.parametrize(("answer", "told"), [(True, "bool"), ("Attested", "str"), (None, "AttestationRequest")])
async def test_an_answer_that_is_no_outcome_is_told_as_the_attestors(answer: object, told: str, world: World) -> None:
    """The request itself has a binding and a provider ID, too."""
    world.add_machine("worker-1")
    with pytest.raises(Deferred, match=f"attestor tpm returned {told}, which is no outcome") as deferred:
        await world.attest(Forgetful(answer))
    assert deferred.value.defer.reason == Reason.INTERNAL_ERROR


class Exiting(Asked):
    """One that calls what was made for a command line."""

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        raise SystemExit(2)


async def test_an_attestor_does_not_end_the_controller(world: World) -> None:
    """Nothing but the event loop's end would become of it, and no cluster's nodes would be let in."""
    world.add_machine("worker-1")
    with pytest.raises(Deferred, match="attestor tpm failed with SystemExit; see the controller's log"):
        await world.attest(Exiting())


class Panic(BaseException):
    """As what PyO3 raises where Rust code panics."""


class Failing(Asked):
    """One that does by mistake what a test says."""

    def __init__(self, mistake: Callable[[], object]) -> None:
        super().__init__()
        self._mistake = mistake

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        return cast("Outcome", self._mistake())


class NotAsync(Failing):
    """One that forgets the ``async``."""

    def verify_client(self, request: AttestationRequest) -> Any:
        return self._mistake()


def _raised(error: BaseException) -> Callable[[], object]:
    def mistake() -> object:
        raise error

    return mistake


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (Failing(_raised(ValueError("password=hunter2"))), "failed with ValueError; see the controller's log"),
        (Failing(lambda: Denied("Wrong", "x" * 513)), "InvalidOutcome: a message has 1 to 512 printable characters;"),
        (Failing(_raised(asyncio.CancelledError())), "failed with CancelledError; see the controller's log"),
        (Failing(_raised(Panic("hunter2"))), "failed with Panic; see the controller's log"),
        (NotAsync(lambda: Denied("Wrong", "x")), "what it verifies with is not async"),
    ],
)
async def test_a_fault_of_an_attestor_is_told_as_its_own(
    asked: Asked, says: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A shared task of its own that was cancelled, too: it is not the worker that is to end."""
    world.add_machine("worker-1")
    with pytest.raises(Deferred) as deferred:
        await world.attest(asked)
    decided = deferred.value.defer
    assert decided.reason == Reason.INTERNAL_ERROR
    assert decided.message.startswith("attestor tpm")
    assert says in decided.message
    assert "hunter2" not in decided.message
    if "see the controller's log" in decided.message:
        (told,) = [describe_exception(one.exc_info[1]) for one in caplog.records if one.exc_info and one.exc_info[1]]
        assert any(place.startswith("test_attestation.py:") for place in told), "where its own code failed"


async def test_who_is_to_end_ends_within_an_attestor(world: World) -> None:
    world.add_machine("worker-1")
    judged = asyncio.create_task(world.attest(OutOfTime(by_itself=False)))
    await asyncio.sleep(0.05)
    judged.cancel()
    with pytest.raises(asyncio.CancelledError):
        await judged
