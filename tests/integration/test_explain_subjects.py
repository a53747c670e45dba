"""``explain machine/NAME`` and ``explain node/NAME``: the request that the checks explain, or what is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from signer.explain import found_requests
from signer.kube.client import JsonObject
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, MACHINES_V1BETA2, SECRETS
from signer.store.controller_key import SECRET_NAME
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.explaining import READER, Explain
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.integration.requests import manifest_of, plant

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster that no controller serves, with one Machine."""
    cluster = harness.cluster()
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    return cluster


def posted(cluster: WorldCluster, name: str, minute: int, node: SimulatedNode | None = None) -> JsonObject:
    """A request that was posted at that minute."""
    manifest = (node or node_of(cluster, "worker-1")).client_request(name)
    return plant(cluster, manifest, created=f"2026-01-02T03:{minute:02}:04Z")


def deny(cluster: WorldCluster, name: str, reason: str) -> None:
    path = CERTIFICATE_SIGNING_REQUESTS.object(name)
    condition = {"type": "Denied", "status": "True", "reason": reason, "message": "denied by the test"}
    cluster.client().patch(f"{path}/approval", {"status": {"conditions": [condition]}})


def test_the_newest_request_that_waits(cluster: WorldCluster, explain: Explain) -> None:
    """A newer one that is decided, and requests of other machines, do not hide it."""
    for name, minute in (("older", 1), ("eldest", 0), ("waits", 2), ("denied", 3)):
        posted(cluster, name, minute)
    deny(cluster, "denied", "NodeNameMismatch")
    posted(cluster, "another", 4, node_of(cluster, "worker-2"))
    for subject in ("machine/worker-1", "node/worker-1"):
        code, report = explain(subject)
        assert (code, report["verdict"], report["request"]["name"]) == (0, "approve", "waits"), report
        (note,) = [note for note in report["notes"] if "in the name of" in note]
        assert note.endswith(
            "is the newest of those that wait. Others: older (waits), eldest (waits), denied (Denied NodeNameMismatch)."
        )
    for name in ("older", "eldest", "waits"):
        deny(cluster, name, "Later")
    assert explain("machine/worker-1")[1]["request"]["name"] == "denied"
    assert explain("node/worker-2")[1]["request"]["name"] == "another"


def test_a_machine_is_found_by_its_provider_id_and_not_by_the_name_that_is_asked_for(
    cluster: WorldCluster, explain: Explain
) -> None:
    """An impostor that asks for the node's name is explained for its own Machine, and for the name."""
    cluster.add_machine("worker-2", provider_id=provider_id("worker-2"))
    cluster.set_machine_status(
        cluster.management.client.get(MACHINES_V1BETA2.object("worker-1", "default")), {"nodeRef": {"name": "worker-1"}}
    )
    posted(cluster, "honest", 1)
    posted(cluster, "impostor", 2, node_of(cluster, "worker-2", "worker-1"))
    assert explain("machine/worker-1")[1]["request"]["name"] == "honest"
    assert explain("machine/worker-2")[1]["request"]["name"] == "impostor"
    code, report = explain("node/worker-1")
    assert (code, report["reason"], report["request"]["name"]) == (4, "NodeNameMismatch", "impostor")
    assert any("Others: honest (waits)." in note for note in report["notes"])


