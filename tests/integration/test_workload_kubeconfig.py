"""``workload-kubeconfig`` on the program's own command line, and a controller that has nothing else."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from signer.cli import main
from signer.cli.workload_kubeconfig import making
from signer.cli.workload_kubeconfig.command import FLOORS_NOT_READ
from signer.cli.workload_kubeconfig.credential import CREDENTIAL_LABEL
from signer.cli.workload_kubeconfig.features import Feature
from signer.cli.workload_kubeconfig.roles import ACCOUNT, wanted_objects
from signer.controller.cluster import kubeconfig_change
from signer.kube.kubeconfig import parse_kubeconfig
from signer.kube.resources import NAMESPACES, NODE_ATTESTATION_POLICIES, SECRETS
from signer.model.fields import format_time, parse_time
from signer.testing.api import EmbeddedAPI
from signer.testing.clients import BlockingClient
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, Harness
from tests.support.processes import wait_until
from tests.support.yaml_documents import safe_load, safe_load_all

pytestmark = pytest.mark.slow

USER: Final = f"system:serviceaccount:kube-system:{ACCOUNT}"
NAME: Final = "workload-kubeconfig-restricted"
PATH: Final = SECRETS.object(NAME, "default")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command; returns its exit code and what it wrote to either stream."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(harness.api.kubeconfig())

    def command(name: str, *arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        try:
            code = main([name, *arguments, "--kubeconfig", str(kubeconfig)])
        except SystemExit as ended:
            code = int(str(ended.code))
        written = capsys.readouterr()
        return code, written.out, written.err

    return command


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster with kubeadm's grants, under Observe."""
    return harness.cluster(api={"seed_kubeadm": True})


def made(run: Run, *arguments: str) -> dict[str, Any]:
    code, output, errors = run("workload-kubeconfig", "workload", "-o", "json", *arguments)
    assert code == 0, errors
    found: dict[str, Any] = json.loads(output)
    return found


def restricted(harness: Harness) -> dict[str, Any]:
    return harness.management.client.get(PATH)


def token_of(secret: dict[str, Any]) -> str:
    connection = parse_kubeconfig(base64.b64decode(secret["data"]["value"]))
    return str(connection.bearer_token)


def bound_secrets(api: EmbeddedAPI) -> list[str]:
    found = [one["metadata"] for one in api.objects("secrets", "kube-system")]
    return [one["name"] for one in found if CREDENTIAL_LABEL in one.get("labels", {})]


def answers(api: EmbeddedAPI, token: str) -> str:
    """``yes``, or the error."""
    with BlockingClient(api.token_connection(token)) as client:
        try:
            client.items("/apis/certificates.k8s.io/v1/certificatesigningrequests")
        except Exception as error:  # noqa: BLE001 - its name is the answer
            return type(error).__name__
    return "yes"


