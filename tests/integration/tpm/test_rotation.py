"""The controller's key is rotated while a challenge is out."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from datetime import UTC, datetime
from typing import Final

import pytest

from attestors.tpm.attestation_key import AttestationKey
from attestors.tpm.challenge import ChallengeInputs, Token
from attestors.tpm.selection import PCRSelection
from attestors.tpm.wire import CHALLENGE_TOKEN_FIELD
from signer.configuration import OperatorAttestor
from signer.kube.resources import CLUSTERS_V1BETA2, SECRETS
from signer.model.seal import ControllerKeys
from signer.store import controller_key
from signer.store.authentic_records import AuthenticRecords
from signer.store.controller_key import SECRET_NAME, controller_key_secret, parse_controller_keys
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.fixtures import Harness
from tests.integration.tpm.fake_tpm_node import FakeTPMNode, add_machine
from tests.unit.attestors.tpm.fake_tpm import FakeTPM
from tests.unit.attestors.tpm.fixtures import ANY_KEYS

pytestmark = pytest.mark.slow

_NUMBERS: Final = itertools.count(1)
_RSA_CERTIFICATE: Final = 0x01C00002


@pytest.fixture
def cluster(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> WorldCluster:
    """Its controller looks at its key twenty times a second, and trusts any TPM that a Machine's annotation names."""
    monkeypatch.setattr(controller_key, "MINIMUM_READ_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(controller_key, "READ_INTERVAL_SECONDS", 0.05)
    cluster = harness.cluster("tpm", ["tpm"])
    harness.run(attestors={"tpm": OperatorAttestor(settings=ANY_KEYS)})
    return cluster


def machine_of(cluster: WorldCluster) -> FakeTPMNode:
    number = next(_NUMBERS)
    node = FakeTPMNode(cluster, f"machine-{number}", FakeTPM.new(number))
    add_machine(cluster, node.machine, node.chip.fingerprint)
    return node


def rotate(harness: Harness, probe: FakeTPMNode) -> None:
    """As an operator does it; returns when the controller challenges with the new key."""
    path = SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)
    former = parse_controller_keys(harness.management.client.get(path))
    rotated = ControllerKeys(hashlib.sha256(former.current).digest(), former.current)
    harness.management.client.patch(path, {"data": controller_key_secret(CONTROLLER_NAMESPACE, rotated)["data"]})
    records = AuthenticRecords()
    records.use_keys(rotated)
    newest = records.challenge_keys("tpm")[0]
    while not _is_under(newest, probe.with_new_key()):
        pass


def _is_under(challenge_key: bytes, probe: FakeTPMNode) -> bool:
    challenge = probe.challenge(f"probe-{next(_NUMBERS)}")
    token = Token.parse(probe.chip.answer(challenge, probe.binding())[CHALLENGE_TOKEN_FIELD])
    keys = probe.chip.key, AttestationKey(probe.chip.attestation_area)
    inputs = ChallengeInputs(token, *keys, probe.binding(), uid_of(probe.cluster))
    return probe.chip.open(challenge) == inputs.secret(challenge_key)


def uid_of(cluster: WorldCluster) -> str:
    """UID of the Cluster object."""
    found = cluster.management.client.get(CLUSTERS_V1BETA2.object(cluster.name, cluster.namespace))
    return str(found["metadata"]["uid"])


def test_an_answer_to_a_challenge_of_before(harness: Harness, cluster: WorldCluster) -> None:
    """The former key is good for it."""
    node, probe = machine_of(cluster), machine_of(cluster)
    answer = node.chip.answer(node.challenge("first"), node.binding())
    rotate(harness, probe)
    verdict = node.ask("answer", answer)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict


def test_an_answer_under_a_key_that_is_not_known_yet_is_judged_when_it_is(
    harness: Harness, cluster: WorldCluster
) -> None:
    """Another replica has read it already. Nothing asks again meanwhile, and nothing has to be asked for it again."""
    node = machine_of(cluster)
    path = SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)
    former = parse_controller_keys(harness.management.client.get(path))
    rotated = ControllerKeys(hashlib.sha256(former.current).digest(), former.current)
    others = AuthenticRecords()
    others.use_keys(rotated)
    keys = node.chip.key, AttestationKey(node.chip.attestation_area)
    selection = PCRSelection.parse("sha256:0,1,2,3,4,5,6,7")
    token = Token.issue("0" * 36, uid_of(cluster), datetime.now(UTC))
    challenged = ChallengeInputs(token, *keys, node.binding(), uid_of(cluster))
    challenge = challenged.text(others.challenge_keys("tpm")[0], selection, random_bytes=secrets.token_bytes)
    node.post("early", node.chip.answer(challenge, node.binding()))
    harness.wait_for_event("ChallengeKeysMissing", node.machine)
    harness.management.client.patch(path, {"data": controller_key_secret(CONTROLLER_NAMESPACE, rotated)["data"]})
    verdict = cluster.wait_until_decided("early")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict


def test_an_answer_to_a_challenge_before_the_last_is_not_denied_for_that(
    harness: Harness, cluster: WorldCluster
) -> None:
    """It waits for somebody who has that key, until it expires; whoever starts again gets in."""
    node, probe = machine_of(cluster), machine_of(cluster)
    answer = node.chip.answer(node.challenge("first"), node.binding())
    for _ in range(2):
        rotate(harness, probe)
    node.post("answer", answer)
    assert "was rotated" in harness.wait_for_event("ChallengeKeysMissing", node.machine)
    again = node.with_new_key().attest("again")
    assert (again.condition, again.reason) == ("Approved", "Attested"), again
    assert not cluster.verdict("answer").condition
