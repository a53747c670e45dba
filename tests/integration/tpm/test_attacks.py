"""Attacks on the TPM attestor, each against the running controller: what the attacker posts, and what it is told.

The TPMs are fakes (``tests.unit.attestors.tpm.fake_tpm``): an attacker is bound by no TPM's rules.
:class:`TestSoftwareTPM` has real ones, and the node's own half.
"""

from __future__ import annotations

import base64
import functools
import gc
import hashlib
import itertools
import sys
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.contract import EvidenceUnavailable
from attestors.tpm import wire
from attestors.tpm.challenge import LIFETIME
from attestors.tpm.constants import ObjectAttribute, SignatureAlgorithm
from attestors.tpm.selection import PCRSelection
from attestors.wire.names import (
    APPROVAL_SEAL_ANNOTATION,
    CHALLENGE_ANNOTATION,
    CHIP_ANNOTATION,
    CHIP_NOT_NAMED,
    ENDORSEMENT_KEY_ANNOTATION,
    ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION,
    ENDORSEMENT_KEY_SOURCE_ANNOTATION,
    Purpose,
)
from signer.configuration import OperatorAttestor
from signer.controller.run import ControllerOptions
from signer.controller.telemetry.metrics import Metrics
from signer.kube.resources import MACHINES_V1BETA2
from signer.testing.fixtures import open_controllers
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.integration.endorsement_key_sources import assert_one_owner_each, verdicts
from tests.integration.fixtures import (
    Harness,
    assert_one_certificate,
    assert_readable,
    certificate_of,
    pending,
    provider_id,
)
from tests.integration.requests import plant
from tests.integration.tpm.fake_tpm_node import FakeTPMNode, add_machine, say
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.journal import journal_of
from tests.support.software_tpm import SoftwareTPM, find_tpm_library
from tests.unit.attestors.tpm.endorsement.support import intermediate, root
from tests.unit.attestors.tpm.fake_tpm import (
    UNRESTRICTED,
    FakeTPM,
    attestation_certificate,
    authority_certificate,
    self_signed_root,
    text,
)
from tests.unit.attestors.tpm.support import ECDSA, attestation_area, value_of
from tests.unit.attestors.tpm.test_credential import NotActivated

pytestmark = pytest.mark.slow

