"""Trust on first use through ``clusterctl move``, which makes Cluster and Machines anew."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from signer.configuration import OperatorAttestor
from signer.kube.resources import ATTESTED_NODES
from signer.model.fields import parse_time
from tests.integration.fixtures import Harness
from tests.integration.move import Move, copy_controller_key, copy_reservations
from tests.integration.tpm.fake_tpm_node import FakeTPMNode
from tests.integration.tpm.whose import (
    FIRST_USE,
    OperatorFolder,
    add_worker,
    assert_denied,
    assert_joins,
    assert_waits,
    chip,
    cluster_of,
    csr,
)
from tests.support.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]


@pytest.fixture
def attestors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, OperatorAttestor]:
    return OperatorFolder(tmp_path_factory.mktemp("operator")).attestors


def _last_attestation(harness: Harness) -> datetime:
    records = harness.management.client.items(ATTESTED_NODES.collection("default"))
    return max(parse_time(record["spec"]["lastAttestationTime"]) for record in records)


def _moved(
    harness: Harness, target: Harness, attestors: dict[str, OperatorAttestor], *, reservations: bool
) -> FakeTPMNode:
    """A node that has joined, after the move, as it renews."""
    harness.run(attestors=attestors)
    cluster = cluster_of(harness, "first-use", *FIRST_USE)
    renewing = assert_joins(add_worker(cluster))
    copy_controller_key(harness.management, target.management)
    if reservations:
        copy_reservations(harness.management, target.management)
    move = Move(cluster, target.management)
    move.pause()
    # A Cluster object is told from its records' times by whole seconds.
    wait_until(
        lambda: datetime.now(UTC).replace(microsecond=0) > _last_attestation(harness), "the record's second is over"
    )
    move.create()
    move.delete()
    move.unpause()
    move.reconcile()
    target.run(attestors=attestors)
    return renewing.but(cluster=move.target)


def test_only_recorded_nodes_renew(harness: Harness, target: Harness, attestors: dict[str, OperatorAttestor]) -> None:
    renewing = _moved(harness, target, attestors, reservations=True)
    stolen = renewing.but(chip=chip())
    assert_denied(stolen.with_new_key().ask(csr(), stolen.chip.first()), "EndorsementKeyMismatch")
    renewing = assert_joins(renewing)
    assert_joins(renewing)


def test_a_record_that_came_without_its_reservations_names_no_tpm(
    harness: Harness, target: Harness, attestors: dict[str, OperatorAttestor]
) -> None:
    """The controller key alone can seal such a record. docs/recovering.md says what to do before."""
    renewing = _moved(harness, target, attestors, reservations=False)
    assert_waits(target, renewing, "no TPM is recorded of Machine")
