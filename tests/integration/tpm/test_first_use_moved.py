"""Trust on first use through ``clusterctl move``, which makes Cluster and Machines anew."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from signer.configuration import OperatorAttestor
from signer.kube.resources import ATTESTED_NODES
from signer.model.fields import parse_time
from tests.integration.fixtures import Harness
from tests.integration.move import Move, copy_controller_key
from tests.integration.tpm.whose import (
    FIRST_USE,
    OperatorFolder,
    add_worker,
    assert_denied,
    assert_joins,
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


def test_only_recorded_nodes_renew(harness: Harness, target: Harness, attestors: dict[str, OperatorAttestor]) -> None:
    harness.run(attestors=attestors)
    cluster = cluster_of(harness, "first-use", *FIRST_USE)
    renewing = assert_joins(add_worker(cluster))
    copy_controller_key(harness.management, target.management)
    move = Move(cluster, target.management)
    target.run(attestors=attestors)
    move.pause()
    # A Cluster object is told from its records' times by whole seconds.
    wait_until(
        lambda: datetime.now(UTC).replace(microsecond=0) > _last_attestation(harness), "the record's second is over"
    )
    move.create()
    move.delete()
    move.unpause()
    move.reconcile()
    stolen = renewing.but(chip=chip())
    assert_denied(stolen.with_new_key().ask(csr(), stolen.chip.first()), "EndorsementKeyMismatch")
    renewing = assert_joins(renewing)
    assert_joins(renewing)