_NUMBERS: Final = itertools.count(100)
_RSA_CERTIFICATE: Final = 0x01C00002
FLOOD: Final = 300
"""As many as a test can afford; the issue's 10,000 are for the benchmark."""


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The operator trusts one maker of TPMs."""
    folder = tmp_path_factory.mktemp("authorities")
    for name, content in (("roots", root()), ("intermediates", intermediate())):
        (folder / name).mkdir()
        (folder / name / "maker.der").write_bytes(content)
    return {
        "endorsementRootsFolder": str(folder / "roots"),
        "endorsementKeyTemplates": ["rsa-2048", "ecc-p256"],
        "endorsementIntermediatesFolder": str(folder / "intermediates"),
    }


@pytest.fixture(scope="module")
def running(shared_harness: Harness, settings: dict[str, Any]) -> Harness:
    """A harness whose controller runs; its tests only add to it."""
    shared_harness.run(attestors={"tpm": OperatorAttestor(settings=settings)})
    return shared_harness


@pytest.fixture(scope="module")
def cluster(running: Harness) -> WorldCluster:
    return running.cluster("tpm", ["tpm"])


@pytest.fixture(scope="module")
def other_cluster(running: Harness) -> WorldCluster:
    return running.cluster("other", ["tpm"], namespace="elsewhere")


@pytest.fixture
def victim(cluster: WorldCluster) -> FakeTPMNode:
    """An honest machine that has not joined yet; its TPM is known."""
    return machine_with(cluster, chip())


@pytest.fixture
def attacker(cluster: WorldCluster) -> FakeTPMNode:
    """A machine of the same cluster, whose owner does what it wants: its TPM is genuine, and known."""
    return machine_with(cluster, chip())


def chip() -> FakeTPM:
    """A chip that nobody has seen, by the maker whom the operator trusts."""
    return FakeTPM.new(next(_NUMBERS)).certified()


def machine_with(cluster: WorldCluster, chip: FakeTPM) -> FakeTPMNode:
    name = f"machine-{next(_NUMBERS)}"
    add_machine(cluster, name, chip.fingerprint)
    return FakeTPMNode(cluster, name, chip)


def csr(what: str = "csr") -> str:
    """A name for a request."""
    return f"{what}-{next(_NUMBERS)}"


def assert_denied(verdict: Verdict, reason: str, part: str = "") -> None:
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", reason, b""), verdict
    assert_readable(verdict.message)
    assert part in verdict.message


def assert_joined(verdict: Verdict, node: FakeTPMNode) -> None:
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    assert certificate_of(verdict).subject.rfc4514_string() == f"CN=system:node:{node.machine},O=system:nodes"


def assert_joins(node: FakeTPMNode) -> FakeTPMNode:
    """Returns it as it renews."""
    verdict = node.attest(csr())
    assert_joined(verdict, node)
    return node.joined(verdict)


def test_an_honest_machine_joins(running: Harness, victim: FakeTPMNode) -> None:
    name = csr()
    assert_joined(victim.attest(name), victim)
    assert_one_certificate(running, victim.cluster, victim.machine, name)


class TestCopies:
    """Everybody with a bootstrap token can read everybody's evidence and challenges."""

    def test_another_machines_first_request(self, victim: FakeTPMNode) -> None:
        """It is challenged, as anybody is, and cannot answer: the credential opens for the victim's chip only."""
        thief = victim.with_new_key()
        challenge = thief.challenge(csr())
        own = chip()
        with pytest.raises((NotActivated, ValueError)):
            own.but(attestation_area=victim.chip.attestation_area).open(challenge)
        for secret in (b"", bytes(32)):
            verdict = thief.ask(csr(), victim.chip.answer(challenge, thief.binding(), secret=secret))
            assert_denied(verdict, "BindingMismatch")
        assert_joins(victim)

    def test_another_machines_answer_with_another_key(self, victim: FakeTPMNode) -> None:
        answer = victim.chip.answer(victim.challenge(csr()), victim.binding())
        assert_denied(victim.with_new_key().ask(csr(), answer), "BindingMismatch")
        assert_joined(victim.ask(csr(), answer), victim)

    def test_another_machines_answer_for_my_own_machine(self, victim: FakeTPMNode, attacker: FakeTPMNode) -> None:
        answer = victim.chip.answer(victim.challenge(csr()), victim.binding())
        verdict = attacker.ask(csr(), answer)
        assert_denied(verdict, "EndorsementKeyMismatch", f"Machine {attacker.machine} has another TPM")

    def test_for_another_cluster(self, victim: FakeTPMNode, other_cluster: WorldCluster) -> None:
        """There, too, is a Machine of that name with that chip; the key is the same."""
        add_machine(other_cluster, victim.machine, victim.chip.fingerprint)
        answer = victim.chip.answer(victim.challenge(csr()), victim.binding())
        there = victim.but(cluster=other_cluster)
        assert_denied(there.ask(csr(), answer), "ChallengeOfAnotherCluster")
        copied = there.but(known_cluster=victim.cluster.ca_cert_hash)
        assert_denied(copied.ask(csr(), answer), "ClusterMismatch")

    def test_for_the_serving_signer(self, victim: FakeTPMNode) -> None:
        answer = victim.chip.answer(victim.challenge(csr()), victim.binding())
        verdict = victim.ask(csr(), answer)
        assert_joined(verdict, victim)
        serving = victim.joined(verdict).but(key=victim.key)
        assert_denied(serving.ask(csr(), answer, Purpose.SERVING), "BindingMismatch")

    def test_for_the_client_signer(self, victim: FakeTPMNode) -> None:
        node = assert_joins(victim)
        challenge = node.challenge(csr(), Purpose.SERVING)
        answer = node.chip.answer(challenge, node.binding(Purpose.SERVING))
        assert_denied(node.ask(csr(), answer), "BindingMismatch")

    def test_the_answer_to_another_nodes_challenge(self, victim: FakeTPMNode, attacker: FakeTPMNode) -> None:
        challenge = victim.challenge(csr())
        with pytest.raises(NotActivated):
            attacker.chip.open(challenge)
        own = attacker.chip.open(attacker.challenge(csr()))
        verdict = attacker.ask(csr(), attacker.chip.answer(challenge, attacker.binding(), secret=own))
        assert_denied(verdict, "BindingMismatch")

    def test_the_whole_answer_again_gets_the_very_same_certificate(self, running: Harness, victim: FakeTPMNode) -> None:
        name, copy = csr(), csr()
        answer = victim.chip.answer(victim.challenge(csr()), victim.binding())
        verdict = victim.ask(name, answer)
        assert_joined(verdict, victim)
        manifest = {**victim.manifest(name, answer), "metadata": {"name": copy}}
        victim.cluster.submit_with_token(manifest)
        again = victim.cluster.wait_until_decided(copy)
        assert (again.condition, again.certificate) == ("Approved", verdict.certificate), again
        journaled = journal(running, victim)
        assert {entry["serialNumber"] for entry in journaled} == {f"{certificate_of(verdict).serial_number:x}"}
        assert_one_owner_each(running, [victim.cluster])


