"""``docs/aws.md``: its settings are accepted, its bounds are the code's, and its commands give what it says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from attestors.aws import wire
from attestors.aws.document.certificates import known_fingerprints, shipped_certificates
from attestors.aws.node.settings import SETTINGS, NodeSettings, Proof
from tests.documents.markdown import ROOT, blocks

DOCUMENT = ROOT / "docs/aws.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
BLOCKS = blocks(DOCUMENT)


def rows(after: str) -> dict[str, str]:
    """The table below this line: what stands in the first two columns."""
    table = TEXT.split(after, 1)[1].split("\n\n", 1)[0]
    return dict(re.findall(r"^\| `([^`]+)` \| (.+) \|$", table, re.MULTILINE))


def test_settings_of_the_node() -> None:
    assert tuple(rows("| setting | meaning |\n")) == SETTINGS
    for block in BLOCKS:
        if block.language == "json":
            assert NodeSettings.parse(json.loads(block.text)["settings"]).proof is Proof.PRESIGNED
    assert all(f"`{proof.value}`" in rows("| setting | meaning |\n")["proof"] for proof in Proof)


def test_fields_of_the_evidence() -> None:
    fields = rows("| field of the evidence | |\n")
    assert set(fields) == {*wire.CALLER_IDENTITY_FIELDS, *wire.WEB_IDENTITY_FIELDS}
    assert f"{wire.MAXIMUM_IDENTITY_DOCUMENT_BYTES // 1024} KiB" in fields[wire.IDENTITY_DOCUMENT_FIELD]
    assert str(wire.MAXIMUM_CALLER_IDENTITY_REQUEST_CHARACTERS) in fields[wire.CALLER_IDENTITY_REQUEST_FIELD]
    assert str(wire.MAXIMUM_WEB_IDENTITY_TOKEN_CHARACTERS) in fields[wire.WEB_IDENTITY_TOKEN_FIELD]
    assert f"`{wire.BINDING_HEADER}`" in TEXT
    assert f"`{wire.audience(bytes(32))[:-64]}`" in TEXT


def test_number_of_certificates() -> None:
    assert f"certificates of {len(shipped_certificates().by_region)} Regions are shipped" in TEXT
    assert len(known_fingerprints()) - len(shipped_certificates().by_region) == 3


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.language == "python"], ids=str)
def test_python_runs(block: object) -> None:
    text = getattr(block, "text", "")
    done = subprocess.run([sys.executable, "-c", text], cwd=ROOT, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_recorded_documents_verify() -> None:
    (command,) = [
        block.text for block in BLOCKS if "attestors.aws.document" in block.text and block.language == "console"
    ]
    program, *arguments = command.split()
    assert program == "python"
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "aws:///ap-southeast-2a/i-0c5541936caf78c12" in done.stdout
