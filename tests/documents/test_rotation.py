"""``docs/rotation.md`` names every step, phase, order, gate, condition and reason, and tests that exist."""

from __future__ import annotations

import ast
import re
import ssl
import subprocess
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from signer.authority.lenient_certificate import parse_ca_certificate
from signer.kube.errors import NotFound
from signer.kube.resources import CERTIFICATE_AUTHORITY_ROTATIONS, NODE_ATTESTATION_POLICIES, SECRETS
from signer.model.condition import ConditionType
from signer.rotation import conditions
from signer.rotation.desired import LINK_LIFETIME
from signer.rotation.management import RENEWED_BEFORE_END
from signer.rotation.node_client.plan import USED_UNTIL_BEFORE_END
from signer.rotation.node_client.plan import Reason as NodeClientReason
from signer.rotation.node_client.reconciler import NODE_CLIENT_SIGNS, PROVEN_SECONDS
from signer.rotation.operations import (
    ALIASES,
    NAMES,
    OPERATION_ANNOTATION,
    SKIP_GATES_ANNOTATION,
    SSH_OPERATIONS,
    Gate,
    Operation,
    Order,
    read_gates,
    read_order,
)
from signer.rotation.phases import Phase, RollbackAvailable, Step
from signer.rotation.plan import REASONS
from signer.rotation.proofs import LINK_LEFT_AT_SWITCH
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from signer.testing.fixtures import MakeWorkloadCluster, embedded_api
from tests.documents.markdown import ROOT
from tests.documents.test_blocks import BLOCKS, commands
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.kubectl import find_kubectl, run_kubectl
from tests.unit.signer.rotation.model_world import first_record
from tests.unit.signer.rotation.records import rotation_object

PAGE: Final = ROOT / "docs/rotation.md"
TEXT: Final = PAGE.read_text(encoding="utf-8")
POLICY: Final = ("production", "default")


def section(heading: str) -> str:
    """The text below a heading, up to the next of its level or above."""
    level = heading.split(" ")[0]
    begin = TEXT.index(f"\n{heading}\n") + 1
    below = TEXT[begin + len(heading) :]
    end = re.search(rf"^#{{2,{len(level)}}} ", below, re.MULTILINE)
    return below[: end.start()] if end else below


def rows(text: str) -> list[str]:
    """The first cells of the lines of its tables."""
    return [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")]


def missing(names: Iterable[str], text: str) -> list[str]:
    return [name for name in names if f"`{name}`" not in text]


def test_the_command_prints_the_hash_that_a_rotation_shows(tmp_path: Path) -> None:
    """What a person compares before `confirm`."""
    (command,) = [block.text for block in BLOCKS if block.document == PAGE and block.text.startswith("openssl ")]
    authority = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256)
    (tmp_path / "ca.crt").write_bytes(authority.certificate)
    shell = ["bash", "-euo", "pipefail", "-c", command]
    shown = subprocess.run(shell, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    certificate = parse_ca_certificate(ssl.PEM_cert_to_DER_cert(authority.certificate.decode("ascii")))
    assert certificate.public_key_hash == f"sha256:{shown.split()[-1]}"


def test_each_step_has_its_proof_and_its_cure() -> None:
    named = [cell.strip("`") for cell in rows(section("### What each step proves, and what holds it")) if "`" in cell]
    assert named == [step.value for step in Step]


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("## Orders", NAMES),
        ("### Gates", [gate.value for gate in Gate]),
        ("## Conditions and Events", REASONS),
        ("## Conditions and Events", [reason for _, reason in conditions.WARNINGS]),
        ("### Rolling back", [one.value for one in RollbackAvailable]),
    ],
    ids=["operations", "gates", "reasons", "warnings", "rollback"],
)
def test_each_name_stands_in_its_section(heading: str, names: Iterable[str]) -> None:
    assert missing(names, section(heading)) == []