def journal(harness: Harness, node: FakeTPMNode) -> list[dict[str, Any]]:
    """What the controller remembers of that machine's certificates."""
    records = [one for one in harness.records(node.cluster) if one["spec"]["machineRef"]["name"] == node.machine]
    assert len(records) == 1
    return journal_of(records[0]["spec"])


def forged(chip: FakeTPM) -> FakeTPM:
    """Its attestation key signs what it is told to, a forged quote among it."""
    return chip.but(attestation_area=attestation_area(chip.attestation, ECDSA, attributes=UNRESTRICTED))


def oversize(chip: FakeTPM) -> FakeTPM:
    area = attestation_area().encode()
    start = area.index(bytes.fromhex("0800 00000000 0100"))
    modulus = area[:start] + bytes.fromhex("2000 00000000 0400") + b"\xff" * 900
    return chip.but(more={wire.ATTESTATION_PUBLIC_FIELD: text(modulus)})


def with_sha1_name(chip: FakeTPM) -> FakeTPM:
    area = chip.attestation_area.encode().replace(b"\0\x23\0\x0b", b"\0\x23\0\x04", 1)
    return chip.but(more={wire.ATTESTATION_PUBLIC_FIELD: text(area)})


FIRST_REQUESTS: Final[dict[str, tuple[Callable[[FakeTPM], FakeTPM], str, str]]] = {
    "unrestricted-attestation-key": (forged, "UnsuitableTPMKey", "must have restricted set"),
    "certificate-of-another-chip": (
        lambda mine: mine.but(certificate=chip().certificate),
        "EndorsementCertificateRefused",
        "belongs to another TPM",
    ),
    "endorsement-key-of-another-chip": (
        lambda mine: chip().but(certificate=mine.certificate),
        "EndorsementCertificateRefused",
        "belongs to another TPM",
    ),
    "root-as-endorsement-certificate": (
        lambda mine: mine.but(certificate=self_signed_root(mine)),
        "EndorsementCertificateRefused",
        "certificate authority",
    ),
    "the-operators-root": (
        lambda mine: mine.but(certificate=root()),
        "EndorsementCertificateRefused",
        "belongs to another TPM",
    ),
    "authority-as-endorsement-certificate": (
        lambda mine: mine.but(certificate=authority_certificate(mine)),
        "EndorsementCertificateRefused",
        "certificate authority",
    ),
    "attestation-certificate-as-endorsement-certificate": (
        lambda mine: mine.but(certificate=attestation_certificate(mine)),
        "EndorsementCertificateRefused",
        "attestation key",
    ),
    "no-endorsement-certificate": (
        lambda mine: mine.but(certificate=b""),
        "EndorsementCertificateMissing",
        "presents no endorsement certificate",
    ),
    "another-genuine-chip": (lambda mine: chip(), "EndorsementKeyMismatch", "has another TPM"),
    "oversize-modulus": (oversize, "MalformedEvidence", "8192"),
    "oversize-chain": (
        lambda mine: mine.but(chain=bytes(wire.MAXIMUM_CHAIN_BYTES + 1)),
        "MalformedEvidence",
        wire.ENDORSEMENT_CHAIN_FIELD,
    ),
    "sha1-name": (with_sha1_name, "MalformedEvidence", "uses SHA-1"),
}


@pytest.mark.parametrize("attack", FIRST_REQUESTS)
def test_a_first_request_is_refused(attacker: FakeTPMNode, attack: str) -> None:
    change, reason, part = FIRST_REQUESTS[attack]
    assert_denied(attacker.ask(csr(), change(attacker.chip).first()), reason, part)


def test_a_chain_that_cannot_be_read_is_none(cluster: WorldCluster) -> None:
    """It is in genuine chips, too, and says neither yes nor no."""
    assert_joins(machine_with(cluster, chip().but(chain=b"x" * wire.MAXIMUM_CHAIN_BYTES)))


@dataclass(frozen=True)
class Answering:
    """What an attacker may do that holds the Machine's own chip, to lie about its firmware."""

    chip: FakeTPM
    challenge: str
    node: FakeTPMNode

    def answer(self, **changes: Any) -> dict[str, str]:
        return self.chip.answer(self.challenge, self.node.binding(), **changes)

    def later(self, seconds: int) -> str:
        """The token, good for longer."""
        uid, _, expiry = self.answer()[wire.CHALLENGE_TOKEN_FIELD].rpartition(".")
        return f"{uid}.{int(expiry) + seconds}"


def _relabelled(answering: Answering) -> dict[str, str]:
    values = [value_of(pcr) for pcr in PCRSelection.parse("sha256:0,1,2,3,4,5,6,7").registers()]
    return answering.answer(values=b"".join([values[1], values[0], *values[2:]]))


