"""``docs/tpm.md``: its settings are accepted, its reasons are the code's, and its commands give what it says."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.contract import AttestorSettings
from attestors.tpm import controller, wire
from attestors.tpm import presented_keys as presented
from attestors.tpm.endorsement_key_sources import INVENTORY_KEY, GCPShieldedVM, Inventory, SourceName
from attestors.tpm.endorsement_key_sources.listing import ListingLine, parse_listing
from attestors.tpm.node.settings import NodeSettings
from attestors.tpm.settings import (
    DENIED_FILE_SETTING,
    DENIED_SETTING,
    FIRST_USE_SETTING,
    INTERMEDIATES_SETTING,
    PCRS_SETTING,
    ROOTS_SETTING,
    SHIELDED_PROJECTS_SETTING,
    TEMPLATES_SETTING,
    TPMSettings,
)
from attestors.tpm.source_settings import INVENTORY_SETTING, SOURCES_SETTING
from attestors.tpm.trust import NoAuthorities, parse_denied_keys
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.kube.resources import MACHINES_V1BETA2
from signer.testing.fixtures import MakeMachine, embedded_api
from signer.testing.world import WorldCluster
from tests.documents.markdown import ROOT, Block, blocks
from tests.documents.test_blocks import RUN_ELSEWHERE, commands
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.certificates import CertificateAuthority
from tests.support.kubectl import find_kubectl, run_kubectl
from tests.support.software_tpm import SoftwareTPM
from tests.support.yaml_documents import safe_load
from tests.unit.attestors.tpm.fixtures import ANY_KEYS

DOCUMENT = ROOT / "docs/tpm.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
RSA_CERTIFICATE = 0x01C00002
CONSOLE = [block for block in blocks(DOCUMENT) if block.language == "console"]
JUDGING = [block for block in CONSOLE if "python -m attestors.tpm " in block.text]
COMMANDS = [block for block in CONSOLE if block not in JUDGING and block.text.partition(" ")[0] in RUN_ELSEWHERE]
PROGRAM = f"{sys.executable} -m attestors.tpm "


def test_every_reason_of_the_server_plugin_is_in_the_table() -> None:
    source = inspect.getsource(controller) + inspect.getsource(presented)
    reasons = set(re.findall(r'\b(?:denied|not_yet)\(\s*"(\w+)"', source))
    assert len(reasons) > 11
    rows = [line for line in TEXT.splitlines() if re.match(r"\| \d+ \|", line)]
    for reason in {*reasons, "MalformedEvidence", "BindingMismatch", "ChallengeIssued"}:
        assert any(f"`{reason}`" in row for row in rows), reason
    for reason in re.findall(r'\bnot_yet\(\s*"(\w+)"', source):
        assert any(f"[`{reason}`](troubleshooting.md#{reason.lower()}) (waits)" in row for row in rows), reason


def test_every_field_is_in_a_table() -> None:
    names = [value for name, value in vars(wire).items() if name.endswith(("_FIELD", "_KEY"))]
    assert len(names) > 8
    assert [name for name in names if f"| `{name}` |" not in TEXT] == []


def in_yaml() -> Iterator[dict[str, Any]]:
    for block in blocks(DOCUMENT):
        if block.language == "yaml":
            yield safe_load(block.text)


def test_the_controllers_settings_are_accepted(tmp_path: Path) -> None:
    roots, denied = tmp_path / "roots", tmp_path / "denied"
    roots.mkdir()
    (roots / "ca.pem").write_bytes(CertificateAuthority.like_cluster_api().certificate_pem)
    (listed,) = (block.text for block in blocks(DOCUMENT) if block.language == "text" and "sha256:" in block.text)
    denied.write_text(listed, encoding="utf-8")
    given = [content["attestors"]["tpm"]["settings"] for content in in_yaml() if "attestors" in content]
    (operator,) = (settings for settings in given if ROOTS_SETTING in settings)
    (google,) = (settings for settings in given if SHIELDED_PROJECTS_SETTING in settings)
    shielded = AttestorSettings(google, {SOURCES_SETTING: [SourceName.GCP_SHIELDED_VM.value]})
    assert isinstance(TPMSettings.parse(shielded).sources.sources[0], GCPShieldedVM)
    shown = {ROOTS_SETTING, INTERMEDIATES_SETTING, DENIED_SETTING, DENIED_FILE_SETTING, TEMPLATES_SETTING}
    assert shown | {FIRST_USE_SETTING} == set(operator)
    places = {ROOTS_SETTING: str(roots), INTERMEDIATES_SETTING: str(roots), DENIED_FILE_SETTING: str(denied)}
    trust = TPMSettings.parse(AttestorSettings(operator={**operator, **places})).trust.current()
    assert not isinstance(trust.authorities, NoAuthorities)
    assert trust.denied == parse_denied_keys({"/denied": listed.encode()}, "denied")
    assert trust.denied == set(operator[DENIED_SETTING])


def test_the_inventory_is_one() -> None:
    (document,) = (content for content in in_yaml() if content.get("kind") == "ConfigMap")
    assert list(document["data"]) == [INVENTORY_KEY]
    text = document["data"][INVENTORY_KEY]
    listing = parse_listing(text)
    lines = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) == 2
    assert [listing.line_of(provider_id) for provider_id, _ in lines] == [ListingLine(key) for _, key in lines]
    (policy,) = (content for content in in_yaml() if content.get("kind") == "NodeAttestationPolicy")
    (attestor,) = policy["spec"]["authorizedAttestors"]
    named = {"kind": document["kind"], "name": document["metadata"]["name"]}
    assert attestor["settings"][INVENTORY_SETTING] == named
    assert policy["metadata"]["namespace"] == document["metadata"]["namespace"]


def test_the_policys_settings_are_accepted() -> None:
    policies = [content for content in in_yaml() if content.get("kind") == "NodeAttestationPolicy"]
    example = (ROOT / "deploy/policies/tpm.yaml").read_text(encoding="utf-8")
    # The example has its settings in comments: as it stands, and with them.
    commented = re.sub(
        r'^( {6})# (settings:| +pcrs:| +"sha256| +- |  endorsementKeySources:|  inventory:|    kind:|    name:)',
        r"\1\2",
        example,
        flags=re.MULTILINE,
    )
    policies += [safe_load(example), safe_load(commented)]
    bare_metal = safe_load((ROOT / "deploy/policies/bare-metal-tpm.yaml").read_text(encoding="utf-8"))
    sources = TPMSettings.parse(
        AttestorSettings(ANY_KEYS, policy=bare_metal["spec"]["authorizedAttestors"][0]["settings"])
    ).sources
    assert [type(source) for source in sources.sources] == [Inventory]
    given = [policy["spec"]["authorizedAttestors"][0].get("settings", {}) for policy in policies]
    every = {PCRS_SETTING, SOURCES_SETTING, INVENTORY_SETTING}
    assert [set(settings) for settings in given] == [every, set(), every]
    for settings in given:
        parsed = TPMSettings.parse(AttestorSettings(ANY_KEYS, settings))
        assert bool(parsed.pcr_policy.allowed) == bool(settings)
        assert any(isinstance(source, Inventory) for source in parsed.sources.sources) == bool(settings)


def test_the_nodes_settings_are_accepted() -> None:
    (configuration,) = (json.loads(block.text) for block in blocks(DOCUMENT) if block.language == "json")
    assert NodeSettings.parse(configuration["settings"]).endorsement_choice is not None


@pytest.fixture(scope="module")
def chip() -> Iterator[SoftwareTPM]:
    try:
        with SoftwareTPM() as tpm:
            yield tpm
    except MissingPart as missing:
        skip_or_fail(missing)


@pytest.mark.slow
@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_the_commands_give_the_fingerprint(block: Block, chip: SoftwareTPM, tmp_path: Path) -> None:
    for program in sorted(RUN_ELSEWHERE):
        if shutil.which(program) is None:
            skip_or_fail(MissingPart(f"{program} is not installed: run tests/provision/provision.sh tpm"))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text],
        cwd=tmp_path,
        env={**os.environ, "TPM2TOOLS_TCTI": chip.tcti},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    certificate = x509.load_der_x509_certificate(chip.endorsement_certificate(RSA_CERTIFICATE))
    info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    assert done.stdout.splitlines()[-1].split() == [hashlib.sha256(info).hexdigest(), "-"]


def test_there_is_a_command_for_each_way_to_the_fingerprint() -> None:
    assert len(COMMANDS) == 3


def test_a_recorded_certificate_is_judged() -> None:
    (block,) = [block for block in JUDGING if " endorsement " in block.text]
    done = in_bash(block, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "a manufacturer vouches" in done.stdout


def test_python_runs() -> None:
    (block,) = [block for block in blocks(DOCUMENT) if block.language == "python"]
    exec(compile(block.text, str(block), "exec"), {})  # noqa: S102 - the document's own example


@pytest.mark.slow
def test_the_commands_make_a_quote_that_verifies(
    chip: SoftwareTPM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (block,) = [block for block in JUDGING if " quote " in block.text]
    monkeypatch.setenv("TPM2TOOLS_TCTI", chip.tcti)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    flushed = "".join(
        f"{line}\n{'tpm2_flushcontext --transient-object' if line.startswith('tpm2_') else ''}\n"
        for line in block.text.splitlines()
    )
    done = in_bash(dataclasses.replace(block, text=flushed), tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^sha256:7 +[0-9a-f]{64}$", done.stdout, re.MULTILINE)


def in_bash(block: Block, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block.text.replace("python -m attestors.tpm ", PROGRAM)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.slow
def test_the_annotation_is_written_by_the_real_kubectl(
    workload_cluster: WorldCluster, make_machine: MakeMachine
) -> None:
    try:
        find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)
    make_machine("worker-1", "test:///worker-1")
    annotates = ["annotate", "machine"]
    (command,) = [words for block, words in commands() if block.document == DOCUMENT and words[1:3] == annotates]
    management = workload_cluster.management
    result = run_kubectl(embedded_api(management).kubeconfig(), command[1:])
    assert result.returncode == 0, result.stderr
    machine = management.client.get(MACHINES_V1BETA2.object("worker-1", workload_cluster.namespace))
    written = machine["metadata"]["annotations"][ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION]
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", written)
