"""The trust bundle, from the policy to what a node accepts, by the real reconcilers; the workload cluster in memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire import statement
from attestors.wire.ssh.certificate import NONCE_BYTES, Certificate, CertificateKind
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import PublicKey
from attestors.wire.ssh.krl import (
    AnyAuthority,
    CertificateRevocations,
    Fingerprint,
    RevocationList,
    SerialRange,
    parse_revocation_list,
)
from attestors.wire.ssh.principals import PlainPrincipal
from attestors.wire.statement import (
    MAXIMUM_NODE_ACCESS_TRUST_BYTES,
    AcceptedNodeAccessTrust,
    PinnedController,
    SignedStatement,
    accept_node_access_trust,
    authorities_in,
)
from attestors.wire.statement.names import NODE_ACCESS_CONFIG_MAP, STATEMENT_NAMESPACE
from signer.authority import CertificateAuthority
from signer.controller.ssh_bundle import SSHBundleService
from signer.controller.telemetry.metrics_collector import SSH_TRUST
from signer.kube.errors import AlreadyExists, ApiError, Cause, Conflict, Forbidden, NotFound, Unreachable
from signer.kube.resources import MACHINES_V1BETA2, SECRETS
from signer.model.seal import ControllerKeys
from signer.ssh.bundle.content import (
    LIFETIME,
    BundleFacts,
    TooManyRevocations,
    render,
    renew_spread_seconds,
    revocation_list,
)
from signer.ssh.bundle.reconciler import BundleReconciler, SignersUnavailable
from signer.ssh.reports import Reports
from signer.ssh.revocations import LONGEST, PolicyRevocations, PublishedRevocations, Revocation
from signer.store.statements import SIGNED_AGAIN
from tests.support.openssh import public_keys
from tests.support.statements import authority
from tests.unit.signer.ssh.world import CLUSTER, KEY, KEYS, START, Fleet, Process, World, new_line, node, order, run

PATH: Final = f"/api/v1/namespaces/{STATEMENT_NAMESPACE}/configmaps/{NODE_ACCESS_CONFIG_MAP}"
CA: Final = authority("cluster", start=int(START.timestamp()) - 86400 * 9)
NEXT_CA: Final = authority("next", start=int(START.timestamp()) - 86400 * 9)
REVOKED: Final = {"keyIDs": ["grant/one"], "serials": ["7"], "publicKeys": [key_line(public_keys()["nistp256"])]}


class Workload:
    """The objects of the workload cluster."""

    def __init__(self) -> None:
        self.stored: dict[str, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.forbidden: tuple[str, ...] = ()
        """Parts of paths."""
        self.failure: ApiError | None = None
        self.meddle: Callable[[dict[str, Any]], None] = lambda stored: None
        """Another client, right after a write."""

    def _ask(self, path: str) -> None:
        if self.failure is not None:
            raise self.failure
        if any(part in path for part in self.forbidden):
            raise Forbidden("not allowed", status=403)

    async def get(self, path: str) -> dict[str, Any]:
        self._ask(path)
        if path not in self.stored:
            raise NotFound("no such object", status=404)
        return copy.deepcopy(self.stored[path])

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._ask(path)
        place = f"{path}/{body['metadata']['name']}"
        if place in self.stored:
            raise AlreadyExists("exists", status=409)
        return self._store(place, body)

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._ask(path)
        if body["metadata"]["resourceVersion"] != self.stored[path]["metadata"]["resourceVersion"]:
            raise Conflict("changed", status=409)
        return self._store(path, body)

    def _store(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.writes.append(path)
        stored = copy.deepcopy(body)
        stored["metadata"]["resourceVersion"] = str(len(self.writes))
        if path == PATH:
            self.meddle(stored)
        self.stored[path] = stored
        return stored

    @property
    def text(self) -> str:
        found: str = self.stored[PATH]["data"]["statement"]
        return found

    def put(self, text: str) -> None:
        """The owner of the workload cluster writes it."""
        self.stored[PATH]["data"]["statement"] = text

    @property
    def signed(self) -> SignedStatement:
        return statement.decode(self.text.encode(), maximum_bytes=MAXIMUM_NODE_ACCESS_TRUST_BYTES)

    @property
    def sequence(self) -> int:
        return self.signed.statement.sequence


class Published:
    """A controller that publishes."""

    def __init__(self, process: Process, workload: Workload | None = None) -> None:
        self.process, self.world = process, process.world
        self.workload = workload or Workload()
        self.signers: tuple[CertificateAuthority, ...] = (CA,)
        self.more: tuple[Revocation, ...] = ()
        self.changes = 0
        from_policy = PolicyRevocations(process.caches)
        self.published = PublishedRevocations(lambda: self.world.now)
        self.reconciler = BundleReconciler(
            KEY,
            caches=process.caches,
            authorities_of=process.authorities.of,
            revocations_of=lambda key: (*from_policy.of(key), *self.published.of(key), *self.more),
            published=self.published,
            signers=self._signers,
            changed=self._changed,
            now=lambda: self.world.now,
            random=Random(0),
        )

    async def _signers(self) -> tuple[CertificateAuthority, ...]:
        if not self.signers:
            raise SignersUnavailable("no CA")
        return self.signers

    def _changed(self) -> None:
        self.changes += 1

    @classmethod
    async def started(cls, ssh: Any) -> Published:
        process = await Process.started(World(ssh=ssh))
        await process.until_it_waits()
        return cls(process)

    async def choose(self, ssh: Any) -> str:
        """Change the policy; the condition after that."""
        self.world.choose(ssh)
        await self.process.until_it_waits()
        return await self.look()

    async def look(self) -> str:
        await self.reconciler.look(self.workload)
        return next((f"{one.reason}: {one.message}" for one in self.reconciler.conditions), "")

    def accepted(self, ca: CertificateAuthority = CA, *, last: int = 0) -> AcceptedNodeAccessTrust:
        """What a node makes of it that pinned the keys at its join."""
        uid = self.world.found(CLUSTER)["metadata"]["uid"]
        return accept_node_access_trust(
            self.workload.signed,
            trusted=authorities_in([ca.certificate.der]),
            pin=PinnedController(
                replace(self.workload.signed.statement.cluster, namespace=KEY.namespace, name=KEY.name, uid=uid),
                self.process.caches.authentic.statement_keys().public,
                1,
            ),
            last_sequence=last,
            now=int(self.world.now.timestamp()),
        )


def test_it_tells_nodes_to_attest_while_a_rotation_waits_for_that() -> None:
    async def scenario() -> None:
        published = await Published.started({})
        process, world = published.process, published.world
        fleet = Fleet(process, "a", "b")
        fleet.attest()
        fleet.attest()
        await process.until_it_waits()
        await published.look()
        assert published.accepted().renew_below == 0
        before = published.workload.sequence
        world.wait(0.01)
        order(world, "start-ssh-ca-rotation")
        await process.until_it_waits()
        await published.look()
        told = published.accepted(last=before)
        assert told.renew_below == told.trust.version == process.available().trust.version
        fleet.attest()
        fleet.attest()
        await process.until_it_waits()
        await published.look()
        prepared = published.accepted(last=told.sequence)
        assert (prepared.renew_below, prepared.trust.version) == (0, told.trust.version), "it waits for a person"

    run(scenario())


@pytest.mark.parametrize(
    ("nodes", "seconds"),
    [(0, 10), (3, 10), (20, 10), (21, 20), (1000, 640), (1280, 640), (5000, 2560), (7200, 3600), (10**6, 3600)],
)
def test_the_fleet_has_its_time(nodes: int, seconds: int) -> None:
    """Three nodes do not wait for minutes, and 5,000 do not come at once: at most two a second, up to 7,200 nodes."""
    assert renew_spread_seconds(7, nodes) == seconds
    assert seconds == 3600 or nodes / seconds <= 2


@given(nodes=st.integers(0, 20_000), more=st.integers(0, 20_000))
def test_a_larger_fleet_never_has_less(nodes: int, more: int) -> None:
    assert 10 <= renew_spread_seconds(1, nodes) <= renew_spread_seconds(1, nodes + more) <= 3600


def test_a_fleet_that_changes_makes_another_bundle_seldom() -> None:
    assert len({renew_spread_seconds(1, nodes) for nodes in range(10_000)}) == 10
    assert {renew_spread_seconds(0, nodes) for nodes in range(10_000)} == {10}, "nobody attests"


def test_the_bundle_counts_the_machines() -> None:
    async def scenario() -> None:
        published = await Published.started({})
        process, world = published.process, published.world
        for number in range(21):
            path = MACHINES_V1BETA2.object(f"machine-{number}", KEY.namespace)
            world.api.put(path, {"spec": {"clusterName": KEY.name}})
        await process.until_it_waits()
        await published.look()
        assert published.accepted().renew_spread_seconds == 10, "nobody attests"
        world.reports = Reports((node("a", 1),))
        order(world, "start-ssh-ca-rotation")
        await process.until_it_waits()
        await published.look()
        assert published.accepted().renew_spread_seconds == 20

    run(scenario())


def user_certificate(signer: PublicKey, **changes: Any) -> Certificate:
    made = Certificate(
        public_key=public_keys()["ed25519"],
        kind=CertificateKind.USER,
        serial=1,
        key_id="somebody",
        principals=(PlainPrincipal("root"),),
        valid_after=0,
        valid_before=2**31,
        authority=signer,
        nonce=bytes(NONCE_BYTES),
    )
    return replace(made, **changes)


def is_revoked(revocations: RevocationList, certificate: Certificate) -> bool:
    try:
        revocations.require_not_revoked(certificate)
    except SSHRefused as refused:
        return refused.reason is SSHReason.REVOKED
    return False


def test_a_node_accepts_what_is_published() -> None:
    async def scenario() -> None:
        published = await Published.started({"breakGlass": {"publicKeys": [{"key": new_line()}]}})
        sequence = int(START.timestamp())
        offered = published.process.available()
        assert await published.look() == f"Published: version {sequence}, trust version {offered.trust.version}"
        assert published.reconciler.status == {"bundleVersion": sequence}
        found = published.accepted()
        assert (found.sequence, found.trust) == (sequence, offered.trust)
        assert (found.revocations.entries, found.revocations.version) == (0, sequence)
        writes = list(published.workload.writes)
        published.world.wait(1)
        await published.look()
        assert published.workload.writes == writes, "written only when something changes"

        [role, binding, path] = writes
        assert path == PATH
        [rule] = published.workload.stored[role]["rules"]
        assert (rule["resourceNames"], rule["verbs"]) == ([NODE_ACCESS_CONFIG_MAP], ["get"])
        assert [one["name"] for one in published.workload.stored[binding]["subjects"]] == ["system:nodes"]

    run(scenario())


def test_revocations_of_the_policy() -> None:
    """For certificates of every authority, break-glass ones included. The trust keeps its version."""

    async def scenario() -> None:
        published = await Published.started({})
        await published.look()
        before = published.accepted()
        await published.choose({"revoked": REVOKED})
        found = published.accepted(last=before.sequence)
        assert found.trust == before.trust, "no host certificate becomes stale"
        for signer in (*found.trust.all_user_authorities, *found.trust.host_authorities, public_keys()["nistp521"]):
            assert not is_revoked(found.revocations, user_certificate(signer))
            assert is_revoked(found.revocations, user_certificate(signer, serial=7))
            assert is_revoked(found.revocations, user_certificate(signer, key_id="grant/one"))
            assert is_revoked(found.revocations, user_certificate(signer, public_key=public_keys()["nistp256"]))

        await published.choose({})
        last = published.accepted(last=found.sequence)
        assert last.revocations.entries == 0, "taken back, under a version of its own"
        assert last.revocations.version > found.revocations.version > before.revocations.version

    run(scenario())


def test_other_parts_may_revoke() -> None:
    async def scenario() -> None:
        published = await Published.started({"revoked": REVOKED})
        user = published.process.available().user.public_key
        published.more = (CertificateRevocations(user, (SerialRange.single(9),)), Fingerprint(bytes(32)))
        await published.look()
        found = published.accepted().revocations
        assert is_revoked(found, user_certificate(user, serial=9))
        assert not is_revoked(found, user_certificate(public_keys()["nistp521"], serial=9))
        assert is_revoked(found, user_certificate(user, serial=7))
        assert found.fingerprints == (Fingerprint(bytes(32)),)

    run(scenario())


@pytest.mark.parametrize("invalid", [None, {"revoked": {"serials": ["0"]}}], ids=["switched off", "invalid policy"])
def test_without_a_valid_policy_no_list_replaces_the_published_one(invalid: Any) -> None:
    """The authorities may still be offered when the policy is read as one without revocations."""

    async def scenario() -> None:
        published = await Published.started({"revoked": REVOKED})
        await published.look()
        before = published.workload.text
        published.world.choose(invalid)
        assert (await published.look()).startswith("RevocationsUnknown: ")
        assert published.reconciler.status == {}
        await published.process.until_it_waits()
        assert await published.look() == ""
        assert published.workload.text == before, "it stays, and so does what nodes have"
        assert await published.choose({"revoked": REVOKED}) != ""
        assert published.workload.text == before

    run(scenario())


def test_too_many_revocations_leave_the_published_list() -> None:
    """Never a part of them."""

    async def scenario() -> None:
        published = await Published.started({"revoked": REVOKED})
        await published.look()
        before = published.workload.text
        too_long = {"keyIDs": [f"{number:01024}" for number in range(1000)]}
        shown = await published.choose({"revoked": too_long})
        assert shown.startswith("TooManyRevocations: 1000 entries need ")
        assert shown.endswith("what nodes have stays as it is")
        assert published.workload.text == before
        service = SSHBundleService(published.reconciler)
        [gauge] = service.gauges()
        assert (gauge.family, gauge.value) == (SSH_TRUST, 0)
        assert [(one.type, one.met) for one in service.conditions] == [("SSHTrustPublished", False)]
        assert not any(one.type.counts_toward_ready(None) for one in service.conditions)
        assert (await published.choose({"revoked": REVOKED})).startswith("Published: ")
        [gauge] = service.gauges()
        assert gauge.value == 1

    run(scenario())
    many = tuple(f"{number}" for number in range(100_001))
    with pytest.raises(TooManyRevocations):
        revocation_list((CertificateRevocations(AnyAuthority(), key_ids=many),), 1)


def test_the_sequence_never_goes_back() -> None:
    async def scenario() -> None:
        published = await Published.started({"revoked": REVOKED})
        await published.look()
        first, text = published.workload.sequence, published.workload.text
        await published.choose({})  # in the same second
        assert published.workload.sequence == first + 1
        second = published.workload.text

        published.world.now -= timedelta(days=1)
        await published.choose({"revoked": REVOKED})
        assert published.workload.sequence == first + 2, "although the clock went back"

        published.workload.put(text)
        await published.look()
        assert published.workload.sequence == first + 2, "an earlier one with the same content is replaced"
        published.workload.put(second)
        await published.look()
        assert published.workload.sequence == first + 2
        assert published.accepted().revocations.entries == 3
        del published.workload.stored[PATH]
        await published.look()
        assert published.workload.sequence == first + 2

        after_restart = Published(published.process, published.workload)
        writes = len(published.workload.writes)
        await after_restart.look()
        assert len(published.workload.writes) == writes
        del published.workload.stored[PATH]
        published.world.wait(2)
        await Published(published.process, published.workload).look()
        assert published.workload.sequence > first + 2

    run(scenario())


def test_it_is_signed_again_in_time_and_for_all_nodes() -> None:
    async def scenario() -> None:
        published = await Published.started({})
        await published.look()
        sequence, text = published.workload.sequence, published.workload.text
        published.world.wait((LIFETIME - SIGNED_AGAIN).days - 0.1)
        await published.look()
        assert published.workload.text == text
        published.world.wait(0.2)
        await published.look()
        assert published.workload.text != text
        assert published.accepted().sequence == sequence, "nodes have nothing to do"

        published.signers = (CA, NEXT_CA)
        await published.look()
        assert published.accepted(NEXT_CA) == published.accepted(CA), "nodes know the cluster by either"
        assert published.workload.sequence == sequence
        published.world.set_keys(ControllerKeys(bytes(32), KEYS.current))
        await published.process.read_key()
        await published.process.until_it_waits()
        await published.look()
        assert len(published.workload.signed.signatures) == 4, "nodes pinned the former key or will pin the next one"
        assert published.accepted().sequence == sequence

    run(scenario())


@pytest.mark.parametrize("written", ["", "nonsense", "foreign"])
def test_what_others_write_is_replaced(written: str) -> None:
    async def scenario() -> None:
        published = await Published.started({})
        await published.look()
        text = published.workload.text
        if written == "foreign":
            other = await Published.started({})
            other.world.set_keys(ControllerKeys(b"x" * 32))
            await other.process.read_key()
            facts = BundleFacts(
                published.workload.signed.statement.cluster, published.process.available().trust, 0, 10, (), (NEXT_CA,)
            )
            keys = other.process.caches.authentic.statement_keys()
            foreign = render(facts, facts.payload(2**50), 2**50, keys, int(START.timestamp()))
            published.workload.put(statement.encode(foreign).decode())
        else:
            published.workload.put(written)
        await published.look()
        assert published.workload.sequence == statement.decode(text.encode(), maximum_bytes=10**6).statement.sequence
        assert published.accepted().trust == published.process.available().trust

    run(scenario())


def test_faults_are_shown_and_nothing_is_claimed() -> None:
    async def scenario() -> None:
        published = await Published.started({})
        published.workload.forbidden = ("configmaps",)
        assert "deploy/rbac/workload-ssh.yaml" in await published.look()
        published.workload.forbidden = ("roles", "rolebindings")
        fresh = Published(published.process, published.workload)
        assert (await fresh.look()).startswith("Published: "), "the manifest of the grants has the readers' one"
        fresh.workload.failure = Unreachable("no answer", cause=Cause.TIMEOUT)
        assert (await fresh.look()).startswith("Failed: Unreachable: no answer")
        fresh.workload.failure = None
        fresh.signers = ()
        assert (await fresh.look()).startswith("Failed: no CA")
        fresh.signers = (CA,)

        def overwrite(stored: dict[str, Any]) -> None:
            stored["data"]["statement"] = "another"

        fresh.workload.meddle = overwrite
        await fresh.choose({"revoked": REVOKED})
        assert (await fresh.look()).startswith("Failed: ConfigMap kube-system/node-access-trust was changed")
        fresh.workload.meddle = lambda stored: None
        assert (await fresh.look()).startswith("Published: ")

    run(scenario())


def test_without_authorities_it_says_so() -> None:
    async def scenario() -> None:
        published = await Published.started({})
        await published.look()
        text = published.workload.text
        published.world.api.edit(CLUSTER, {"spec": {"paused": True}})
        await published.process.until_it_waits()
        assert (await published.look()).startswith("AuthoritiesNotAvailable: Paused: ")
        assert published.workload.text == text

    run(scenario())


# Ended access grants


def grants(*key_ids: str) -> tuple[CertificateRevocations, ...]:
    return (CertificateRevocations(AnyAuthority(), key_ids=key_ids),)


def test_what_ended_grants_revoke_is_kept_over_a_restart() -> None:
    """The list that had them may be lost or an older one, or the wing is switched off since."""

    async def scenario() -> None:
        published = await Published.started({"revoked": {"keyIDs": ["ssh-sign/alice"]}})
        published.more = grants("grant/a/b/u/alice", "other")
        await published.look()
        assert published.published.has(KEY, "grant/a/b/u/alice")
        before = published.workload.sequence
        again = Published(published.process, published.workload)
        assert not again.published.is_found(KEY)
        assert (await again.look()).startswith("Published")
        assert again.workload.sequence == before + 1, "what else was revoked is not kept"
        revoked = parse_revocation_list(again.accepted().revocation_list)
        assert revoked.certificates == (
            CertificateRevocations(AnyAuthority(), key_ids=("grant/a/b/u/alice", "ssh-sign/alice")),
        )
        again.world.wait(LONGEST / timedelta(days=1))
        await again.look()
        assert not again.published.has(KEY, "grant/a/b/u/alice")

    run(scenario())


@pytest.mark.parametrize("how", ["none", "of another key", "garbage", "of another Cluster"])
def test_only_a_bundle_of_this_controller_says_what_was_revoked(how: str) -> None:
    async def scenario() -> None:
        published = await Published.started({})
        published.more = grants("grant/a/b/u/alice")
        await published.look()
        again = Published(published.process, published.workload)
        match how:
            case "none":
                del again.workload.stored[PATH]
            case "of another key":
                again.world.set_keys(ControllerKeys(bytes(reversed(range(32)))))
                await again.process.read_key()
                for name in ("blue-ssh-user", "blue-ssh-host"):
                    again.world.api.remove(SECRETS.object(name, KEY.namespace))
                await again.process.until_it_waits()
            case "of another Cluster":
                text = again.workload.text
                other = statement.decode(text.encode(), maximum_bytes=MAXIMUM_NODE_ACCESS_TRUST_BYTES)
                moved = replace(other.statement, cluster=replace(other.statement.cluster, name="red"))
                again.workload.put(statement.encode(replace(other, statement=moved)).decode())
            case _:
                again.workload.put("garbage")
        assert (await again.look()).startswith("Published")
        assert not again.published.had_one(KEY)
        assert again.published.of(KEY) == ()

    run(scenario())


def test_nothing_is_published_while_what_is_published_cannot_be_read() -> None:
    async def scenario() -> None:
        published = await Published.started({})
        published.workload.failure = Unreachable("no answer", cause=Cause.NETWORK)
        assert (await published.look()).startswith("Failed")
        assert published.workload.writes == []
        published.workload.failure = None
        assert (await published.look()).startswith("Published")

    run(scenario())
