"""A request waits in the flow of its claim, under whichever OID the claim stands. No fault of reading it is raised."""

from __future__ import annotations

from typing import Any, Final
from unittest.mock import MagicMock

import pytest

from attestors.contract import Plausible
from attestors.wire import provider_id
from attestors.wire.names import PROVIDER_ID_OID
from signer.configuration import Configuration
from signer.decision.decider import Decider
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.flow import Flow, PriorityLevel
from signer.model.reasons import Reason
from tests.unit.signer.builders import BOOTSTRAP, PROVIDER_ID, PROVIDERS, blocks, extension, manifest, pkcs10

ASSIGNED: Final = "1.3.6.1.4.1.57683.9"


@pytest.fixture
def decider() -> Decider:
    """It knows the Machine of every claim, and its attestor finds everything plausible."""
    parts = (
        "caches",
        "reservations",
        "records",
        "tokens",
        "lookups",
        "timings",
        "authority_source",
        "trust",
        "clocks",
        "now",
    )
    registry = MagicMock(providers=PROVIDERS)
    made = Decider(
        ClusterKey("team-a", "one"),
        configuration=Configuration("own", provider_id_oids=(ASSIGNED, PROVIDER_ID_OID)),
        registry=registry,
        monotonic=lambda: 1000.0,
        services_report=MagicMock(),
        control_plane=MagicMock(),
        **{part: MagicMock() for part in parts},
    )
    looked_at: Any = made
    looked_at._snapshots = MagicMock()
    looked_at._pre_filter = lambda snapshot, request: Plausible()
    return made


@pytest.mark.parametrize("oid", [ASSIGNED, PROVIDER_ID_OID])
def test_under_each_that_is_read(decider: Decider, oid: str) -> None:
    csr = manifest(blocks(pkcs10(extensions=[extension(oid, provider_id.encode(PROVIDER_ID))])))
    assert decider.peek(csr) == Flow(PriorityLevel.UNFILTERED, BOOTSTRAP[0], PROVIDER_ID)
    pre_filtered = decider.pre_filter(csr)
    assert (pre_filtered.priority_level, pre_filtered.provider_id) == (PriorityLevel.PLAUSIBLE, PROVIDER_ID)


def test_under_two_it_is_nobodys(decider: Decider) -> None:
    both = [extension(oid, provider_id.encode(PROVIDER_ID)) for oid in (ASSIGNED, PROVIDER_ID_OID)]
    csr = manifest(blocks(pkcs10(extensions=both)))
    assert decider.peek(csr) == Flow(PriorityLevel.UNFILTERED, BOOTSTRAP[0])
    assert decider.pre_filter(csr) == Flow(PriorityLevel.REFUSED, BOOTSTRAP[0])


def test_a_fault_while_it_is_read_is_logged(
    decider: Decider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is decided later all the same."""
    for reads in ("peek_claimed_provider_id", "parse_signing_request"):
        monkeypatch.setattr(f"signer.decision.decider.{reads}", MagicMock(side_effect=RuntimeError("a defect")))
    csr = manifest(blocks(pkcs10()))
    assert decider.peek(csr) == Flow(PriorityLevel.UNFILTERED, BOOTSTRAP[0])
    assert decider.pre_filter(csr) == Flow(PriorityLevel.REFUSED, BOOTSTRAP[0])
    assert [record.message for record in caplog.records] == ["unexpected fault while reading"] * 2
    assert all(record.exc_info for record in caplog.records)


def test_before_its_cluster_is_known_it_stays_unfiltered(decider: Decider) -> None:
    looked_at: Any = decider
    looked_at._snapshots.take.side_effect = Deferred(Reason.POLICY_INVALID, "no policy")
    assert decider.pre_filter(manifest(blocks(pkcs10()))) == Flow(PriorityLevel.UNFILTERED, BOOTSTRAP[0])