ANSWERS: Final[dict[str, tuple[Callable[[Answering], dict[str, str]], str, str]]] = {
    "relabelled-pcr-values": (_relabelled, "QuoteRefused", "do not hash to the quoted digest"),
    "other-bank": (
        lambda it: it.answer(selection="sha384:0,1,2,3,4,5,6,7"),
        "QuoteRefused",
        "the quote covers sha384:0,1,2,3,4,5,6,7",
    ),
    "fewer-registers": (lambda it: it.answer(selection="sha256:0"), "QuoteRefused", "the quote covers sha256:0,"),
    "sha1-bank": (
        lambda it: it.answer(mangle=lambda quote: quote.replace(b"\0\x0b\x03", b"\0\x04\x03")),
        "MalformedEvidence",
        "uses SHA-1",
    ),
    "sha1-signature": (
        lambda it: it.answer(mangle_signature=lambda one: one.replace(b"\0\x0b", b"\0\x04", 1)),
        "MalformedEvidence",
        "uses SHA-1",
    ),
    "no-quote": (lambda it: it.answer(mangle=lambda quote: b"\0" * 4 + quote[4:]), "MalformedEvidence", "TPMS_ATTEST"),
    "signed-by-another-key": (
        lambda it: replace(it, chip=it.chip.but(attestation=chip().attestation)).answer(),
        "QuoteRefused",
        "did not sign this quote",
    ),
    "without-the-secret": (lambda it: it.answer(secret=bytes(32)), "BindingMismatch", ""),
    "later-expiry": (lambda it: it.answer(token=it.later(60)), "BindingMismatch", ""),
    "no-expiry": (lambda it: it.answer(token=it.later(10**9)), "ChallengeFromTheFuture", "starts again"),
    "no-token": (lambda it: it.answer(token="none"), "MalformedEvidence", "challenge token"),
}


@pytest.mark.parametrize("attack", ANSWERS)
def test_an_answer_is_refused(attacker: FakeTPMNode, attack: str) -> None:
    make, reason, part = ANSWERS[attack]
    fields = make(Answering(attacker.chip, attacker.challenge(csr()), attacker))
    assert_denied(attacker.ask(csr(), fields), reason, part)


def test_an_attestation_key_that_is_not_of_the_certified_chip(victim: FakeTPMNode, attacker: FakeTPMNode) -> None:
    """The victim's endorsement key and certificate beside the attacker's attestation key."""
    mixed = victim.chip.but(attestation=attacker.chip.attestation, attestation_area=attacker.chip.attestation_area)
    thief = victim.but(chip=mixed).with_new_key()
    challenge = thief.challenge(csr())
    with pytest.raises(NotActivated):  # neither chip opens it: one has not the endorsement key,
        attacker.chip.open(challenge)
    with pytest.raises(NotActivated):  # the other not the attestation key
        victim.chip.open(challenge)
    assert_denied(thief.ask(csr(), mixed.answer(challenge, thief.binding(), secret=bytes(32))), "BindingMismatch")


