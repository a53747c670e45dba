"""A Cluster is deleted and created again, as from a backup, while a node answers a challenge."""

from __future__ import annotations

from typing import Final

import pytest

from signer.configuration import OperatorAttestor
from signer.kube.resources import CLUSTERS_V1BETA2
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness
from tests.integration.tpm.fake_tpm_node import FakeTPMNode, add_machine
from tests.unit.attestors.tpm.fake_tpm import FakeTPM
from tests.unit.attestors.tpm.fixtures import ANY_KEYS

pytestmark = pytest.mark.slow

_GIVEN_BY_THE_SERVER: Final = ("uid", "resourceVersion", "generation", "creationTimestamp")


def create_again(cluster: WorldCluster) -> None:
    client, path = cluster.management.client, CLUSTERS_V1BETA2.object(cluster.name, cluster.namespace)
    found = client.get(path)
    metadata = {key: value for key, value in found["metadata"].items() if key not in _GIVEN_BY_THE_SERVER}
    client.delete(path)
    client.create(CLUSTERS_V1BETA2.collection(cluster.namespace), {**found, "metadata": metadata})
    cluster.authorize("tpm")  # the former policy had the former Cluster as its owner


def test_an_answer_to_a_challenge_of_before_has_the_node_start_again(harness: Harness) -> None:
    """The binding is the same: it names the CA, which stays."""
    cluster = harness.cluster("again", ["tpm"])
    harness.run(attestors={"tpm": OperatorAttestor(settings=ANY_KEYS)})
    node = FakeTPMNode(cluster, "machine", FakeTPM.new())
    add_machine(cluster, node.machine, node.chip.fingerprint)
    answer = node.chip.answer(node.challenge("before"), node.binding())
    create_again(cluster)
    verdict = node.ask("after", answer)
    assert (verdict.condition, verdict.reason) == ("Denied", "ChallengeOfAnotherCluster"), verdict
    node = node.with_new_key()
    verdict = node.ask("again", node.chip.answer(node.challenge("next"), node.binding()))
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
