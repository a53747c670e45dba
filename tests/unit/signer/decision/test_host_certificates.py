"""What the issuer of host certificates does around its rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from cryptography import x509

from attestors.wire.certificate_request import build
from attestors.wire.names import SSH_HOST_KEYS_OID, Purpose, SignerName
from attestors.wire.node_access import Trust
from attestors.wire.ssh.signatures import public_key_of
from attestors.wire.ssh_host_keys import HostKeysClaim, claim_with, encode
from signer.authority.ssh.authorities import HostAuthority
from signer.decision.host_certificates import (
    HostAuthorityAnswer,
    HostAuthorityNotRead,
    HostCertificateIssuer,
    HostCertificateParts,
    HostKeysBeingCertified,
    NoSigningHostAuthority,
    SigningHostAuthority,
)
from signer.model.cluster import ClusterView
from signer.model.decision import Deferred
from signer.model.host_keys import (
    NO_FORMER,
    NOT_ASKED,
    AttestedHostKeys,
    FormerHostCertificates,
    HostCertificateReason,
    HostCertificatesIssued,
    HostCertificatesRefused,
)
from signer.model.record import AttestedNode
from signer.model.seal import ControllerKeys
from signer.model.serving_facts import ServingFacts
from signer.model.signing_request import SigningRequest
from signer.rules.machine import MachineFacts, NoRecord
from signer.store.records import RecordChanged
from tests.support.openssh import private_key
from tests.unit.signer.builders import (
    CLUSTER,
    NODE,
    PROVIDER_ID,
    blocks,
    cluster_view,
    ec_key,
    machine_facts,
    manifest,
    policy,
    public_key_info,
    record,
    signing_request,
)

HOST_KEY, OTHER = private_key("ed25519"), private_key("ed25519", 1)
ON: Final = policy(ssh={})


def authority(seed: int = 100) -> SigningHostAuthority:
    host = HostAuthority(cast("Any", private_key("ed25519", seed)))
    user = public_key_of(private_key("ed25519", 200))
    return SigningHostAuthority(host, Trust((user,), (), (host.public_key,), 7))


class World:
    """An issuer with caches that hold nothing."""

    def __init__(self) -> None:
        self.answer: HostAuthorityAnswer = authority()
        self.keys = ControllerKeys(b"k" * 32)
        self.now = 0.0
        self.noted: list[Any] = []
        authentic = SimpleNamespace(keys=lambda: self.keys, with_host_key=lambda key: ())
        self.cluster: ClusterView | None = cluster_view()
        self.record: AttestedNode | NoRecord = NoRecord()
        self.written: list[AttestedNode] = []
        self.before_write: list[Callable[[], None]] = []
        """Each is called once, before a write that fails as another client wrote."""
        caches = SimpleNamespace(
            authentic=authentic,
            names=SimpleNamespace(conflicting_names=lambda machine, names: frozenset()),
            clusters=SimpleNamespace(get=lambda *_: self.cluster),
        )
        records = SimpleNamespace(recorded=lambda cluster, name: self.record, write=self._write)
        serving = SimpleNamespace(facts=lambda *_: ServingFacts())
        self.issuer = HostCertificateIssuer(
            CLUSTER,
            HostCertificateParts(lambda key: self.answer),
            *cast("Any", (caches, records, serving, lambda: self.now)),
        )

    async def _write(self, record: AttestedNode, cluster: ClusterView) -> None:
        if self.before_write:
            self.before_write.pop(0)()
            raise RecordChanged(record.name)
        self.written.append(record)

    def plan(self, request: SigningRequest, facts: MachineFacts) -> Any:
        return self.issuer.plan(request, facts, self.noted.append)


@pytest.fixture
def world() -> World:
    return World()


def asking(*keys: Any, purpose: Purpose = Purpose.CLIENT) -> SigningRequest:
    claims = tuple(claim_with(key, public_key_info(ec_key())) for key in keys or (HOST_KEY,))
    further = [x509.UnrecognizedExtension(x509.ObjectIdentifier(SSH_HOST_KEYS_OID), encode(HostKeysClaim(3, claims)))]
    der = build(ec_key(), node_name=NODE, provider_id=PROVIDER_ID, further=further)
    request = signing_request(manifest(blocks(der)))
    signer = SignerName(purpose, request.header.signer.provider)
    return replace(request, header=replace(request.header, signer=signer))


def facts(**changes: Any) -> MachineFacts:
    return machine_facts(policy=ON, **changes)


async def test_the_same_record_gives_the_same_bytes(world: World) -> None:
    planned = world.plan(asking(), facts())
    assert isinstance(planned, AttestedHostKeys)
    kept = replace(record(), ssh=planned)
    first = await world.issuer.issue(planned, kept)
    again = await world.issuer.issue_again(asking(), facts(), kept)
    assert isinstance(first, HostCertificatesIssued)
    assert first == again


async def test_after_a_rotation_of_the_controller_key(world: World) -> None:
    planned = world.plan(asking(), facts())
    kept = replace(record(), ssh=planned)
    first = await world.issuer.issue(planned, kept)
    world.keys = ControllerKeys(b"n" * 32, b"k" * 32)
    assert await world.issuer.issue_again(asking(), facts(), kept) == first
    world.keys = ControllerKeys(b"n" * 32)
    assert why(await world.issuer.issue_again(asking(), facts(), kept)) is HostCertificateReason.NOT_JOURNALED


async def test_what_would_live_longer_than_the_policy_lets_it_now_is_not_signed_again(world: World) -> None:
    """A workload API server could keep the answer waiting from before the operator's floor."""
    kept = replace(record(), ssh=world.plan(asking(), facts()))
    shorter = machine_facts(policy=policy(ssh={"hostCertificateDuration": "1h"}))
    assert why(await world.issuer.issue_again(asking(), shorter, kept)) is HostCertificateReason.NOT_JOURNALED
    fresh = cast("AttestedHostKeys", world.plan(asking(), shorter))
    issued = await world.issuer.issue_again(asking(), shorter, replace(kept, ssh=fresh))
    assert isinstance(issued, HostCertificatesIssued)