class TestWhoseChip:
    def test_no_challenge_before_a_source_assigns_the_chip(self, running: Harness, cluster: WorldCluster) -> None:
        node = FakeTPMNode(cluster, f"machine-{next(_NUMBERS)}", chip())
        add_machine(cluster, node.machine)
        name = csr()
        node.post(name, node.chip.first())
        message = running.wait_for_event("EndorsementKeyUnknown", node.machine)
        assert node.chip.fingerprint in message
        assert_readable(message)
        assert pending(cluster, name).annotations == {}
        say(cluster, node.machine, node.chip.fingerprint)
        assert cluster.wait_until_decided(name).reason == "ChallengeIssued"

    def test_a_requesters_own_annotation_is_worth_nothing(
        self, running: Harness, cluster: WorldCluster, attacker: FakeTPMNode
    ) -> None:
        node = FakeTPMNode(cluster, f"machine-{next(_NUMBERS)}", chip())
        add_machine(cluster, node.machine)
        annotations = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: node.chip.fingerprint}
        waits, denied = csr(), csr()
        for name, which in ((waits, node), (denied, attacker.but(chip=node.chip))):
            manifest = which.manifest(name, node.chip.first())
            manifest["metadata"]["annotations"] = annotations
            cluster.submit_with_token(manifest)
        assert_denied(cluster.wait_until_decided(denied), "EndorsementKeyMismatch")
        running.wait_for_event("EndorsementKeyUnknown", node.machine)
        assert pending(cluster, waits).annotations == annotations

    def test_what_the_controller_resolved_replaces_what_the_requester_wrote(
        self, cluster: WorldCluster, victim: FakeTPMNode
    ) -> None:
        answer = victim.chip.answer(victim.challenge(csr()), victim.binding())
        name = csr()
        manifest = victim.manifest(name, answer)
        forged = {
            ENDORSEMENT_KEY_ANNOTATION: chip().fingerprint,
            ENDORSEMENT_KEY_SOURCE_ANNOTATION: "Inventory",
            CHIP_ANNOTATION: f"chip:{chip().fingerprint}",
        }
        manifest["metadata"]["annotations"] = {**forged, "example.com/own": "stays"}
        cluster.submit_with_token(manifest)
        verdict = cluster.wait_until_decided(name)
        assert_joined(verdict, victim)
        annotations = {key: value for key, value in verdict.annotations.items() if key != APPROVAL_SEAL_ANNOTATION}
        assert annotations == {
            ENDORSEMENT_KEY_ANNOTATION: victim.chip.fingerprint,
            ENDORSEMENT_KEY_SOURCE_ANNOTATION: "MachineAnnotation",
            CHIP_ANNOTATION: CHIP_NOT_NAMED,
            "example.com/own": "stays",
        }

    def test_any_genuine_chip_with_a_pools_token(self, running: Harness, cluster: WorldCluster) -> None:
        """An instance has no Machine that could say which chip is in it."""
        pool = f"pool-{next(_NUMBERS)}"
        instance = f"{pool}-1"
        cluster.add_machine_pool(pool, provider_id(instance))
        name = csr()
        FakeTPMNode(cluster, instance, genuine := chip()).post(name, genuine.first())
        running.wait_for_event("EndorsementKeyUnknown", pool, "MachinePool")
        assert pending(cluster, name).annotations == {}

    def test_two_nodes_race_for_one_machine(self, running: Harness, victim: FakeTPMNode) -> None:
        rival = victim.but(chip=chip()).with_new_key()
        with ThreadPoolExecutor(2) as pool:
            won = pool.submit(victim.attest, csr())
            lost = pool.submit(rival.ask, csr(), rival.chip.first())
            assert_joined(won.result(), victim)
            assert_denied(lost.result(), "EndorsementKeyMismatch")
        assert_one_owner_each(running, [victim.cluster])

    def test_a_clone_of_the_disk_races_on_the_same_chip(self, running: Harness, victim: FakeTPMNode) -> None:
        """Two keys, one chip: certificates of the one node, of which the records know."""
        nodes = [victim.with_new_key() for _ in range(4)]
        with ThreadPoolExecutor(len(nodes)) as pool:
            verdicts = list(pool.map(lambda node: node.attest(csr()), nodes))
        assert any(verdict.condition == "Approved" for verdict in verdicts)
        assert len(journal(running, victim)) == sum(verdict.condition == "Approved" for verdict in verdicts)
        assert_one_owner_each(running, [victim.cluster])

    @pytest.mark.parametrize("where", ["one-cluster", "two-clusters"])
    def test_one_chip_for_two_machines(
        self, running: Harness, victim: FakeTPMNode, other_cluster: WorldCluster, where: str
    ) -> None:
        """Somebody wrote the same key to two Machines: the first that attests has it."""
        assert_joins(victim)
        second = machine_with(victim.cluster if where == "one-cluster" else other_cluster, victim.chip)
        verdict = second.attest(csr())
        assert_denied(verdict, "IdentityConflict", "the identity belongs to")
        assert_one_owner_each(running, [victim.cluster, second.cluster])

    def test_one_chip_races_for_two_machines(self, running: Harness, victim: FakeTPMNode) -> None:
        second = machine_with(victim.cluster, victim.chip)
        with ThreadPoolExecutor(2) as pool:
            verdicts = list(pool.map(lambda node: node.attest(csr()), [victim, second]))
        assert sorted(verdict.condition for verdict in verdicts) == ["Approved", "Denied"]
        assert_one_owner_each(running, [victim.cluster])

    def test_another_chip_in_a_machine_that_was_attested(self, victim: FakeTPMNode) -> None:
        """Whoever may write Machines cannot hand over a node that is there."""
        assert_joins(victim)
        thief = victim.but(chip=chip()).with_new_key()
        say(victim.cluster, victim.machine, thief.chip.fingerprint)
        assert_joins(machine_with(victim.cluster, chip()))  # its Machine comes later: all of this is known by then
        assert_denied(thief.attest(csr()), "IdentityConflict")


