"""``kubelet-authenticator tpm fingerprint`` shows what the controller finds in evidence, with a software TPM."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.fingerprint import fingerprint
from tests.support.software_tpm import ENDORSEMENT_CERTIFICATES, LIBRARY_MISSING, SoftwareTPM

pytest.importorskip("tpm2_pytss", reason=LIBRARY_MISSING, exc_type=ImportError)

from authenticator.cli import main
from tests.integration.tpm.node_tpm import agent_plugin, field, left_behind, request

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def _nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("authenticator.configuration.DEFAULT_CONFIGURATION_FILE", str(tmp_path / "none.json"))


def expected(tpm: SoftwareTPM, **settings: str) -> str:
    """By the controller's own parser, of what a request shows."""
    evidence = agent_plugin(tpm, **settings).gather(request())
    return fingerprint(EndorsementKey.decode(field(evidence, "ekPublic")))


def shown(tpm: SoftwareTPM, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["tpm", "fingerprint", "--setting", f"tcti={tpm.tcti}", *arguments]) == 0
    assert not left_behind(tpm)
    return capsys.readouterr().out


def documents(output: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(output)["endorsementKeys"]
    return found


def test_the_key_that_evidence_shows(software_tpm: SoftwareTPM, capsys: pytest.CaptureFixture[str]) -> None:
    by_default = expected(software_tpm)
    assert shown(software_tpm, capsys) == f"{by_default}  rsa-2048, with a certificate\n"
    assert documents(shown(software_tpm, capsys, "--output", "json")) == [
        {"fingerprint": by_default, "template": "rsa-2048", "certificate": True, "chip": ""}
    ]
    chosen = expected(software_tpm, ek="ecc-p256")
    without = shown(software_tpm, capsys, "--setting", "ek=ecc-p256")
    assert without == f"{chosen}  ecc-p256, without a certificate\n"


def test_every_template_with_a_certificate(software_tpm: SoftwareTPM, capsys: pytest.CaptureFixture[str]) -> None:
    found = documents(shown(software_tpm, capsys, "--all", "-o", "json"))
    assert len(found) == len(ENDORSEMENT_CERTIFICATES)
    assert [(one["template"], one["certificate"], one["fingerprint"]) for one in found] == [
        (name, True, expected(software_tpm, ek=name)) for name in ("rsa-2048", "high-ecc-p384")
    ]