def test_requests_without_end_are_counted_and_not_kept(
    cluster: WorldCluster, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bootstrap token may post any number of them in the name of any node."""
    monkeypatch.setattr(found_requests, "MAXIMUM_FOUND", 3)
    for minute in range(10):
        posted(cluster, f"copy-{minute}", minute)
    plant(cluster, manifest_of("garbage", b"\x00 no request"))
    _, report = explain("machine/worker-1")
    assert report["request"]["name"] == "copy-9"
    assert any("copy-8 (waits), copy-7 (waits), and 7 more." in note for note in report["notes"])


def test_a_machine_without_a_request(harness: Harness, cluster: WorldCluster, explain: Explain) -> None:
    """What its AttestedNode records, that the requests are gone, and what to type next."""
    harness.run()
    harness.join(cluster, "worker-3")
    workload = cluster.client()
    for request in workload.items(CERTIFICATE_SIGNING_REQUESTS.collection()):
        workload.delete(CERTIFICATE_SIGNING_REQUESTS.object(request["metadata"]["name"]))
    for subject in ("machine/worker-3", "node/worker-3"):
        code, report = explain(subject)
        assert (code, report["request"]) == (6, None)
        assert (
            "is attested; the last client certificate of node worker-3, by attestor keyed-mac, ends at 20"
            in (report["message"])
        )
        assert "The workload cluster deletes a decided CSR after an hour" in report["message"]
        assert "kubelet-authenticator status" not in report["message"], "nothing is wrong with it"
        (machine,) = report["machines"]
        assert (machine["state"], machine["attestor"]) == ("Attested", "keyed-mac")
        assert report["commands"] == [
            "kubectl describe machine --namespace default worker-3",
            "node-attestation-controller audit show AUDIT-LOG --node worker-3",
            "node-attestation-controller status default/workload",
        ]
        assert "worker-3" in explain.text(subject)[1]
    code, report = explain("machine/worker-1")
    assert (code, report["machines"][0]["state"]) == (6, "Unattested")
    assert "run `kubelet-authenticator status` on the machine" in report["message"]
    harness.management.client.delete(MACHINES_V1BETA2.object("worker-3", "default"))
    assert (
        "which does not exist any more; it was attested by keyed-mac, until 20"
        in explain("node/worker-3")[1]["message"]
    )
    harness.management.client.delete(SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE))
    code, report = explain("machine/worker-1")
    assert report["message"].startswith("Whether Machine default/worker-1 is attested is unknown; not readable here: ")
    assert explain.text("node/worker-3")[0] == 1
    assert "AttestedNodes are not readable here" in explain.error


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("machine/worker-9",), 1, "Machine default/worker-9 does not exist: `kubectl get machines,machinepools "),
        (("machine/elsewhere",), 1, "elsewhere is of Cluster default/other: give --cluster default/other"),
        (("node/worker-9",), 1, "Cluster default/workload has no node worker-9: no request, no AttestedNode and no"),
        (("machine/",), 2, "'machine/' is no name: write machine/NAME, in the Cluster's namespace"),
        (("machine/default/worker-1",), 2, "'machine/default/worker-1' is no name: write machine/NAME"),
        (("node/Worker_1",), 2, "'node/Worker_1' is no name: write node/NAME; for a file, write ./node/..."),
        (("node/worker\x1b[31m",), 2, "'node/worker\\x1b[31m' is no name"),
        (("pod/worker-1",), 2, "pod/worker-1 is no file: write the name of a CSR, machine/NAME, node/NAME, or"),
    ],
)  # fmt: skip
def test_what_names_nothing(
    cluster: WorldCluster, explain: Explain, arguments: tuple[str, ...], code: int, said: str
) -> None:
    machine = cluster.add_machine("elsewhere")
    path = MACHINES_V1BETA2.object(machine["metadata"]["name"], "default")
    cluster.management.client.patch(path, {"spec": {"clusterName": "other"}})
    assert explain.text(*arguments)[0] == code
    assert said in explain.error


def test_a_machine_or_node_without_its_prefix(cluster: WorldCluster, explain: Explain) -> None:
    """The first thing that people type. A Machine of another Cluster is not offered."""
    machine = cluster.add_machine("worker-2", provider_id=provider_id("worker-2"))
    cluster.set_machine_status(machine, {"nodeRef": {"name": "ip-10-0-0-2"}})
    elsewhere = cluster.add_machine("elsewhere")
    path = MACHINES_V1BETA2.object(elsewhere["metadata"]["name"], "default")
    cluster.management.client.patch(path, {"spec": {"clusterName": "other"}})
    for name, instead in (
        ("worker-1", "but Machine default/worker-1 does: write machine/worker-1\n"),
        ("ip-10-0-0-2", "but node ip-10-0-0-2 does: write node/ip-10-0-0-2\n"),
    ):
        assert explain.text(name)[0] == 1
        assert explain.error.endswith(f"CSR {name} of Cluster default/workload does not exist, {instead}")
    for name in ("elsewhere", "nobody"):
        assert explain.text(name)[0] == 1
        assert f"CSR {name} of Cluster default/workload does not exist: `kubectl get csr`" in explain.error


def test_offline_and_recordings(cluster: WorldCluster, explain: Explain, tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text("{kind: Cluster, metadata: {name: workload, namespace: default}}")
    assert explain.text("machine/worker-1", "--objects", str(tmp_path / "cluster.yaml"))[0] == 2
    assert "machine/worker-1 needs a live cluster: leave out --objects, or give the name of a CSR" in explain.error
    assert explain.text("machine/worker-1", "--record", str(tmp_path / "recording.yaml"))[0] == 1
    assert "--record: Machine default/worker-1 has no request to record" in explain.error
    posted(cluster, "join", 1)
    assert explain("machine/worker-1", "--record", str(tmp_path / "recording.yaml"))[0] == 0
    assert "name: join" in (tmp_path / "recording.yaml").read_text()


def test_it_reads_only(harness: Harness, cluster: WorldCluster, explain: Explain) -> None:
    posted(cluster, "join", 1)
    for api in (harness.api, embedded_api(cluster)):
        api.requests.clear()
    assert explain("machine/worker-1")[0] == 0
    assert {entry.method for entry in harness.api.requests.matching() if entry.user == READER} == {"GET"}