class TestRenewal:
    def test_it_is_challenged_again(self, running: Harness, victim: FakeTPMNode) -> None:
        name, renewed = csr(), csr()
        verdict = victim.attest(name)
        assert_joined(verdict, victim)
        assert_joined(victim.joined(verdict).attest(renewed), victim)
        assert_one_certificate(running, victim.cluster, victim.machine, name, renewed)

    def test_the_first_answer_renews_nothing(self, victim: FakeTPMNode) -> None:
        answer = victim.chip.answer(victim.challenge(csr()), victim.binding())
        verdict = victim.ask(csr(), answer)
        assert_joined(verdict, victim)
        assert_denied(victim.joined(verdict).ask(csr(), answer), "BindingMismatch")

    def test_a_stolen_disk_renews_nothing_without_its_chip(self, victim: FakeTPMNode) -> None:
        thief = assert_joins(victim).but(chip=chip())
        for purpose in Purpose:
            verdict = thief.with_new_key().ask(csr(), thief.chip.first(), purpose)
            assert_denied(verdict, "EndorsementKeyMismatch")
        challenge = thief.but(chip=victim.chip).challenge(csr())
        verdict = thief.ask(csr(), victim.chip.answer(challenge, thief.binding(), secret=bytes(32)))
        assert_denied(verdict, "BindingMismatch")

    def test_serving_certificates_are_attested(self, running: Harness, victim: FakeTPMNode) -> None:
        serving = assert_joins(victim)
        verdict = serving.attest(csr(), Purpose.SERVING)
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
        assert len(journal(running, victim)) == 2

    def test_a_deleted_machine_ends_them(self, running: Harness, victim: FakeTPMNode) -> None:
        """Also one whose answer is under way."""
        renewing = assert_joins(victim)
        answer = renewing.chip.answer(renewing.challenge(csr()), renewing.binding())
        path = MACHINES_V1BETA2.object(victim.machine, victim.cluster.namespace)
        running.management.client.delete(path)
        assert_joins(machine_with(victim.cluster, chip()))  # its Machine comes later: all of this is known by then
        later = renewing.with_new_key()
        names = csr(), csr()
        renewing.post(names[0], answer)
        later.post(names[1], later.chip.first())
        # One that is decided after them, so that they were looked at.
        assert_joins(machine_with(victim.cluster, chip()))
        for name in names:
            assert pending(victim.cluster, name).annotations == {}


class Clock:
    """The controller's time, which a test moves."""

    def __init__(self) -> None:
        self.passed = timedelta()

    def now(self) -> datetime:
        return datetime.now(UTC) + self.passed


def running_alone(harness: Harness, settings: dict[str, Any], **options: Any) -> None:
    harness.run(ControllerOptions(**options), attestors={"tpm": OperatorAttestor(settings=settings)})


def test_an_answer_that_comes_too_late(harness: Harness, settings: dict[str, Any]) -> None:
    clock = Clock()
    running_alone(harness, settings, now=clock.now)
    cluster = harness.cluster("tpm", ["tpm"])
    node = machine_with(cluster, chip())
    challenge = node.challenge(csr())
    clock.passed = LIFETIME
    answer = node.chip.answer(challenge, node.binding())
    assert_denied(node.ask(csr(), answer), "ChallengeExpired", "the node starts again with a new key")
    again = node.with_new_key()
    assert_joined(again.attest(csr()), again)


def test_an_answer_again_after_its_time(harness: Harness, settings: dict[str, Any]) -> None:
    """The copy that somebody posts years later gets nothing."""
    clock = Clock()
    running_alone(harness, settings, now=clock.now)
    cluster = harness.cluster("tpm", ["tpm"])
    node = machine_with(cluster, chip())
    answer = node.chip.answer(node.challenge(csr()), node.binding())
    assert_joined(node.ask(csr(), answer), node)
    clock.passed = LIFETIME
    assert_denied(node.ask(csr(), answer), "ChallengeExpired")


def test_an_endorsement_key_on_the_deny_list_ends_renewals(harness: Harness, settings: dict[str, Any]) -> None:
    cluster = harness.cluster("tpm", ["tpm"])
    first, second = (machine_with(cluster, chip()) for _ in range(2))
    with open_controllers(harness.management) as start:
        start(attestors={"tpm": OperatorAttestor(settings=settings)})
        renewing, other = assert_joins(first), assert_joins(second)
        answer = renewing.chip.answer(renewing.challenge(csr()), renewing.binding())
    running_alone(harness, {**settings, "deniedEndorsementKeys": [first.chip.fingerprint]})
    assert_denied(renewing.ask(csr(), answer), "EndorsementKeyDenied", first.chip.fingerprint)
    for purpose in Purpose:
        verdict = renewing.with_new_key().ask(csr(), first.chip.first(), purpose)
        assert_denied(verdict, "EndorsementKeyDenied")
    assert_joins(other)