async def test_two_entries_have_two_nonces(world: World) -> None:
    certificates = []
    for _ in range(2):
        planned = world.plan(asking(), facts())
        issued = await world.issuer.issue(planned, replace(record(), ssh=planned))
        certificates.append(cast("HostCertificatesIssued", issued).certificates)
    assert certificates[0] != certificates[1]


def why(answer: Any) -> HostCertificateReason:
    assert isinstance(answer, HostCertificatesRefused)
    return answer.reason


async def test_another_authority_signs_no_entry_of_the_former(world: World) -> None:
    planned = world.plan(asking(), facts())
    world.answer = authority(101)
    kept = replace(record(), ssh=planned)
    assert why(await world.issuer.issue_again(asking(), facts(), kept)) is HostCertificateReason.NOT_JOURNALED


async def test_a_repeated_answer_is_for_the_host_keys_of_the_request(world: World) -> None:
    kept = replace(record(), ssh=world.plan(asking(), facts()))
    assert why(await world.issuer.issue_again(asking(OTHER), facts(), kept)) is HostCertificateReason.NOT_JOURNALED
    assert why(await world.issuer.issue_again(asking(), facts(), record())) is HostCertificateReason.NOT_JOURNALED


@pytest.mark.parametrize("asked", [lambda: asking(purpose=Purpose.SERVING), signing_request])
def test_what_asks_for_none_gets_none(world: World, asked: Callable[[], SigningRequest]) -> None:
    assert world.plan(asked(), facts()) == NOT_ASKED
    assert world.noted == []


def test_a_policy_without_ssh_gets_none(world: World) -> None:
    assert world.plan(asking(), machine_facts()) == NOT_ASKED


def test_an_authority_that_may_not_sign(world: World) -> None:
    world.answer = NoSigningHostAuthority("Paused: the Cluster is paused")
    assert why(world.plan(asking(), facts())) is HostCertificateReason.AUTHORITIES_NOT_AVAILABLE
    assert world.noted[-1].unavailable == "Paused: the Cluster is paused"


