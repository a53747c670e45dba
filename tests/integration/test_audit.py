"""The audit log of a running controller: written before anything is published, without secrets, and replayed."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from signer.audit.chain import DECISION, Link, digest_of_line
from signer.audit.lines import FileLines
from signer.audit.log import GroupedAuditLog
from signer.cli import main
from signer.controller.run import ControllerOptions
from signer.kube.resources import CONFIG_MAPS, SECRETS
from signer.model.audit_head import HEADS_NAME
from signer.model.signing_request import spec_digest
from signer.store.controller_key import SECRET_NAME
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.fixtures import (
    CONTROLLER_USER,
    MASTERS,
    SECRETS_IN_PLAY,
    Harness,
    certificate_of,
    keyed_mac,
    node_of,
    pending,
    provider_id,
)
from tests.unit.signer.audit.test_lines import FullDisk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The controller's configuration file."""
    file = tmp_path / "config.yaml"
    settings = {provider: {"settings": dict(one.settings)} for provider, one in keyed_mac().items()}
    file.write_text(yaml.safe_dump({"attestors": settings}))
    return file


def run_audited(harness: Harness, lines: FileLines) -> ControllerOptions:
    options = ControllerOptions(audit_log=GroupedAuditLog(lines))
    harness.run(options)
    return options


def decided(harness: Harness, cluster: WorldCluster) -> str:
    """One that joins, one that is denied and one that waits; returns the bootstrap token that all used."""
    token = cluster.api.bootstrap_token()
    cluster.add_machine("good", provider_id=provider_id("good"))
    cluster.add_machine("other", provider_id=provider_id("other"))
    cluster.submit_with_token(node_of(cluster, "good").client_request("joins"), token)
    assert cluster.wait_until_decided("joins").condition == "Approved"
    cluster.submit_with_token(node_of(cluster, "good", "other").client_request("denied"), token)
    assert cluster.wait_until_decided("denied").condition == "Denied"
    cluster.submit_with_token(node_of(cluster, "nowhere").client_request("waits"), token)
    harness.wait_for_event("MachineNotFound", cluster.name, "Cluster")
    return token