def test_a_challenge_is_answered_to_the_controller_that_comes_next(harness: Harness, settings: dict[str, Any]) -> None:
    cluster = harness.cluster("tpm", ["tpm"])
    node = machine_with(cluster, chip())
    with open_controllers(harness.management) as start:
        start(attestors={"tpm": OperatorAttestor(settings=settings)})
        challenge = node.challenge(csr())
    running_alone(harness, settings)
    assert_joined(node.ask(csr(), node.chip.answer(challenge, node.binding())), node)


def test_a_flood_of_first_requests_leaves_nothing(harness: Harness, settings: dict[str, Any]) -> None:
    """All of them plausible, of the victim's own chip. The victim joins."""
    metrics = Metrics()
    running_alone(harness, settings, metrics=metrics)
    cluster = harness.cluster("tpm", ["tpm"])
    victim = machine_with(cluster, chip())

    def kept() -> float | None:
        return metrics.registry.get_sample_value("node_attestation_pending_requests", {"cluster": "default/tpm"})

    def flood(manifests: list[dict[str, Any]]) -> None:
        for manifest in manifests:
            plant(cluster, manifest)
        cluster.wait_until_decided(manifests[-1]["metadata"]["name"])
        for name in [name for name, verdict in verdicts(cluster).items() if not verdict.condition]:
            cluster.wait_until_decided(name)

    floods = [_flood_of(victim, "warm", 20), _flood_of(victim, "flood", FLOOD)]
    flood(floods[0])
    tracemalloc.start()
    try:
        before = held()
        flood(floods[1])
        grown = held() - before
    finally:
        tracemalloc.stop()
    decided = verdicts(cluster)
    assert {verdict.reason for verdict in decided.values()} == {"ChallengeIssued"}
    assert len(decided) == FLOOD + 20
    assert kept() == 0
    # A request has more than 6 KiB; what is left is its UID, and the log that pytest keeps.
    assert grown < FLOOD * 1024
    assert_joins(victim)


def test_a_node_joins_through_a_flood(harness: Harness, settings: dict[str, Any]) -> None:
    """Posted before it, and claiming its Machine: its requests take their turns among them."""
    cluster = harness.cluster("tpm", ["tpm"])
    victim = machine_with(cluster, chip())
    for manifest in _flood_of(victim, "flood", FLOOD):
        plant(cluster, manifest)
    running_alone(harness, settings)
    assert_joins(victim)


def _flood_of(victim: FakeTPMNode, what: str, count: int) -> list[dict[str, Any]]:
    """First requests with its evidence, which every token can read."""
    fields = victim.chip.first()
    return [victim.with_new_key().manifest(f"{what}-{number:04}", fields) for number in range(count)]


