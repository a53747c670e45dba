"""``check``: each fault that an operator can make is named with its remedy, before a controller serves."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from signer.cli import main
from signer.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, LEASES, ROLES, SECRETS
from signer.model.lease import ElectionTimes, new_lease, taken
from signer.store.controller_key import SECRET_NAME
from signer.testing.api import User
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.documents.markdown import ROOT
from tests.integration.fixtures import MASTER_KEY, Harness
from tests.support import endorsement_certificates as write
from tests.unit.attestors.tpm.endorsement.support import authority_draft, elliptic_key, root

pytestmark = pytest.mark.slow

SERVICE_ACCOUNT = f"system:serviceaccount:{CONTROLLER_NAMESPACE}:node-attestation-controller"
GROUPS = ("system:serviceaccounts", f"system:serviceaccounts:{CONTROLLER_NAMESPACE}", "system:authenticated")
KEYED_MAC = {"settings": {"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")}}
Found = dict[str, tuple[str, str, str]]
Check = Callable[..., tuple[int, Found]]


@pytest.fixture
def check(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Check:
    """Run the command as the controller's ServiceAccount with the grants of ``deploy/rbac``.

    It returns the exit code and for each check its result, message and remedy.
    """
    harness.api.apply_yaml((ROOT / "deploy/rbac/management.yaml").read_text(encoding="utf-8"))
    kubeconfig = tmp_path / "kubeconfig"
    harness.api.add_token("controller", User(SERVICE_ACCOUNT, groups=GROUPS))
    connection = harness.api.token_connection("controller")
    kubeconfig.write_text(harness.api.kubeconfig("management", connection=connection))
    config = tmp_path / "config.yaml"

    def check(*arguments: str, attestors: Any = None) -> tuple[int, Found]:
        config.write_text(yaml.safe_dump({"attestors": {"keyed-mac": KEYED_MAC} if attestors is None else attestors}))
        capsys.readouterr()
        given = ["check", "--kubeconfig", str(kubeconfig), "--config", str(config), *arguments, "-o", "json"]
        code = main(given)
        found = json.loads(capsys.readouterr().out)
        assert found["needsAttention"] == (code == 3)
        return code, {one["check"]: (one["result"], one["message"], one["remedy"]) for one in found["checks"]}

    return check


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster with a policy, so that grants in its namespace are asked for."""
    return harness.cluster()


def attention(found: Found) -> dict[str, tuple[str, str]]:
    return {
        check: (message, remedy) for check, (result, message, remedy) in found.items() if result == "needs attention"
    }


