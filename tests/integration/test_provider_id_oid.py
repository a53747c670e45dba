"""The provider ID under a private OID, and the migration of a fleet from one OID to another."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from attestors.wire import provider_id as provider_id_format
from attestors.wire.names import PROVIDER_ID_OID
from authenticator.model.failures import ExitCode
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.integration.explaining import Explain
from tests.integration.fixtures import Harness, assert_readable, node_of, provider_id
from tests.integration.requests import blocks_of, manifest_of, plant
from tests.integration.test_explain_offline import Run
from tests.integration.test_explain_offline import offline as offline
from tests.support.node_program import NodeProgram
from tests.support.yaml_documents import safe_load_all
from tests.unit.signer.builders import extension, node_subject, pkcs10

pytestmark = pytest.mark.slow

ASSIGNED: Final = "1.3.6.1.4.1.57683.9"
BOTH: Final = (ASSIGNED, PROVIDER_ID_OID)


def asks(cluster: WorldCluster, machine: str, oid: str, **changes: Any) -> Verdict:
    cluster.add_machine(machine, provider_id=provider_id(machine))
    cluster.submit_with_token(node_of(cluster, machine).but(provider_id_oid=oid, **changes).client_request(machine))
    return cluster.wait_until_decided(machine)


def under_both(node: SimulatedNode, *values: str) -> bytes:
    """A request that holds a provider ID under each of the OIDs."""
    extensions = [extension(oid, provider_id_format.encode(value)) for oid, value in zip(BOTH, values, strict=True)]
    return b"".join(blocks_of(node, pkcs10(node.key, subject=node_subject(node.node_name), extensions=extensions)))


def test_a_private_oid(harness: Harness) -> None:
    cluster = harness.cluster()
    harness.run(provider_id_oids=(ASSIGNED,))
    joined = asks(cluster, "tells", ASSIGNED)
    assert (joined.condition, joined.reason) == ("Approved", "Attested")
    refused = asks(cluster, "does-not", PROVIDER_ID_OID)
    assert (refused.condition, refused.reason) == ("Denied", "InvalidProviderID")
    assert_readable(refused.message)
    assert ASSIGNED in refused.message
    harness.assert_audited()


def test_a_fleet_changes_over(harness: Harness) -> None:
    cluster = harness.cluster()
    controller = harness.run()
    assert asks(cluster, "former", PROVIDER_ID_OID).condition == "Approved"
    controller.stop()
    harness.run(provider_id_oids=BOTH)
    for machine, oid in (("newer", ASSIGNED), ("as-before", PROVIDER_ID_OID)):
        assert asks(cluster, machine, oid).condition == "Approved"
    unknown = asks(cluster, "unknown", "1.2.3.4")
    assert unknown.reason == "InvalidProviderID"
    assert f"({ASSIGNED} or {PROVIDER_ID_OID})" in unknown.message
    harness.assert_audited()


@pytest.mark.parametrize("values", [("own", "own"), ("own", "victim"), ("victim", "own")])
def test_a_request_under_both_oids_is_ignored(harness: Harness, values: tuple[str, str]) -> None:
    """Whichever of the two a check read, another could read the other one."""
    cluster = harness.cluster()
    for machine in ("own", "victim"):
        cluster.add_machine(machine, provider_id=provider_id(machine))
    harness.run(provider_id_oids=BOTH)
    node = node_of(cluster, "own")
    cluster.submit_with_token(manifest_of("both", under_both(node, *map(provider_id, values))))
    refused = cluster.wait_until_decided("both")
    assert (refused.condition, refused.reason) == ("Denied", "MalformedRequest")
    assert_readable(refused.message)
    assert harness.reservations() == []
    harness.assert_audited()


def test_the_nodes_program(harness: Harness, tmp_path: Path) -> None:
    """What a node was refused for is asked again as soon as its configuration is mended."""
    cluster = harness.cluster()
    harness.run(provider_id_oids=(ASSIGNED,))
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    program = NodeProgram(tmp_path / "node", node_of(cluster, "worker-1"))
    program.supply_bootstrap(cluster)
    refused = program.credential()
    assert refused.exit_code == ExitCode.DENIED
    assert ASSIGNED in refused.log
    program.configure(providerIDOID=ASSIGNED)
    program.credential().certificate()


def test_explain_uses_the_same_oid(harness: Harness, explain: Explain, offline: Run, tmp_path: Path) -> None:
    cluster = harness.cluster()
    controller = harness.run(provider_id_oids=(ASSIGNED,))
    asks(cluster, "worker-1", PROVIDER_ID_OID)
    controller.kill()
    recording = tmp_path / "recording.yaml"
    code, live = explain("worker-1", "--provider-id-oids", ASSIGNED, "--record", str(recording))
    assert (code, live["reason"]) == (4, "InvalidProviderID")
    again = offline("worker-1", "--objects", str(recording))
    assert (again[0], again[1]["message"]) == (code, live["message"])
    # Another would be decided otherwise: whoever asks is told of what was given, and not of what was recorded.
    assert offline("worker-1", "--objects", str(recording), "--provider-id-oids", ",".join(BOTH))[1]["reason"] != (
        "InvalidProviderID"
    )


def test_a_recording_is_read_under_the_oids_that_it_names(
    harness: Harness, explain: Explain, offline: Run, tmp_path: Path
) -> None:
    cluster = harness.cluster()
    plant(cluster, manifest_of("both", under_both(node_of(cluster, "own"), *map(provider_id, ("own", "own")))))
    recording = tmp_path / "recording.yaml"
    code, live = explain("both", "--provider-id-oids", ",".join(BOTH), "--record", str(recording))
    assert (code, live["reason"]) == (4, "MalformedRequest")
    header, *others = safe_load_all(recording.read_text())
    assert (header["providerIDOIDs"], header["redacted"]) == (list(BOTH), ["request"])
    assert offline("both", "--objects", str(recording))[1]["reason"] == "MalformedRequest"
    for oids in (["2.5.29.17"], [*BOTH, ASSIGNED], [7], ["1.2.3", {}]):
        recording.write_text(yaml.safe_dump_all([header | {"providerIDOIDs": oids}, *others]))
        refused = offline("both", "--objects", str(recording))
        assert refused[0] == 2
        assert "providerIDOIDs: " in refused[2]