def test_each_alias_stands_beside_its_operation() -> None:
    lines = section("## Orders").splitlines()
    for alias, operation in ALIASES.items():
        assert any(line.startswith(f"| `{operation.value}` | `{alias}` |") for line in lines), alias


def test_each_phase_is_named() -> None:
    assert missing([phase.value for phase in Phase], TEXT + "`RollingBack`") == []


def test_each_condition_is_named_here_and_in_troubleshooting() -> None:
    kinds = [str(one) for one in vars(conditions).values() if isinstance(one, ConditionType)]
    assert len(kinds) > 8
    assert missing(kinds, section("## Conditions and Events")) == []
    assert missing(kinds, (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")) == []


def test_each_test_that_is_named_exists() -> None:
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", TEXT)
    assert len(named) > 20
    assert TEXT.count("`test_") == len(named)
    for name, file in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in defined, (file, name)


def test_figures_of_the_link() -> None:
    days = LINK_LIFETIME.days
    assert f"ends after {days} days" in TEXT
    assert days - RENEWED_BEFORE_END.days >= 31  # "Complete within a month"
    assert RENEWED_BEFORE_END.days == 14  # "Two weeks before"
    assert LINK_LEFT_AT_SWITCH.days == 10  # "less than ten days left"
    assert conditions.STALLED_AFTER.total_seconds() == 30 * 60  # "for 30 minutes"


@pytest.mark.slow
def test_the_commands_are_run_by_the_real_kubectl(make_workload_cluster: MakeWorkloadCluster) -> None:
    """Those that order write what the controller reads, and the others are understood."""
    try:
        find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)
    cluster = make_workload_cluster("production")
    cluster.authorize("insecure")
    api = embedded_api(cluster.management)
    client = cluster.management.client
    record = replace(first_record(), cluster=cluster.key)
    client.create(CERTIFICATE_AUTHORITY_ROTATIONS.collection("default"), rotation_object(record))
    orders = []
    for block, (program, *arguments) in commands():
        if block.document != PAGE or program != "kubectl":
            continue
        phase = re.search(r"phase}'?=(\w+)", " ".join(arguments))
        if phase:
            status = {"credentials": {"rotation": {"certificateAuthorities": {"phase": phase[1]}}}}
            client.patch(NODE_ATTESTATION_POLICIES.object(*POLICY, subresource="status"), {"status": status})
        if any(one.startswith("validatingadmissionpolic") for one in arguments):
            continue  # served from Kubernetes 1.30 on: tests/e2e/test_admission_policies.py
        done = run_kubectl(api.kubeconfig(), arguments)
        assert done.returncode == 0, (arguments, done.stderr)
        if arguments[0] == "annotate":
            order = read_order(client.get(NODE_ATTESTATION_POLICIES.object(*POLICY)))
            assert isinstance(order, Order)
            orders.append(order)
            taken = {OPERATION_ANNOTATION: None, SKIP_GATES_ANNOTATION: None}  # as the controller does
            client.patch(NODE_ATTESTATION_POLICIES.object(*POLICY), {"metadata": {"annotations": taken}})
    assert {one.operation for one in orders} == set(Operation) - SSH_OPERATIONS - {
        Operation.START_WITHOUT_WORKERS_ROLLOUT
    }
    assert any(read_gates(one.skip_gates) for one in orders)
    with pytest.raises(NotFound):
        client.get(SECRETS.object("production-kubeconfig", "default"))


def test_each_reason_of_the_node_client_authority_is_named() -> None:
    text = section("### Its condition")
    assert missing(["Signing", *(one.value for one in NodeClientReason)], text) == []
    assert missing([str(NODE_CLIENT_SIGNS)], text) == []
    assert missing([str(NODE_CLIENT_SIGNS)], (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")) == []
    assert USED_UNTIL_BEFORE_END.days == 30  # "within 30 days"
    assert PROVEN_SECONDS == 300  # "every five minutes"
