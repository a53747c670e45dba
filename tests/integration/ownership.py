"""One owner each, read from the API servers alone: AttestedNodes, IdentityReservations, certificates in CSRs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.record import AttestedNode, parse_record
from signer.model.reservation import Pair, ReservationSide, parse_reservation
from signer.testing.world import Verdict, WorldCluster
from tests.integration.house import House, certificate_of


def whole_pairs(house: House) -> set[Pair]:
    """What the reservations say."""
    found = [parse_reservation(manifest) for manifest in house.reservations()]
    machines, identities = ({one.pair for one in found if one.side is side} for side in ReservationSide)
    return machines & identities


def verdicts(cluster: WorldCluster) -> dict[str, Verdict]:
    """Every CSR of the cluster."""
    manifests: list[dict[str, Any]] = cluster.client().items(CERTIFICATE_SIGNING_REQUESTS.collection())
    return {manifest["metadata"]["name"]: Verdict.of(manifest) for manifest in manifests}


def assert_one_owner_each(house: House, clusters: Iterable[WorldCluster]) -> list[AttestedNode]:
    """Every certificate stands in exactly one journal; every record's pair is whole, one to one. Returns the records.

    A pair without a record may be left by a crash; a record without its pair may not.
    """
    clusters = tuple(clusters)
    records = [parse_record(manifest) for cluster in clusters for manifest in house.records(cluster)]
    pairs = [Pair(record.machine, record.identity) for record in records]
    assert Counter(pair.machine for pair in pairs).most_common(1)[0][1] == 1
    assert Counter(pair.identity.digest for pair in pairs).most_common(1)[0][1] == 1
    assert set(pairs) <= whole_pairs(house)
    for cluster in clusters:
        _assert_certificates_are_journaled(
            cluster, [one for one in records if one.machine.cluster.name == cluster.name]
        )
    return records


def _assert_certificates_are_journaled(cluster: WorldCluster, records: list[AttestedNode]) -> None:
    entries = [(record, entry) for record in records for entry in record.journal]
    assert len({entry.serial_number for _, entry in entries}) == len(entries)
    assert len({entry.csr_uid for _, entry in entries}) == len(entries)
    by_csr = {entry.csr_name: (record, entry) for record, entry in entries}
    for name, verdict in verdicts(cluster).items():
        assert (verdict.condition == "Approved") == bool(verdict.certificate), (name, verdict)
        if verdict.certificate:
            certificate = certificate_of(verdict)
            record, entry = by_csr[name]
            assert certificate.serial_number == entry.serial_number
            assert f"CN=system:node:{record.node_name}," in f"{certificate.subject.rfc4514_string()},"