def test_nothing_is_wrong(harness: Harness, cluster: WorldCluster, check: Check) -> None:
    harness.api.requests.clear()
    code, found = check()
    assert (code, attention(found)) == (0, {})
    assert found["attestors.keyed-mac.settings"][0] == "fine"
    assert found["grants: node-attestation-secrets, in each namespace of a Cluster with a policy"][1] == (
        "this user has it in default"
    )
    assert found["definition attestednodes.attestation.cluster.x-k8s.io"][1].startswith("installed, of this version")
    assert found["controller key"][1].endswith("the controller creates it at its first start")
    assert "does not exist: no controller has led, none elects a leader, or" in found["Lease"][1]
    written = {entry.path for entry in harness.api.requests.matching() if entry.method not in {"GET"}}
    assert written == {"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}


def test_attestors_that_cannot_work(check: Check, tmp_path: Path) -> None:
    """Each is named with its field of the file, and the others are checked all the same."""
    attestors = {
        "composite": {"settings": {"attestors": {"keyed-mac": {}}}},
        "keyed-mac": KEYED_MAC,
        "keyed-mack": {},
        "tpm": {
            "settings": {"endorsementRootsFolder": str(tmp_path / "nonexistent")},
            "settingsByNamespace": {"team-a": {"endorsementRootsFolder": "roots"}},
        },
    }
    code, found = check("--offline", attestors=attestors)
    assert code == 3
    wrong = attention(found)
    assert wrong.keys() == {
        "attestors.composite.settings",
        "attestors.keyed-mack",
        "attestors.tpm.settings",
        "attestors.tpm.settingsByNamespace.team-a",
    }
    assert wrong["attestors.composite.settings"][0] == "attestors must name 2 or 3 attestors"
    message, remedy = wrong["attestors.keyed-mack"]
    assert "'keyed-mack' is not installed; installed are: " in message
    assert remedy == "correct attestors.keyed-mack in the file that --config names", "the name is wrong"
    message, remedy = wrong["attestors.tpm.settings"]
    assert "endorsementRootsFolder" in message
    assert "No such file or directory" in message
    assert remedy == "correct attestors.tpm.settings in the file that --config names"
    assert "absolute path" in wrong["attestors.tpm.settingsByNamespace.team-a"][0]
    assert found["attestors.keyed-mac.settings"][0] == "fine"
    assert found["management cluster"][0] == "not checked"


def test_endorsement_authorities(check: Check, tmp_path: Path) -> None:
    """They are counted; those that expired are named; a part of the composite attestor is checked as well."""
    folder = tmp_path / "roots"
    folder.mkdir()
    (folder / "valid.pem").write_bytes(root())
    key = elliptic_key("expired")
    name = write.common_name("Expired root")
    (folder / "expired.der").write_bytes(
        authority_draft(name, name, key, not_after=datetime(2020, 1, 1, tzinfo=UTC)).signed(key, write.SHA256_ECDSA)
    )
    settings = {"endorsementRootsFolder": str(folder)}
    code, found = check("--offline", attestors={"tpm": {"settings": settings}})
    message, remedy = attention(found)["attestors.tpm.settings.endorsementRootsFolder"]
    assert code == 3
    assert "Expired root" in message
    assert "acceptExpiredAuthorities" in remedy
    parts = {"attestors": {"tpm": {**settings, "acceptExpiredAuthorities": True}, "keyed-mac": KEYED_MAC["settings"]}}
    code, found = check("--offline", attestors={"composite": {"settings": parts}})
    assert code == 0
    assert found["attestors.composite.settings.tpm.endorsementRootsFolder"][1] == "certificates: 2, expired: 1"
    (folder / "valid.pem").write_text("-----BEGIN CERTIFICATE-----\nbroken")
    code, found = check("--offline", attestors={"composite": {"settings": parts}})
    assert "tpm: endorsement authorities" in attention(found)["attestors.composite.settings"][0]


def test_shielded_vms_alone_need_no_roots(check: Check) -> None:
    """A policy has to choose them; the operator's settings are valid without one."""
    code, found = check("--offline", attestors={"tpm": {"settings": {"shieldedVMProjects": ["project-1"]}}})
    assert (code, attention(found)) == (0, {})


def test_grants_that_are_missing(harness: Harness, cluster: WorldCluster, check: Check) -> None:
    def without_leases(role: dict[str, Any]) -> dict[str, Any]:
        return {**role, "rules": [rule for rule in role["rules"] if rule["resources"] != ["leases"]]}

    path = ROLES.object("node-attestation-controller", CONTROLLER_NAMESPACE)
    harness.management.client.replace(path, without_leases(harness.management.client.get(path)))
    code, found = check("--ssh", "--controller-namespace", CONTROLLER_NAMESPACE)
    own = f"grants: node-attestation-controller, in the controller's namespace in {CONTROLLER_NAMESPACE}"
    assert code == 3
    message, remedy = attention(found)[own]
    assert message.startswith("this user may not create leases of coordination.k8s.io; get leases")
    assert remedy == "apply node-attestation-controller of deploy/rbac/management.yaml, or bind it there"
    assert attention(found).keys() == {own}, "ssh is allowed in no namespace, and has nothing to ask for"
    assert found["Lease"][:2] == (
        "not checked",
        f"not readable here: Lease {CONTROLLER_NAMESPACE}/node-attestation-controller; whether a controller leads is "
        "unknown",
    )


def test_a_service_account_that_another_user_asks_for(
    harness: Harness, cluster: WorldCluster, check: Check, tmp_path: Path
) -> None:
    administrator = tmp_path / "administrator"
    administrator.write_text(harness.api.kubeconfig())
    code, found = check("--kubeconfig", str(administrator), "--service-account", "another")
    assert code == 3
    message, _ = attention(found)[
        "grants: node-attestation-secrets, in each namespace of a Cluster with a policy in default"
    ]
    assert message == f"ServiceAccount {CONTROLLER_NAMESPACE}/another may not get secrets"
    code, found = check("--kubeconfig", str(administrator), "--service-account", "node-attestation-controller")
    assert (code, attention(found)) == (0, {})


def test_definitions_of_another_version(harness: Harness, cluster: WorldCluster, check: Check, tmp_path: Path) -> None:
    administrator = tmp_path / "administrator"
    administrator.write_text(harness.api.kubeconfig())
    name = "attestednodes.attestation.cluster.x-k8s.io"
    client, path = harness.management.client, CUSTOM_RESOURCE_DEFINITIONS.object(name)
    current = client.get(path)
    (version,) = current["spec"]["versions"]
    fields = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    fields["another"] = fields.pop("attestor")
    client.replace(path, current)
    code, found = check("--kubeconfig", str(administrator))
    assert code == 3
    message, remedy = attention(found)[f"definition {name}"]
    assert message == "older than this program: it has no spec.attestor"
    assert remedy == "node-attestation-controller crds | kubectl apply -f -"
    client.delete(path)
    assert attention(check()[1])[f"definition {name}"][0].endswith("are not served")


def test_the_controller_key(harness: Harness, cluster: WorldCluster, check: Check) -> None:
    client, path = harness.management.client, SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET_NAME}, "data": {"current": "c2hvcnQ="}}
    client.create(SECRETS.collection(CONTROLLER_NAMESPACE), body)
    code, found = check()
    assert code == 3
    assert "32" in attention(found)["controller key"][0]
    client.delete(path)
    harness.run()
    harness.join(cluster)
    assert check()[1]["controller key"][1].endswith("holds a current key")
    client.delete(path)
    message, remedy = attention(check()[1])["controller key"]
    assert message.endswith("does not exist, and there are AttestedNodes that were sealed with it")
    assert remedy.startswith("restore its copy before a controller starts")


