"""``status``: the fleet in one table, through the program's own command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import pytest

from attestors.registry import Registry
from signer.cli import main
from signer.explain.fleet import OBSERVE_PROTECTS_NOTHING
from signer.kube.resources import LEASES, MACHINES_V1BETA2, SECRETS
from signer.model.lease import DEFAULT_LEASE_NAME, ElectionTimes, new_lease, released, taken
from signer.store.controller_key import SECRET_NAME
from signer.testing.fixtures import embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.explaining import READ_ONLY, READER
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.integration.requests import plant

pytestmark = pytest.mark.slow

VIEWER = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
  - {apiGroups: [cluster.x-k8s.io], resources: ["*"], verbs: [get, list]}
  - {apiGroups: [attestation.cluster.x-k8s.io], resources: [nodeattestationpolicies], verbs: [get, list]}
  - {nonResourceURLs: ["*"], verbs: [get]}
"""
SECRETS_ONLY = f"{VIEWER}  - {{apiGroups: [''], resources: [secrets], verbs: [get]}}\n"
RECORDS_ONLY = f"{VIEWER}  - {{apiGroups: [attestation.cluster.x-k8s.io], resources: [attestednodes], verbs: [list]}}\n"
Run = Callable[..., tuple[int, str]]


@pytest.fixture
def said() -> list[str]:
    """What the command wrote to standard error, run by run."""
    return []


