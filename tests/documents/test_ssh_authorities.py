"""``docs/ssh-authorities.md``: every reason, condition, field and figure is there, and every named test exists."""

from __future__ import annotations

import ast
import inspect
import re
from datetime import timedelta
from typing import Final

import pytest

from attestors.wire.statement import MAXIMUM_REVOCATION_LIST_BYTES
from signer.configuration import MasterSecrets, SSHPermission
from signer.controller.telemetry.metrics_collector import SSH_AUTHORITIES, SSH_ROTATION_NODES, SSH_TRUST
from signer.crds import custom_resource_definitions
from signer.model import ssh_access
from signer.rotation.operations import SSH_OPERATIONS, Operation
from signer.rotation.phases import Phase
from signer.ssh import condition_types, host_coverage, reconciler, status
from signer.ssh.available import Reason
from signer.ssh.bundle import content
from signer.ssh.bundle import reconciler as bundle
from signer.ssh.rotation_plan import LONGEST_CERTIFICATE
from signer.ssh.rotation_record import Step
from signer.store.statements import SIGNED_AGAIN
from tests.documents.markdown import ROOT
from tests.support.yaml_documents import safe_load

TEXT: Final = (ROOT / "docs/ssh-authorities.md").read_text(encoding="utf-8")
SPEC: Final = safe_load(custom_resource_definitions()[0])["spec"]["versions"][0]["schema"]["openAPIV3Schema"][
    "properties"
]


def first_column(heading: str) -> set[str]:
    """The names in the table with that heading."""
    table = TEXT.split(f"| {heading} |")[1].split("\n\n")[0]
    return set(re.findall(r"^\| `(\w+)`", table, re.MULTILINE))


def test_each_reason_is_named_and_no_other() -> None:
    assert first_column("`SSHAuthoritiesAvailable`") == {status.AVAILABLE, *(one.value for one in Reason)}
    assert first_column("`SSHTrustPublished`") == {
        bundle.PUBLISHED,
        bundle.AUTHORITIES_NOT_AVAILABLE,
        bundle.REVOCATIONS_UNKNOWN,
        bundle.TOO_MANY_REVOCATIONS,
        bundle.FORBIDDEN,
        bundle.FAILED,
    }
    assert first_column("`SSHAuthoritiesWithinPeriod`") == {status.WITHIN_PERIOD, status.PERIOD_PASSED}
    steps = {one.value for one in Step}
    assert first_column("`SSHAuthorityRotationProgressing`") == {*steps, Phase.COMPLETED.value, Phase.ROLLED_BACK.value}


def test_each_event_of_a_rotation_is_named() -> None:
    phases = [Phase.PREPARING, Phase.PREPARED, Phase.COMPLETING, Phase.COMPLETED, Phase.ROLLING_BACK, Phase.ROLLED_BACK]
    said = set(re.findall(r'_(?:warn|tell)\(\s*(?:"\w+", )?"(\w+)"', inspect.getsource(reconciler)))
    said -= {"Normal", "Warning"}
    assert len(said) == 4
    assert all(f"`{name}`" in TEXT for name in (*said, *(f"SSHAuthority{phase.value}" for phase in phases)))


def test_each_order_is_named() -> None:
    assert all(one.value in TEXT for one in SSH_OPERATIONS if one is not Operation.REVOKE_SSH_HOST)
    assert f"`node_attestation_{SSH_ROTATION_NODES.name}`" in TEXT
    assert timedelta(minutes=70) == LONGEST_CERTIFICATE
    assert "70 minutes" in TEXT


@pytest.mark.parametrize("page", ["ssh-authorities", "troubleshooting"])
def test_each_condition_is_named(page: str) -> None:
    text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
    rotation = (condition_types.SSH_ROTATION_PROGRESSING, condition_types.SSH_OPERATION_REJECTED)
    for kind in (
        *rotation,
        condition_types.SSH_AUTHORITIES_AVAILABLE,
        condition_types.SSH_AUTHORITIES_WITHIN_PERIOD,
        bundle.SSH_TRUST_PUBLISHED,
    ):
        assert f"`{kind}`" in text
        assert not kind.counts_toward_ready(None)  # "None counts toward Ready"


def test_each_field_is_named() -> None:
    for name in SPEC["spec"]["properties"]["ssh"]["properties"]:
        assert f"| `{name}" in TEXT
    shown = safe_load(re.findall(r"```text\n(status:.*?)```", TEXT, re.DOTALL)[0])["status"]["ssh"]
    assert set(shown) == set(SPEC["status"]["properties"]["ssh"]["properties"])
    assert f"`node_attestation_{SSH_AUTHORITIES.name}`" in TEXT
    assert f"`node_attestation_{SSH_TRUST.name}`" in TEXT


def test_figures() -> None:
    assert timedelta(hours=720) == ssh_access.DEFAULT_HOST_CERTIFICATE_DURATION
    assert ssh_access.MAXIMUM_BREAK_GLASS_KEYS == 8
    assert ssh_access.MasterSecretReference("m").generations == (0,)
    assert MasterSecrets.NOT_ALLOWED is SSHPermission().master_secrets
    assert timedelta(hours=24) == ssh_access.MINIMUM_ROTATION_PERIOD
    assert timedelta(hours=87840) == ssh_access.MAXIMUM_ROTATION_PERIOD
    assert all(one in TEXT for one in ("`720h`", "at most 8", "from 24h to 87840h"))
    assert (ssh_access.MAXIMUM_REVOKED, ssh_access.MAXIMUM_REVOKED_KEYS) == (1000, 256)
    assert all(one in TEXT for one in ("1,000 `keyIDs`, 1,000 `serials` and 256 `publicKeys`", "700 KiB"))
    assert MAXIMUM_REVOCATION_LIST_BYTES == 700 * 1024
    assert (content.LIFETIME.days, SIGNED_AGAIN.days) == (30, 10)
    assert bundle.VERIFIED_SECONDS == 300
    assert reconciler.VERIFIED_SECONDS == 300  # "every five minutes"


def test_each_test_that_is_named_exists() -> None:
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", TEXT)
    assert TEXT.count("`test_") == len(named) > 0
    for name, file in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in defined, (file, name)


def test_the_wing_itself_signs_nothing() -> None:
    """Decisions sign host certificates, and access grants sign users'."""
    assert "the certificates of\n[access grants](access.md) with the other" in TEXT
    for file in (ROOT / "signer/ssh").rglob("*.py"):
        assert ".sign(" not in file.read_text(encoding="utf-8"), file


def test_each_reason_of_host_certificates_is_named_and_no_other() -> None:
    named = {host_coverage.ALL_NODES, host_coverage.NODES_WITHOUT, host_coverage.NOT_KNOWN}
    assert first_column(f"`{host_coverage.SSH_HOST_CERTIFICATES_ISSUED}`") == named
    troubleshooting = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    assert f"`{host_coverage.SSH_HOST_CERTIFICATES_ISSUED}`" in troubleshooting