def contents(path: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [line for line in lines if line["kind"] == DECISION]


def test_verified_and_shown(harness: Harness, path: Path, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = harness.cluster()
    run_audited(harness, FileLines(path, 0, 0))
    decided(harness, cluster)
    # The last of each: they may have waited before, until their Machine was known.
    assert {line["request"]["name"]: line["decision"]["kind"] for line in contents(path)} == {
        "joins": "Approve",
        "denied": "Deny",
        "waits": "Defer",
    }
    assert main(["audit", "verify", str(path), "--config", str(config), "--output", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {one["result"] for one in report["decisions"]} == {"Reproduced"}
    # Without the operator's settings nobody can make the MAC again, and that is said.
    assert main(["audit", "verify", str(path)]) == 0
    said = capsys.readouterr().out
    assert "same, in part" in said
    assert "masterKey" in said
    certificate = certificate_of(cluster.verdict("joins"))
    for arguments in (["--serial", f"{certificate.serial_number:X}"], ["--node", "good"], ["--csr", "joins"]):
        assert main(["audit", "show", str(path), *arguments]) == 0
        shown = capsys.readouterr().out
        assert f"{certificate.serial_number:x}" in shown
        assert "Machine default/good" in shown
    assert main(["audit", "show", str(path), "--serial", "1"]) == 1


@pytest.mark.parametrize(("namespace", "code"), [("default", 0), ("team-b", 1)])
def test_verified_by_the_settings_of_the_clusters_namespace(
    harness: Harness, path: Path, config: Path, namespace: str, code: int
) -> None:
    run_audited(harness, FileLines(path, 0, 0))
    decided(harness, harness.cluster())
    others = {"masterKey": base64.b64encode(bytes(32)).decode("ascii")}
    right = dict(keyed_mac()["keyed-mac"].settings)
    one = {"settings": others, "settingsByNamespace": {namespace: right}}
    config.write_text(yaml.safe_dump({"attestors": {"keyed-mac": one}}))
    assert main(["audit", "verify", str(path), "--config", str(config)]) == code


def test_a_changed_file_is_noticed(
    harness: Harness, path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = harness.cluster()
    run_audited(harness, FileLines(path, 0, 0))
    decided(harness, cluster)
    path.write_bytes(path.read_bytes().replace(b'"reason":"Attested"', b'"reason":"Asserted"', 1))
    assert main(["audit", "verify", str(path), "--config", str(config)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "the line before it was changed" in said
    assert "logged is Approve Asserted; the line's facts give Approve Attested" in said


def test_no_secret_is_in_it(harness: Harness, path: Path) -> None:
    cluster = harness.cluster()
    run_audited(harness, FileLines(path, 0, 0))
    token = decided(harness, cluster)
    key = harness.management.client.get(SECRETS.object("node-attestation-controller-key", CONTROLLER_NAMESPACE))
    kubeconfig = harness.management.client.get(SECRETS.object(f"{cluster.name}-kubeconfig", "default"))
    planted = [*SECRETS_IN_PLAY, token, token.partition(".")[2], cluster.api.ca_key_pem.decode()]
    planted += [*key["data"].values(), *kubeconfig["data"].values()]
    written = path.read_text()
    for secret in planted:
        assert secret
        assert secret not in written


def test_a_deferral_is_written_once(harness: Harness, path: Path) -> None:
    cluster = harness.cluster()
    run_audited(harness, FileLines(path, 0, 0))
    cluster.submit_with_token(node_of(cluster, "late").client_request("late"))
    harness.wait_for_event("MachineNotFound", cluster.name, "Cluster")
    cluster.add_machine("late", provider_id=provider_id("late"))
    assert cluster.wait_until_decided("late").condition == "Approved"
    kinds = [(line["decision"]["kind"], line["decision"]["reason"]) for line in contents(path)]
    assert kinds[0] == ("Defer", "MachineNotFound")
    assert kinds[-1] == ("Approve", "Attested")
    assert len(set(kinds)) == len(kinds)


def test_a_full_disk(harness: Harness, path: Path) -> None:
    """No certificate without its line; denials go on."""
    cluster = harness.cluster()
    disk = FullDisk(0)
    disk.room = 1_000_000
    lines = FileLines(path, 0, 0, write=disk.write)
    options = run_audited(harness, lines)
    harness.wait_for_condition(cluster, "CertificateAuthorityTrusted", "True")
    disk.room = 40
    cluster.add_machine("good", provider_id=provider_id("good"))
    cluster.submit_with_token(node_of(cluster, "good").client_request("waits"))
    assert "No space left" in harness.wait_for_event("AuditLogUnavailable", "good")
    pending(cluster, "waits")
    cluster.add_machine("other", provider_id=provider_id("other"))
    cluster.submit_with_token(node_of(cluster, "good", "other").client_request("denied"))
    assert cluster.wait_until_decided("denied").condition == "Denied"
    assert options.metrics.audit_lines.labels("failed")._value.get() >= 2
    disk.room = 1_000_000
    assert cluster.wait_until_decided("waits").condition == "Approved"
    assert [line["request"]["name"] for line in contents_of_whole(path)] == ["waits"]
    assert main(["audit", "verify", str(path)]) == 0


def test_a_head_that_cannot_be_published_is_counted(harness: Harness, path: Path) -> None:
    """A replica that may not write the ConfigMap; it goes on."""
    heads = harness.api.faults.inject(f"GET */configmaps/{HEADS_NAME}", status=403, times=None)
    cluster = harness.cluster()
    options = run_audited(harness, FileLines(path, 0, 0))
    harness.join(cluster)
    assert heads.hits
    current, failed = (options.metrics.audit_heads.labels(result)._value.get() for result in ("current", "failed"))
    assert current == 0
    assert failed >= 1


def contents_of_whole(path: Path) -> list[dict[str, Any]]:
    """Of the lines that are whole."""
    found = []
    for line in path.read_bytes().splitlines():
        try:
            content = json.loads(line)
        except ValueError:
            continue
        found += [content] if content["kind"] == DECISION else []
    return found


def test_a_restart_continues_the_chain(harness: Harness, path: Path, config: Path) -> None:
    cluster = harness.cluster()
    lines = FileLines(path, 0, 0)
    first = harness.run(ControllerOptions(audit_log=GroupedAuditLog(lines)))
    harness.join(cluster, "one")
    first.kill()
    lines.close()
    run_audited(harness, FileLines(path, 0, 0))
    harness.join(cluster, "two")
    assert main(["audit", "verify", str(path), "--config", str(config)]) == 0
    assert len({json.loads(line)["chain"] for line in path.read_text().splitlines()}) == 1


def test_the_end_is_published_when_the_controller_stops(
    harness: Harness, path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the key and the published head, a log without its last line is found."""
    cluster = harness.cluster()
    running = harness.run(ControllerOptions(audit_log=GroupedAuditLog(FileLines(path, 0, 0))))
    harness.join(cluster, "one")
    running.stop()
    running.wait_ended()
    objects = []
    for name, resource in ((SECRET_NAME, SECRETS), (HEADS_NAME, CONFIG_MAPS)):
        file = path.with_name(f"{name}.json")
        file.write_text(json.dumps(harness.management.client.get(resource.object(name, CONTROLLER_NAMESPACE))))
        objects.append(str(file))
    verify = ["audit", "verify", str(path), "--config", str(config), "--controller-key", objects[0]]
    assert main([*verify, "--heads", objects[1]]) == 0
    assert "its chain reaches its published head" in capsys.readouterr().out
    kubeconfig = path.with_name("kubeconfig")
    kubeconfig.write_text(harness.api.kubeconfig("management", CONTROLLER_USER, MASTERS))
    live = ["--management-cluster", "--kubeconfig", str(kubeconfig), "--controller-namespace", CONTROLLER_NAMESPACE]
    assert main(["audit", "verify", str(path), "--config", str(config), *live]) == 0
    assert "its chain reaches its published head" in capsys.readouterr().out
    harness.management.client.delete(CONFIG_MAPS.object(HEADS_NAME, CONTROLLER_NAMESPACE))
    assert main(["audit", "verify", str(path), *live]) == 2
    assert f"ConfigMap {CONTROLLER_NAMESPACE}/{HEADS_NAME} is missing" in capsys.readouterr().err
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert main(verify) == 0
    assert main([*verify, "--heads", objects[1]]) == 1
    assert "1 line missing at the end" in " ".join(capsys.readouterr().out.split())


# A log whose chain was made anew after a change: the facts still have to give the decision.


@pytest.fixture(scope="module")
def honest(shared_harness: Harness, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The content of an approval's line."""
    path = tmp_path_factory.mktemp("audit") / "audit.log"
    cluster = shared_harness.cluster()
    run_audited(shared_harness, FileLines(path, 0, 0))
    shared_harness.join(cluster, "good")
    content = contents(path)[-1]  # it may have waited before, until its Machine was known
    for name in ("version", "kind", "chain", "sequence", "previous", "mac"):
        del content[name]
    return json.dumps(content).encode()


def forged(path: Path, content: dict[str, Any]) -> None:
    """A log with a whole chain around that content."""
    FileLines(path, 0, 0).close()
    start = path.read_bytes()[:-1]
    link = Link(json.loads(start)["chain"], 0, digest_of_line(start))
    path.write_bytes(start + b"\n" + link.next_line(DECISION, json.dumps(content).encode()) + b"\n")


FORGERIES: dict[str, tuple[list[str | int], Any]] = {
    "nothing": (["decision", "message"], "Attested"),
    "the Machine's provider ID": (["decision_inputs", "matched", 0, "provider_id"], "test:///other"),
    "the claimed Machine's provider ID": (["decision_inputs", "claimed", 0, "provider_id"], "test:///other"),
    "another Machine": (["decision_inputs", "matched", 0, "uid"], "another"),
    "a Machine that is deleted": (["decision_inputs", "matched", 0, "deleting"], True),
    "a Machine with another name": (["decision_inputs", "matched", 0, "addresses", 0, "address"], "other"),
    "a paused Cluster": (["decision_inputs", "snapshot", "cluster", "paused"], True),
    "a policy without the attestor": (["decision_inputs", "snapshot", "policy", "authorized_attestors"], []),
    "a policy with another duration": (["decision_inputs", "snapshot", "policy", "client_duration"], "PT1H"),
    "an operator who does not allow it": (["decision_inputs", "request", "operator_allows"], False),
    "another CA": (["decision_inputs", "request", "ca_cert_hashes"], ["sha256:" + "00" * 32]),
    "another CA that signs": (["decision_inputs", "request", "signing_ca_cert_hash"], "sha256:" + "00" * 32),
    "a CA that has run out": (["decision_inputs", "request", "ca_not_after"], "2026-01-01T00:00:00Z"),
    "another identity": (["decision_inputs", "answer", "answer", "identity"], "keyed-mac:" + "00" * 32),
    "another answer": (["decision_inputs", "answer", "answer", "kind"], "Denied"),
    "a token of another Machine": (
        ["decision_inputs", "token"],
        {
            "kind": "TracedTo",
            "owners": [{"namespace": "default", "kind": "Machine", "name": "other", "uid": ""}],
            "cause": "",
        },
    ),
    "no token": (["decision_inputs", "token"], {}),
    "no reservation": (["decision_inputs", "reserved"], False),
    "no record looked at": (["decision_inputs", "machine"], {}),
    "another time": (["decision_inputs", "snapshot", "now"], "2020-01-01T00:00:00Z"),
    "another requester": (["request", "spec", "username"], "system:bootstrap:abcdef"),
    "more usages": (["request", "spec", "usages"], ["digital signature", "client auth", "server auth"]),
    "another digest": (["request", "spec_digest"], "00" * 32),
    "a denial": (["decision", "kind"], "Deny"),
    "another reason": (["decision", "reason"], "AssertedInsecurely"),
    "another node": (["decision", "node_name"], "other"),
    "another serial number": (["decision", "entry", "serial_number"], 7),
    "another end": (["decision", "entry", "not_after"], "2046-01-01T00:00:00Z"),
    "another certificate": (["decision", "certificate"], ""),
    "an entry of another key": (["decision", "entry", "public_key_digest"], "00" * 32),
    "an entry of another request": (["decision", "entry", "csr_uid"], "other"),
    "a field too much": (["decision_inputs", "more"], {}),
    "a field of an unexpected type": (["decision_inputs", "reserved"], "yes"),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_forged_facts_with_a_recomputed_chain(
    forgery: str, honest: bytes, path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (*way, last), value = FORGERIES[forgery]
    content = json.loads(honest)
    inner = content
    for step in way:
        inner = inner[step]
    inner[last] = value
    forged(path, content)
    found = main(["audit", "verify", str(path), "--config", str(config), "--output", "json"])
    report = json.loads(capsys.readouterr().out)
    assert found == (0 if forgery == "nothing" else 1), report


@pytest.mark.parametrize("told", [False, True], ids=["as it was", "with its digest"])
def test_a_forged_byte_of_the_evidence(
    told: bool, honest: bytes, path: Path, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = json.loads(honest)
    spec = content["request"]["spec"]
    blocks = base64.b64decode(spec["request"]).decode()
    head, separator, data = blocks.rpartition("ATTESTATION DATA-----\n")
    begin, marker, tail = head.rpartition("ATTESTATION DATA-----\n")
    body, end, rest = tail.partition("-----END")
    evidence = json.loads(base64.b64decode(body))
    evidence["mac"] = base64.b64encode(bytes(32)).decode()
    written = base64.b64encode(json.dumps(evidence, separators=(",", ":")).encode()).decode()
    lines = "\n".join(written[start : start + 64] for start in range(0, len(written), 64))
    forged_blocks = f"{begin}{marker}{lines}\n{end}{rest}{separator}{data}"
    spec["request"] = base64.b64encode(forged_blocks.encode()).decode()
    if told:
        digest = spec_digest(spec)
        content["request"]["spec_digest"] = content["decision"]["entry"]["spec_digest"] = digest
    forged(path, content)
    assert main(["audit", "verify", str(path), "--config", str(config)]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert ("the attestor answers BindingMismatch" if told else "not the one whose digest") in said