@pytest.fixture
def run(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str], said: list[str]) -> Run:
    """Run the command as a user with read access only; returns exit code and output."""
    harness.api.apply_yaml(READ_ONLY)
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(harness.api.kubeconfig("management", READER, ()))

    def status(*arguments: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(["status", *arguments, "--kubeconfig", str(kubeconfig)])
        written = capsys.readouterr()
        said.append(written.err)
        return code, written.out

    return status


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster with one attested node, one that was refused and one that waits."""
    cluster = harness.cluster()
    harness.run()
    harness.join(cluster, "worker-1")
    cluster.add_machine("worker-2", provider_id=provider_id("worker-2"))
    cluster.submit_with_token(node_of(cluster, "worker-2", "worker-1").client_request("refused"))
    assert cluster.wait_until_decided("refused").reason == "NodeNameMismatch"
    cluster.submit_with_token(node_of(cluster, "worker-3").client_request("waits"))
    harness.wait_for_condition(cluster, "Ready", "True")
    return cluster


def renew_lease(harness: Harness, ago: timedelta, holder: str = "replica-1", name: str = DEFAULT_LEASE_NAME) -> None:
    """Make the Lease of a controller that renewed it that long ago."""
    renewed = datetime.now(UTC) - ago
    holding = (
        taken(holder, ElectionTimes(), renewed) if holder else released(taken("", ElectionTimes(), renewed), renewed)
    )
    harness.management.client.create(
        LEASES.collection(CONTROLLER_NAMESPACE), new_lease(name, CONTROLLER_NAMESPACE, holding)
    )


@pytest.mark.parametrize("holder", ["replica-1", ""], ids=["it died", "it released the Lease"])
def test_no_controller_runs(harness: Harness, cluster: WorldCluster, run: Run, holder: str) -> None:
    """Its conditions still say that all is well."""
    renew_lease(harness, timedelta(seconds=58), holder)
    code, found = report(run)
    (one,) = found["clusters"]
    assert (code, one["ready"]["status"]) == (3, "True")
    assert one["needs"][0].startswith(
        f"no controller has renewed Lease {CONTROLLER_NAMESPACE}/{DEFAULT_LEASE_NAME} since "
    )
    assert one["needs"][0].endswith(
        "conditions are as it last wrote them. If no replica elects a leader by this Lease any more, delete it"
    )
    code, text = run(f"{cluster.key}")
    assert (code, "no controller has renewed Lease" in text) == (3, True)


def test_the_lease_has_the_name_that_the_replicas_have(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    renew_lease(harness, timedelta(seconds=10))
    renew_lease(harness, timedelta(seconds=58), name="blue")
    assert report(run)[0] == 0
    code, found = report(run, "--leader-elect-resource-name", "blue")
    assert code == 3
    assert found["clusters"][0]["needs"][0].startswith(
        f"no controller has renewed Lease {CONTROLLER_NAMESPACE}/blue since "
    )
    assert run("--leader-elect-resource-name", "a/b")[0] == 2


def test_a_controller_runs(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    renew_lease(harness, timedelta(seconds=10))
    code, found = report(run)
    assert (code, found["clusters"][0]["needs"]) == (0, [])


def report(run: Run, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, output = run(*arguments, "--output", "json")
    return code, json.loads(output)


def test_a_healthy_fleet(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    harness.api.requests.clear()
    code, found = report(run)
    (one,) = found["clusters"]
    assert (code, found["needsAttention"], one["needs"]) == (0, False, [])
    observe, administrator = one["notes"]
    assert observe == OBSERVE_PROTECTS_NOTHING
    assert administrator.endswith("node-attestation-controller workload-kubeconfig default/workload")
    assert (one["cluster"], one["mode"], one["attestors"]) == ("default/workload", "Observe", "keyed-mac")
    assert one["ready"] == {"status": "True", "reason": "Ready", "message": "requests are decided"}
    assert (one["machines"], one["attested"]) == (2, 1)
    assert (one["pending"], one["denied"], one["failed"]) == (1, {"NodeNameMismatch": 1}, 0)
    assert one["certificates"] == {
        "expired": 0,
        "overdue": 0,
        "below1Days": 0,
        "below3Days": 0,
        "below7Days": 1,
        "more": 0,
    }
    assert one["certificateAuthorityNotAfter"].startswith("20")
    reads = [entry for entry in harness.api.requests.matching() if entry.user == READER]
    assert {entry.method for entry in reads} == {"GET"}
    code, text = run("--namespace", "default")
    assert code == 0
    assert OBSERVE_PROTECTS_NOTHING in " ".join(text.split())
    assert "Nothing needs attention." not in text, "a stolen bootstrap token works in Observe"
    assert "NodeNameMismatch 1" in text
    assert "\x1b" not in text


class At(datetime):
    """A clock that goes ahead."""

    ahead: ClassVar[timedelta]

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
        return datetime.now(tz) + cls.ahead


def test_certificates_that_live_for_hours(harness: Harness, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than a day left is their whole life; less than 15 % of it is not."""
    cluster = harness.cluster(policy={"certificates": {"clientDuration": "2h"}})
    harness.run()
    harness.join(cluster, "worker-1")
    harness.wait_for_condition(cluster, "Ready", "True")
    monkeypatch.setattr("signer.cli.status.datetime", At)
    for minutes, code, certificates in (
        (0, 0, {"expired": 0, "overdue": 0, "below1Days": 1}),
        (95, 0, {"expired": 0, "overdue": 0, "below1Days": 1}),
        (110, 3, {"expired": 0, "overdue": 1, "below1Days": 1}),
        (125, 3, {"expired": 1, "overdue": 0, "below1Days": 0}),
    ):
        monkeypatch.setattr(At, "ahead", timedelta(minutes=minutes), raising=False)
        ended, found = report(run)
        (one,) = found["clusters"]
        assert (ended, one["certificates"]) == (code, {**certificates, "below3Days": 0, "below7Days": 0, "more": 0})
        assert [need.partition(":")[0] for need in one["needs"]] == ["nodes do not renew"] * (code == 3)
        (machine,) = report(run, "workload")[1]["machines"]
        assert machine["state"] == ("Attested" if code == 0 else "Overdue" if certificates["overdue"] else "Unattested")
        words = [f"1 {word}" for word in ("expired", "overdue") if certificates[word]]
        assert [word for word in ("1 expired", "1 overdue") if word in run()[1]] == words


def test_what_needs_attention(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    """One cluster that does not respond delays no other, and is reported."""
    silent = harness.cluster("silent", namespace="team-b")
    hung = embedded_api(silent)
    hung.__exit__(None, None, None)
    cluster.put_secret("ca", {"tls.crt": b"", "tls.key": b""})
    code, found = report(run, "--timeout", "2")
    well, other = found["clusters"]
    assert (code, found["needsAttention"]) == (3, True)
    assert (well["pending"], well["unreachable"]) == (1, "")
    assert well["certificateAuthorityNotAfter"] is None
    assert (other["cluster"], other["pending"], other["denied"]) == ("team-b/silent", None, None)
    assert other["unreachable"]
    assert any(need.startswith("no CA: Secret default/workload-ca") for need in well["needs"])
    assert any(need.startswith("its requests cannot be read") for need in other["needs"])
    assert "team-b/silent" in run("--timeout", "2")[1]


def test_records_of_another_controller(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    """Without the controller key, or under another one, no AttestedNode counts."""
    assert report(run)[1]["clusters"][0]["attested"] == 1
    key = SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)
    harness.management.client.patch(key, {"data": {"current": "bmV3IHJhbmRvbSBieXRlcyBuZXcgcmFuZG9tIGJ5dGU="}})
    code, found = report(run)
    one = found["clusters"][0]
    assert (code, one["attested"], one["foreignRecords"]) == (3, 0, 1)
    assert any(need.startswith("AttestedNodes not sealed with the controller key: 1;") for need in one["needs"])
    harness.management.client.patch(key, {"data": {"current": "c2hvcnQ="}})
    code, found = report(run)
    assert (code, found["clusters"][0]["attested"], found["clusters"][0]["certificates"]) == (3, None, None)
    assert any(SECRET_NAME in need for need in found["clusters"][0]["needs"])
    harness.management.client.delete(key)
    code, found = report(run)
    assert (code, found["clusters"][0]["attested"]) == (3, None)
    assert any("restore its copy before a controller starts" in need for need in found["clusters"][0]["needs"])


def test_before_the_controller_has_run(harness: Harness, run: Run) -> None:
    harness.cluster()
    code, found = report(run)
    (one,) = found["clusters"]
    assert (code, one["ready"]["status"], one["attested"], one["pending"]) == (3, "", None, 0)
    assert "no controller has written the condition Ready yet" in one["needs"]
    assert any("has the controller run" in need for need in one["needs"])


def test_no_cluster_has_a_policy(harness: Harness, run: Run) -> None:
    harness.cluster(attestors=())
    code, shown = run()
    assert (code, "No Cluster has a NodeAttestationPolicy" in shown) == (0, True)
    assert "No Cluster of namespace misspelt has a NodeAttestationPolicy" in run("--namespace", "misspelt")[1]
    assert report(run)[1]["clusters"] == []


def test_the_machines_of_one_cluster(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    """Which Machine was refused and why, and which one is attested by whom, until when and under which CA."""
    harness.cluster("other")
    code, found = report(run, "workload")
    assert (code, found["needsAttention"], found["open"]) == (3, True, ["default/workload"])
    assert [one["cluster"] for one in found["clusters"]] == ["default/workload"]
    refused, attested = found["machines"]
    assert (refused["name"], refused["state"], refused["notAfter"]) == ("worker-2", "Unattested", None)
    assert refused["reason"] == "Denied NodeNameMismatch; has no AttestedNode that counts"
    assert (attested["name"], attested["node"], attested["state"]) == ("worker-1", "worker-1", "Attested")
    assert (attested["attestor"], attested["certificateAuthority"]) == ("keyed-mac", cluster.ca_cert_hash)
    code, text = run("default/workload")
    assert code == 3
    assert text.splitlines()[0] == f"Open door: default/workload: {OBSERVE_PROTECTS_NOTHING}"
    assert "explain machine/worker-2 --cluster default/workload" in text
    assert "(former)" not in text
    assert run("workload", "--namespace", "default", "-o", "yaml")[0] == 3


def test_the_page_for_a_wall(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    """A workload cluster chooses the text of a reason, and cannot run anything in the page."""
    attack = "<script>document.title='owned'</script>"
    request = node_of(cluster, "worker-2").client_request("attack")
    condition = {"type": "Denied", "status": "True", "reason": attack, "message": attack}
    planted = plant(cluster, request, created="2126-01-01T00:00:00Z", conditions=[condition])
    assert planted["status"]["conditions"]
    code, page = run("workload", "--output", "html")
    assert code == 3
    assert page.startswith("<!DOCTYPE html>")
    assert attack not in page
    assert f"Denied {escape(attack)}; has no AttestedNode that counts" in page
    assert page.index("Open door: default/workload") < page.index("needs attention</h1>")
    assert run("--output", "html")[0] == 0, "a refused Machine alone is no fault of the fleet"


def test_a_denied_copy_says_nothing_against_an_attested_machine(
    harness: Harness, cluster: WorldCluster, run: Run
) -> None:
    """A stolen bootstrap token may ask in the name of any Machine."""
    harness.management.client.delete(MACHINES_V1BETA2.object("worker-2", "default"))
    cluster.submit_with_token(node_of(cluster, "worker-1", "somebody-else").client_request("impostor"))
    assert cluster.wait_until_decided("impostor").condition == "Denied"
    code, found = report(run, "workload")
    assert [(one["state"], one["reason"]) for one in found["machines"]] == [("Attested", "")]
    assert (code, found["needsAttention"]) == (0, False)


def test_what_cannot_be_read_is_no_fault_of_a_machine(
    harness: Harness, cluster: WorldCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attestor, the controller key, the AttestedNodes: line by line, and no healthy Machine is to be replaced."""
    monkeypatch.setattr("signer.cli.status.Registry", lambda: Registry([]))
    code, found = report(run, "workload")
    states = {one["name"]: (one["state"], one["reason"]) for one in found["machines"]}
    assert states["worker-1"] == ("Unknown", "not readable here: attestor keyed-mac is not installed")
    assert (found["clusters"][0]["attested"], found["clusters"][0]["unknown"]) == (0, 1)
    assert "Machines attested by keyed-mac, which is not installed here: 1;" in run("workload")[1]
    monkeypatch.undo()
    for rules, unreadable in ((SECRETS_ONLY, "not readable here: attestednodes"), (RECORDS_ONLY, SECRET_NAME)):
        harness.api.apply_yaml(rules)
        code, found = report(run, "workload")
        assert {one["state"] for one in found["machines"]} == {"Unknown"}
        assert all(one["reason"].startswith("not readable here: ") for one in found["machines"])
        assert any(unreadable in note for note in found["clusters"][0]["notes"]), found["clusters"][0]["notes"]
        assert (code, found["clusters"][0]["mode"]) == (0, "Observe")
        shown = run("workload")[1]
        assert "not readable here" in shown
        assert "explain machine/" not in shown
        assert "replace" not in shown.lower()
        assert report(run)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nowhere",), 1, "Cluster default/nowhere does not exist: there is default/unserved"),
        (("unserved",), 1, "Cluster default/unserved has no NodeAttestationPolicy: the controller does not serve it"),
        (("workload", "-A"), 2, "give CLUSTER or --all-namespaces, not both"),
        (("a/b/c",), 2, "'a/b/c' is not a Cluster name: write NAMESPACE/NAME"),
    ],
)
def test_clusters_without_a_status(
    harness: Harness, run: Run, said: list[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    harness.cluster("unserved", attestors=())
    assert run(*arguments)[0] == code
    assert message in said[-1]
