"""``docs/composite.md``: its settings are accepted, and its reasons are the code's."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attestors.composite import CompositeAttestor, plugin
from attestors.composite.parts import Part, server_parts
from attestors.contract import AttestorSettings
from attestors.contract.composite import MAXIMUM_PARTS, MINIMUM_PARTS
from attestors.registry import Registry
from attestors.tpm import TPMAttestor
from attestors.tpm.node.settings import NodeSettings
from signer.configuration import read_configuration_file
from signer.decision.attestation import _ATTESTATION_SECONDS
from tests.documents.attestor_reasons import _reasons_in
from tests.documents.markdown import ROOT, blocks
from tests.support.attestors import RegistryWith
from tests.support.yaml_documents import safe_load
from tests.unit.attestors.tpm.endorsement.support import root

DOCUMENT = ROOT / "docs/composite.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")


def contents(language: str) -> list[Any]:
    return [safe_load(block.text) for block in blocks(DOCUMENT) if block.language == language]


def parts(operator: Mapping[str, Any], policy: Mapping[str, Any]) -> list[Part]:
    return list(server_parts(AttestorSettings(operator, policy), Registry()))


def test_the_settings_are_accepted(tmp_path: Path) -> None:
    configuration, policy = contents("yaml")
    file = tmp_path / "config.yaml"
    text = json.dumps(configuration).replace("/etc/node-attestation/endorsement/roots", str(tmp_path / "roots"))
    file.write_text(text)
    (tmp_path / "roots").mkdir()
    (tmp_path / "roots" / "maker.der").write_bytes(root())
    read = read_configuration_file(file)
    accepted = read.floors.of("anywhere").required
    assert str(accepted.workers) == str(accepted.control_plane) == "composite with gcp and tpm"
    example = safe_load((ROOT / "deploy/policies/composite.yaml").read_text(encoding="utf-8"))
    assert example == policy
    (authorized,) = policy["spec"]["authorizedAttestors"]
    made = parts(read.attestors["composite"].settings, authorized["settings"])
    assert [(part.name, part.challenges, part.names_hardware) for part in made] == [
        ("gcp", False, False),
        ("tpm", True, True),
    ]


class WithoutLibrary(TPMAttestor):
    """Its agent plugin is its settings: the library that reaches a TPM may be missing here."""

    def agent_plugin(self, settings: Mapping[str, str]) -> Any:
        """See the contract."""
        return NodeSettings.parse(settings)


def test_the_nodes_settings_are_accepted() -> None:
    (configuration,) = contents("json")
    assert configuration["provider"] == "composite"
    settings = configuration["settings"]
    made = CompositeAttestor(lambda: RegistryWith(WithoutLibrary())).agent_plugin(settings)
    assert [part.name for part in made.parts] == ["gcp", "tpm"]


def test_the_reasons_are_the_codes() -> None:
    made = {
        reason: result
        for file in sorted((ROOT / "attestors/composite").rglob("*.py"))
        for reason, result in _reasons_in(ast.parse(file.read_text(encoding="utf-8")))
    }
    made["AttestorsChanged"] = "waits"
    assert dict(re.findall(r"^\| `(\w+)` \| (denied|waits) \|", TEXT, flags=re.MULTILINE)) == made
    assert set(plugin.explanations()) == set(made)


def test_figures() -> None:
    assert (MINIMUM_PARTS, MAXIMUM_PARTS) == (2, 3)
    assert "two or three other attestors" in TEXT
    assert f"All parts together have {_ATTESTATION_SECONDS:.0f} seconds" in TEXT
