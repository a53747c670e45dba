"""Records an audit log for ``fixtures/audit``: ``python -m tests.support.record_audit FOLDER``.

It uses the example attestor on the embedded API: a node that joins, one that requests another's name, and one without a
Machine. It never overwrites a recording, because lines of a released version must stay replayable.
"""

from __future__ import annotations

import base64
import secrets
import sys
from pathlib import Path

import yaml
from keyed_mac.keys import derive_machine_key

from signer.audit.lines import FileLines
from signer.audit.log import GroupedAuditLog
from signer.configuration import Configuration, OperatorAttestor
from signer.controller.run import ControllerOptions
from signer.kube.resources import EVENTS
from signer.testing.fixtures import open_management_cluster, open_workload_clusters
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController, WorldCluster

LOG_NAME = "audit.log"
CONFIG_NAME = "config.yaml"


def record(folder: Path) -> None:
    """Write ``audit.log`` and its ``config.yaml``.

    Raises:
        FileExistsError: a recording exists.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / LOG_NAME).exists():
        raise FileExistsError(f"{folder / LOG_NAME} is recorded already, and a recording is never replaced")
    master_key = secrets.token_bytes(32)
    settings = {"masterKey": base64.b64encode(master_key).decode("ascii")}
    (folder / CONFIG_NAME).write_text(yaml.safe_dump({"attestors": {"keyed-mac": {"settings": settings}}}))
    lines = FileLines(folder / LOG_NAME, 0, 0)
    options = ControllerOptions(audit_log=GroupedAuditLog(lines))
    configuration = Configuration(CONTROLLER_NAMESPACE, attestors={"keyed-mac": OperatorAttestor(settings=settings)})
    with open_management_cluster() as management, open_workload_clusters(management) as make_cluster:
        cluster = make_cluster("production", namespace="team-a")
        cluster.authorize("keyed-mac")
        for name in ("worker-1", "worker-2"):
            cluster.add_machine(name, provider_id=f"example:///{name}")
        with RunningController(management.api.connection(), configuration, options):
            _ask(cluster, "worker-1", "worker-1", master_key, "csr-worker-1")
            cluster.wait_until_decided("csr-worker-1")
            _ask(cluster, "worker-2", "worker-1", master_key, "csr-another-name")
            cluster.wait_until_decided("csr-another-name")
            _ask(cluster, "worker-3", "worker-3", master_key, "csr-too-early")
            management.client.wait_for_any(
                EVENTS.collection("team-a"), lambda event: bool(event["reason"] == "MachineNotFound")
            )
    lines.close()
    (folder / f"{LOG_NAME}.lock").unlink()


def _ask(cluster: WorldCluster, machine: str, node_name: str, master_key: bytes, csr: str) -> None:
    identifier = f"example:///{machine}"
    machine_key = base64.b64encode(derive_machine_key(master_key, identifier)).decode("ascii")
    settings = {"provider-id": identifier, "machine-key": machine_key}
    node = SimulatedNode(node_name, identifier, cluster.ca_cert_hash, "keyed-mac", settings)
    cluster.submit_with_token(node.client_request(csr))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m tests.support.record_audit FOLDER")
    record(Path(sys.argv[1]))