def held() -> int:
    """Bytes that were allocated in the attestor and the controller and are still there, but for caches with a bound."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("attestors.", "signer.")):
            for cache in vars(module).values():
                if isinstance(cache, functools._lru_cache_wrapper) and cache.cache_parameters()["maxsize"] is not None:
                    cache.cache_clear()
    gc.collect()
    own = [tracemalloc.Filter(True, f"*/{folder}/*") for folder in ("attestors", "signer/controller", "signer/model")]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(own).statistics("filename"))


class TestSoftwareTPM:
    """Real TPMs, and the node's own half."""

    @pytest.fixture
    def chips(self, software_tpm: SoftwareTPM, own_tpm: SoftwareTPM) -> tuple[SoftwareTPM, SoftwareTPM]:
        """Two of one maker."""
        try:
            find_tpm_library()
        except MissingPart as missing:
            skip_or_fail(missing)
        return software_tpm, own_tpm

    @pytest.fixture
    def machines(
        self, harness: Harness, cluster: WorldCluster, chips: tuple[SoftwareTPM, SoftwareTPM], tmp_path: Path
    ) -> tuple[SimulatedNode, SimulatedNode]:
        """Two machines with these chips, and a controller that trusts their maker."""
        for name, content in (("roots", chips[0].root_certificate), ("intermediates", chips[0].issuer_certificate)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "maker.pem").write_bytes(content)
        folders = {
            "endorsementRootsFolder": str(tmp_path / "roots"),
            "endorsementIntermediatesFolder": str(tmp_path / "intermediates"),
        }
        running_alone(harness, folders)
        found = []
        for machine, tpm in zip(("first", "second"), chips, strict=True):
            certificate = x509.load_der_x509_certificate(tpm.endorsement_certificate(_RSA_CERTIFICATE))
            info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            add_machine(cluster, machine, f"sha256:{hashlib.sha256(info).hexdigest()}")
            settings = {"tcti": tpm.tcti, "provider-id": provider_id(machine)}
            found.append(SimulatedNode(machine, provider_id(machine), cluster.ca_cert_hash, "tpm", settings))
        return found[0], found[1]

    @pytest.fixture
    def cluster(self, harness: Harness) -> WorldCluster:
        """Theirs."""
        return harness.cluster("tpm", ["tpm"])

    @staticmethod
    def ask(cluster: WorldCluster, manifest: dict[str, Any]) -> Verdict:
        cluster.submit_with_token(manifest)
        return cluster.wait_until_decided(manifest["metadata"]["name"])

    def challenge(self, cluster: WorldCluster, node: SimulatedNode) -> str:
        verdict = self.ask(cluster, node.client_request(csr()))
        assert verdict.reason == "ChallengeIssued", verdict
        return verdict.annotations[CHALLENGE_ANNOTATION]

    def test_a_copy_is_worth_nothing(
        self, harness: Harness, cluster: WorldCluster, machines: tuple[SimulatedNode, SimulatedNode]
    ) -> None:
        """The thief is a machine of the cluster with a genuine chip by the same maker."""
        victim, thief = machines
        as_victim = thief.but(node_name=victim.node_name, provider_id=victim.provider_id)
        assert_denied(self.ask(cluster, as_victim.client_request(csr())), "EndorsementKeyMismatch")
        copied = self.ask(cluster, as_victim.client_request(csr(), evidence_of=victim.evidence()))
        assert copied.reason == "ChallengeIssued"
        with pytest.raises(EvidenceUnavailable, match="not for this TPM's keys"):
            as_victim.evidence(challenge=copied.annotations[CHALLENGE_ANNOTATION])
        answer = victim.evidence(challenge=self.challenge(cluster, victim))
        assert_denied(self.ask(cluster, as_victim.client_request(csr(), evidence_of=answer)), "BindingMismatch")
        assert_denied(self.ask(cluster, thief.client_request(csr(), evidence_of=answer)), "EndorsementKeyMismatch")
        for node in machines:
            evidence = answer if node is victim else node.evidence(challenge=self.challenge(cluster, node))
            verdict = self.ask(cluster, node.client_request(csr(), evidence_of=evidence))
            assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
        assert_one_owner_each(harness, [cluster])

    def test_a_key_of_the_genuine_chip_that_signs_a_forged_quote(
        self, cluster: WorldCluster, chips: tuple[SoftwareTPM, SoftwareTPM], machines: tuple[SimulatedNode, ...]
    ) -> None:
        """The machine's own root wants to lie about its registers: the TPM signs what an unrestricted key is told."""
        from tests.support.record_tpm import ATTRIBUTES, attestation_template
        from tests.support.tpm_chip import Chip

        node = machines[0]
        genuine = node.evidence(challenge=self.challenge(cluster, node))
        forged = bytearray(base64.b64decode(genuine.fields[wire.QUOTE_FIELD]))
        forged[-1] ^= 1
        template = attestation_template(
            SignatureAlgorithm.RSASSA, 2048, attributes=ATTRIBUTES & ~ObjectAttribute.RESTRICTED
        )
        with Chip(chips[0]) as connected, connected.primary(template.encode()) as (handle, public):
            signature = connected.sign(handle, bytes(forged))
        lies = {wire.QUOTE_FIELD: text(bytes(forged)), wire.QUOTE_SIGNATURE_FIELD: text(signature)}
        fields = {**genuine.fields, **lies, wire.ATTESTATION_PUBLIC_FIELD: text(public)}
        evidence = replace(genuine, fields=fields)
        assert_denied(self.ask(cluster, node.client_request(csr(), evidence_of=evidence)), "UnsuitableTPMKey")
        evidence = replace(genuine, fields={**genuine.fields, **lies})
        assert_denied(self.ask(cluster, node.client_request(csr(), evidence_of=evidence)), "QuoteRefused")


def test_a_name_whose_former_chip_is_in_another_machine_now(harness: Harness, settings: dict[str, Any]) -> None:
    """Its Machine was made anew, around another chip: two machines must not be one node at a time."""
    harness.run(attestors={"tpm": OperatorAttestor(settings=settings)})
    cluster = harness.cluster("tpm", ["tpm"])
    victim = assert_joins(machine_with(cluster, chip()))
    successor = FakeTPMNode(cluster, victim.machine, chip())
    harness.management.client.delete(MACHINES_V1BETA2.object(victim.machine, cluster.namespace))
    assert_joins(machine_with(cluster, victim.chip))
    add_machine(cluster, victim.machine, successor.chip.fingerprint)
    name = csr()
    challenge = successor.challenge(f"{name}-first")
    successor.post(name, successor.chip.answer(challenge, successor.binding()))
    assert "had before may be in use until" in harness.wait_for_event("NodeNameBlocked", victim.machine)
    pending(cluster, name)