def test_the_holder_of_the_lease(harness: Harness, check: Check) -> None:
    holding = taken("replica-1", ElectionTimes(), datetime.now(UTC))
    harness.management.client.create(
        LEASES.collection(CONTROLLER_NAMESPACE), new_lease("node-attestation-controller", CONTROLLER_NAMESPACE, holding)
    )
    assert "is held by replica-1, renewed at 2" in check("--leader-elect")[1]["Lease"][1]
    assert check()[1]["Lease"][1].endswith("a controller without --leader-elect stands by meanwhile")
    other = check("--leader-elect", "--leader-elect-resource-name", "blue")[1]["Lease"][1]
    assert other.startswith(f"not readable here: Lease {CONTROLLER_NAMESPACE}/blue;"), "the role names the Lease"


def test_a_lease_that_has_run_out(harness: Harness, check: Check) -> None:
    holding = taken("replica-1", ElectionTimes(), datetime(2026, 1, 2, tzinfo=UTC))
    harness.management.client.create(
        LEASES.collection(CONTROLLER_NAMESPACE), new_lease("node-attestation-controller", CONTROLLER_NAMESPACE, holding)
    )
    message, remedy = attention(check("--leader-elect")[1])["Lease"]
    assert "no controller has renewed Lease " in message
    assert "since 2026-01-02 00:00:00 UTC" in message
    assert remedy == "start the controller with the arguments of this command"


def test_a_management_cluster_that_does_not_answer(check: Check, tmp_path: Path, harness: Harness) -> None:
    nowhere = tmp_path / "nowhere"
    nowhere.write_text(harness.api.kubeconfig().replace(harness.api.server, "https://127.0.0.1:1"))
    code, found = check("--kubeconfig", str(nowhere))
    assert (code, set(attention(found))) == (3, {"management cluster"})
    assert found["attestors.keyed-mac.settings"][0] == "fine"
    code, found = check("--kubeconfig", str(tmp_path / "missing"))
    assert attention(found)["management cluster"][1] == "give --kubeconfig, or --offline"


def test_wrong_usage_and_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "config.yaml"
    config.write_text("attestors: {tpm: {setings: {}}}")
    assert main(["check", "--offline", "--config", str(config)]) == 2
    assert "attestors.tpm has the fields" in capsys.readouterr().err
    assert main(["check", "--offline", "--access"]) == 2
    capsys.readouterr()
    assert main(["check", "--offline"]) == 3
    assert "no attestor is named: the controller denies every request" in capsys.readouterr().out