def test_a_controller_that_just_started_waits_for_its_authorities_and_not_for_long(world: World) -> None:
    world.answer = HostAuthorityNotRead()
    for now in (0.0, 9.9):
        world.now = now
        with pytest.raises(Deferred):
            world.plan(asking(), facts())
    world.now = 10.0
    assert why(world.plan(asking(), facts())) is HostCertificateReason.AUTHORITIES_NOT_AVAILABLE


def test_it_waits_for_them_after_each_disconnection(world: World) -> None:
    """Then they are read anew. The wait of the start is long over."""
    for now in (0.0, 1000.0, 2000.0):
        world.now, world.answer = now, HostAuthorityNotRead()
        with pytest.raises(Deferred):
            world.plan(asking(), facts())
        world.answer = authority()
        assert isinstance(world.plan(asking(), facts()), AttestedHostKeys)


def test_two_requests_with_one_key_are_recorded_one_after_the_other() -> None:
    being = HostKeysBeingCertified()
    with being.hold(("one", "two")):
        with pytest.raises(Deferred), being.hold(("two",)):
            pass
        with being.hold(("three",)):
            pass
    with being.hold(("two",)):
        pass


async def after_another(world: World) -> tuple[AttestedNode, HostCertificatesIssued]:
    """A record whose certificates follow those of another authority, and the answer with them."""
    planned = world.plan(asking(), facts())
    kept = replace(planned, former=FormerHostCertificates("SHA256:former", planned.not_after))
    world.record = replace(record(), ssh=kept)
    issued = await world.issuer.issue(kept, world.record)
    assert isinstance(issued, HostCertificatesIssued)
    return world.record, issued


async def test_an_answer_that_was_taken_is_recorded(world: World) -> None:
    kept, issued = await after_another(world)
    await world.issuer.answered(NODE, issued)
    assert isinstance(kept.ssh, AttestedHostKeys)
    assert world.written == [replace(kept, ssh=replace(kept.ssh, former=NO_FORMER))]


async def test_the_first_certificates_cost_no_further_write(world: World) -> None:
    planned = world.plan(asking(), facts())
    world.record = replace(record(), ssh=planned)
    issued = await world.issuer.issue(planned, world.record)
    await world.issuer.answered(NODE, cast("HostCertificatesIssued", issued))
    assert world.written == []


async def test_an_answer_says_nothing_of_a_later_request(world: World) -> None:
    kept, issued = await after_another(world)
    assert isinstance(kept.ssh, AttestedHostKeys)
    later = replace(kept.ssh.host_keys[0], serial_number=kept.ssh.host_keys[0].serial_number + 1)
    world.record = replace(kept, ssh=replace(kept.ssh, host_keys=(later,)))
    await world.issuer.answered(NODE, issued)
    world.record = NoRecord()
    await world.issuer.answered(NODE, issued)
    assert world.written == []


@pytest.mark.parametrize("cluster", [None, cluster_view(paused=True)], ids=["gone", "paused"])
async def test_where_the_cluster_may_be_moving_nothing_is_written(world: World, cluster: ClusterView | None) -> None:
    _, issued = await after_another(world)
    world.cluster = cluster
    await world.issuer.answered(NODE, issued)
    assert world.written == []


async def test_a_record_that_others_write_is_read_again_and_not_for_ever(world: World) -> None:
    kept, issued = await after_another(world)
    assert isinstance(kept.ssh, AttestedHostKeys)
    other = replace(kept, ssh=replace(kept.ssh, trust_version=99))

    def changes() -> None:
        world.record = other

    world.before_write = [changes]
    await world.issuer.answered(NODE, issued)
    assert isinstance(other.ssh, AttestedHostKeys)
    assert world.written == [replace(other, ssh=replace(other.ssh, former=NO_FORMER))]
    world.before_write = [changes] * 9
    with pytest.raises(RecordChanged):
        await world.issuer.answered(NODE, issued)