def test_what_is_made(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    report = made(run)
    assert report["secret"] == f"default/{NAME}"
    assert "ClusterRole node-attestation-workload" in report["written"]
    assert (report["removed"], report["revoked"]) == ([], 0)
    secret = restricted(harness)
    assert secret["type"] == "cluster.x-k8s.io/secret"
    (owner,) = secret["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("Cluster", "workload")
    days = parse_time(report["expires"]) - datetime.now(UTC)
    assert timedelta(days=364) < days <= timedelta(days=365)
    workload = embedded_api(cluster)
    assert answers(workload, token_of(secret)) == "yes"
    role = workload.get("clusterroles", "node-attestation-workload")
    (signers,) = [rule["resourceNames"] for rule in role["rules"] if rule["resources"] == ["signers"]]
    assert {name.rpartition("-")[2] for name in signers} == {"mac"}
    # Never unasked what may read all Secrets.
    assert "node-attestation-bootstrap-tokens" not in {
        one["metadata"]["name"] for one in workload.objects("rolebindings", "kube-system")
    }


def test_the_controller_needs_nothing_else(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    cluster.management.client.patch(
        NODE_ATTESTATION_POLICIES.object(cluster.name, "default"), {"spec": {"mode": "Enforce"}}
    )
    made(run)
    harness.management.client.delete(SECRETS.object("workload-kubeconfig", "default"))
    workload = embedded_api(cluster)
    workload.requests.clear()
    harness.run()
    harness.join(cluster)
    harness.wait_for_condition(cluster, "AutoApprovalRemoved", "True")
    assert CONTROLLER_USER not in {request.user for request in workload.requests.matching()}
    refused = {request.path for request in requests_of(workload) if request.status == 403}
    assert refused == {SECRETS.collection("kube-system")}, "the role of bootstrap tokens was not asked for"


def test_repeating_it_renews_the_credential_and_ends_the_former(
    harness: Harness, cluster: WorldCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubeconfig_change, "READ_SECONDS", 0.05)
    workload = embedded_api(cluster)
    harness.run()  # it begins with the administrator's
    harness.join(cluster)
    made(run)
    workload.requests.clear()
    wait_until(lambda: bool(requests_of(workload)), "the controller uses the restricted kubeconfig")
    first = token_of(restricted(harness))
    report = made(run)
    assert (report["written"], report["revoked"]) == ([], 1)
    second = token_of(restricted(harness))
    assert (answers(workload, first), answers(workload, second)) == ("Unauthorized", "yes")
    assert len(bound_secrets(workload)) == 1
    harness.join(cluster)


def requests_of(api: EmbeddedAPI) -> list[Any]:
    return [one for one in api.requests.matching() if one.user == USER]


def test_features_come_and_go(cluster: WorldCluster, run: Run) -> None:
    workload = embedded_api(cluster)
    every = [f"--{feature.value}" for feature in Feature if feature is not Feature.ENFORCE]
    report = made(run, *every)
    for one in wanted_objects(tuple(Feature), ("keyed-mac",)):
        assert one.title in report["written"], one.title
        found = workload.get(one.resource.plural, one.name, one.namespace or "")
        assert one.resource is NAMESPACES or one.is_as_wanted(found), one.title
    assert made(run, *every)["written"] == []
    report = made(run)
    assert "ClusterRoleBinding node-attestation-containers" in report["removed"]
    assert "RoleBinding kube-system/node-attestation-bootstrap-tokens" in report["removed"]
    assert "ClusterRoleBinding node-attestation-auto-approval" in made(run, "--no-enforce")["removed"]
    assert made(run, "--no-enforce")["removed"] == []
    # A binding that somebody else made stays.
    binding = [one.body for one in wanted_objects((Feature.ENFORCE,), ()) if one.name.endswith("auto-approval")][-1]
    workload.create({**binding, "metadata": {"name": binding["metadata"]["name"]}})
    assert made(run, "--no-enforce")["removed"] == []


def test_what_somebody_changed_or_applied_by_hand_is_taken_over(cluster: WorldCluster, run: Run) -> None:
    workload = embedded_api(cluster)
    root = Path(__file__).parents[2]
    workload.apply_yaml((root / "deploy/rbac/workload.yaml").read_text(encoding="utf-8"))
    made(run)
    (subject,) = workload.get("clusterrolebindings", "node-attestation-workload")["subjects"]
    assert (subject["kind"], subject["name"]) == ("ServiceAccount", ACCOUNT)
    role = workload.get("clusterroles", "node-attestation-workload")
    workload.update({**role, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})
    assert made(run)["written"] == ["ClusterRole node-attestation-workload"]
    role = workload.get("clusterroles", "node-attestation-workload")
    selectors = [{"matchLabels": {"somebody": "adds-to-it"}}]
    workload.update({**role, "aggregationRule": {"clusterRoleSelectors": selectors}})
    assert made(run)["written"] == ["ClusterRole node-attestation-workload"]
    binding = workload.get("clusterrolebindings", "node-attestation-workload")
    workload.delete("clusterrolebindings", "node-attestation-workload")
    workload.create(
        {
            **binding,
            "metadata": {"name": "node-attestation-workload"},
            "roleRef": {**binding["roleRef"], "name": "cluster-admin"},
        }
    )
    assert made(run)["written"] == ["ClusterRoleBinding node-attestation-workload"]
    assert workload.get("clusterrolebindings", "node-attestation-workload")["roleRef"] == binding["roleRef"]


def test_a_dry_run_prints_and_writes_nothing(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    workload = embedded_api(cluster)
    before = len(workload.requests.writes()), len(harness.api.requests.writes())
    code, output, _ = run("workload-kubeconfig", "default/workload", "--dry-run", "--ssh")
    assert code == 0
    printed = list(safe_load_all(output))
    assert printed == [one.body for one in wanted_objects((Feature.SSH, Feature.ENFORCE), ("keyed-mac",))]
    assert (len(workload.requests.writes()), len(harness.api.requests.writes())) == before


def test_a_floor_of_enforce_needs_the_rights_for_it(
    harness: Harness, cluster: WorldCluster, run: Run, tmp_path: Path
) -> None:
    """The policy says Observe, and the controller enforces all the same. Nothing is removed."""
    made(run)
    before = len(embedded_api(cluster).requests.writes())
    config = tmp_path / "operator.yaml"
    config.write_text(yaml.safe_dump({"floors": [{"namespaces": ["default"], "mode": "Enforce"}]}))
    code, _, errors = run("workload-kubeconfig", "workload", "--no-enforce", "--config", str(config))
    assert (code, len(embedded_api(cluster).requests.writes())) == (2, before)
    assert "the operator's floor for namespace default is mode Enforce" in errors
    harness.cluster("without", ())  # its policy is written later, and cannot fall below the floor
    code, _, errors = run(
        "workload-kubeconfig", "without", "--attestors", "tpm", "--no-enforce", "--config", str(config)
    )
    assert (code, "is mode Enforce" in errors) == (2, True)
    config.write_text(yaml.safe_dump({"floors": [{"namespaces": ["elsewhere"], "mode": "Enforce"}]}))
    code, _, errors = run("workload-kubeconfig", "workload", "--no-enforce", "--config", str(config))
    assert (code, errors) == (0, "")
    code, _, errors = run("workload-kubeconfig", "workload", "--no-enforce")
    assert (code, errors.strip()) == (0, FLOORS_NOT_READ)


def test_what_is_wrong_is_named_with_its_remedy(
    harness: Harness, cluster: WorldCluster, run: Run, tmp_path: Path
) -> None:
    assert run("workload-kubeconfig", "another")[0] == 1
    harness.cluster("without", ())
    code, _, errors = run("workload-kubeconfig", "without")
    assert code == 1
    assert "there is no NodeAttestationPolicy default/without" in errors
    assert run("workload-kubeconfig", "without", "--attestors", "tpm")[0] == 0
    assert run("workload-kubeconfig", "workload", "--attestors", "No!")[0] == 2
    assert run("workload-kubeconfig", "workload", "--days", "0")[0] == 2
    cluster.management.client.patch(
        NODE_ATTESTATION_POLICIES.object(cluster.name, "default"), {"spec": {"mode": "Enforce"}}
    )
    assert run("workload-kubeconfig", "workload", "--no-enforce")[0] == 2
    workload = embedded_api(cluster)
    file = tmp_path / "workload"
    file.write_text(workload.kubeconfig("workload", "nobody", ()))
    code, _, errors = run("workload-kubeconfig", "workload", "--workload-kubeconfig", str(file))
    assert code == 1
    assert "needs an administrator's rights at both clusters" in errors
    file.write_text("exec: {}")
    assert run("workload-kubeconfig", "workload", "--workload-kubeconfig", str(file))[0] == 2
    file.write_text(workload.kubeconfig())
    assert run("workload-kubeconfig", "workload", "--workload-kubeconfig", str(file))[0] == 0
    foreign = restricted(harness)
    foreign["metadata"]["labels"] = {}
    harness.management.client.replace(PATH, foreign)
    code, _, errors = run("workload-kubeconfig", "workload")
    assert code == 1
    assert "somebody else made it" in errors
    assert restricted(harness)["data"] == foreign["data"]


def test_a_credential_that_does_not_work_replaces_none(
    harness: Harness, cluster: WorldCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signer.cli.workload_kubeconfig.making._TRIALS", 2)
    made(run)
    before = restricted(harness)
    workload = embedded_api(cluster)
    workload.faults.inject("GET */certificatesigningrequests", status=401, times=None)
    code, _, errors = run("workload-kubeconfig", "workload")
    workload.faults.clear()
    assert code == 1
    assert "does not accept the new credential" in errors
    assert restricted(harness) == before
    assert answers(workload, token_of(before)) == "yes"
    assert token_of(before) not in errors
    made(run)
    assert len(bound_secrets(workload)) == 1, "the unused one ended"


def while_it_runs(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> None:
    """Have ``change`` happen after the command has read the Secret, each time before it writes it."""
    write = making._secret

    def changed_first(*arguments: Any) -> Any:
        change()
        return write(*arguments)

    monkeypatch.setattr(making, "_secret", changed_first)


def test_another_runs_secret_is_not_overwritten(
    harness: Harness, cluster: WorldCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the controller would lose the credential that the other run has made."""
    made(run)
    other = restricted(harness)
    other["data"]["expires"] = base64.b64encode(b"2000-01-01T00:00:00Z").decode()
    write_once = iter([partial(harness.management.client.replace, PATH, other)])
    while_it_runs(monkeypatch, lambda: next(write_once, lambda: None)())
    code, _, errors = run("workload-kubeconfig", "workload")
    assert (code, "was written by another program while this command ran" in errors) == (1, True)
    assert restricted(harness)["data"] == other["data"]
    assert answers(embedded_api(cluster), token_of(other)) == "yes", "it still works"

    # The same where there was none at the beginning.
    harness.management.client.delete(PATH)
    metadata = {key: value for key, value in other["metadata"].items() if key not in ("resourceVersion", "uid")}
    create = partial(harness.management.client.create, SECRETS.collection("default"), {**other, "metadata": metadata})
    write_once = iter([create])
    code, _, errors = run("workload-kubeconfig", "workload")
    assert (code, "was written by another program while this command ran" in errors) == (1, True)
    assert restricted(harness)["data"] == other["data"]


def test_a_change_of_something_else_is_no_obstacle_unless_it_never_ends(
    harness: Harness, cluster: WorldCluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(run)
    changes = iter(range(100))

    def annotate() -> None:
        harness.management.client.patch(PATH, {"metadata": {"annotations": {"changed": str(next(changes))}}})

    once = iter([annotate])
    while_it_runs(monkeypatch, lambda: next(once, lambda: None)())
    assert made(run)["revoked"] == 1
    working = token_of(restricted(harness))
    while_it_runs(monkeypatch, annotate)
    code, _, errors = run("workload-kubeconfig", "workload")
    assert (code, "changed 5 times while this command wrote it" in errors) == (1, True)
    assert token_of(restricted(harness)) == working
    assert answers(embedded_api(cluster), working) == "yes"


def test_who_uses_which_kubeconfig(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    harness.run()
    harness.join(cluster)
    command = "node-attestation-controller workload-kubeconfig default/workload"
    for reporting in ("preflight", "status"):
        arguments = ("workload",) if reporting == "preflight" else ()
        assert command in run(reporting, *arguments, "--output", "json")[1], reporting
    made(run)
    for reporting in ("preflight", "status"):
        arguments = ("workload",) if reporting == "preflight" else ()
        _, output, errors = run(reporting, *arguments, "--output", "json")
        assert (command in output, errors) == (False, ""), reporting
    secret = restricted(harness)
    soon = format_time(datetime.now(UTC) + timedelta(days=3)).encode()
    secret["data"]["expires"] = base64.b64encode(soon).decode()
    harness.management.client.replace(PATH, secret)
    code, output, _ = run("status", "--output", "json")
    assert code == 3
    (found,) = json.loads(output)["clusters"]
    assert found["restrictedKubeconfig"] is True
    assert any("its restricted kubeconfig ends at" in need and command in need for need in found["needs"])
    assert "its restricted kubeconfig ends at" in run("preflight", "workload")[1].lower()


def test_address_and_cas_are_those_that_cluster_api_keeps(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    """A rotation of the CAs keeps that Secret up to date."""
    made(run)
    secret = restricted(harness)
    document = safe_load(base64.b64decode(secret["data"]["value"]))
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    secret["data"]["value"] = base64.b64encode(json.dumps(document).encode()).decode()
    harness.management.client.replace(PATH, secret)
    harness.run()
    harness.join(cluster)
    assert requests_of(embedded_api(cluster))
