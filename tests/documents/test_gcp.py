"""``docs/gcp.md``: its settings are accepted, and its reasons and figures are the code's."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from attestors.clouds.google import compute
from attestors.clouds.google.settings import COMPUTE_URL
from attestors.contract import AttestorSettings
from attestors.gcp import certificate_source, certificates, controller, instances, local_checks, settings, wire
from attestors.gcp.node import metadata
from attestors.gcp.node.settings import METADATA_ADDRESS, MetadataEndpoint, NodeSettings
from attestors.gcp.node.settings import SETTINGS as NODE_SETTINGS
from attestors.gcp.settings import GCPSettings, LookUp
from tests.documents.markdown import ROOT, blocks
from tests.support.yaml_documents import safe_load

DOCUMENT = ROOT / "docs/gcp.md"
TEXT = " ".join(DOCUMENT.read_text(encoding="utf-8").split())
ROWS = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if re.match(r"\| \d+ \|", line)]
REASONS = "".join(inspect.getsource(module) for module in (controller, instances, local_checks))


def test_every_reason_is_in_the_table() -> None:
    reasons = set(re.findall(r'(?:denied|not_yet)\(\s*"(\w+)"', REASONS))
    assert len(reasons) > 12
    of_the_cloud = {"CloudUnavailable", "CloudAccessRefused", "CloudObjectMissing"}
    for reason in {*reasons, *of_the_cloud, "MalformedEvidence", "BindingMismatch"}:
        assert any(f"`{reason}`" in row for row in ROWS), reason
    for reason in re.findall(r'not_yet\(\s*"(\w+)"', REASONS):
        assert any(f"[`{reason}`](troubleshooting.md#{reason.lower()}) (waits)" in row for row in ROWS), reason


@pytest.mark.parametrize(
    "words",
    [
        *(f"| `{setting}` |" for setting in (*sorted(settings.OPERATOR_SETTINGS), *NODE_SETTINGS)),
        f"A policy may name `{settings.PROJECTS_SETTING}` (a list of IDs) and `{settings.SERVICE_ACCOUNTS_SETTING}`",
        f"each with its number. At most {settings.MAXIMUM_ENTRIES} |",
        f"| `{wire.IDENTITY_TOKEN_FIELD}` | {wire.MAXIMUM_TOKEN_CHARACTERS} |",
        f"one token of at most {wire.MAXIMUM_TOKEN_CHARACTERS} characters",
        f"`{wire.audience(b'')}` and the request's [binding]",
        f"`{certificates.CERTIFICATES_URL}`",
        f"Default `{COMPUTE_URL}`",
        f"Default `http://{METADATA_ADDRESS}`",
        f"clocks may be {local_checks.CLOCK_SKEW.seconds} seconds apart",
        f"asked again for {metadata.TIMEOUT_SECONDS:.0f} seconds",
        f"after {certificate_source.SHORTEST_FRESH.seconds // 60} minutes at the earliest and "
        f"{certificate_source.LONGEST_FRESH.days * 24} hours at the latest",
        f"until they are {certificate_source.STALE_LIMIT.days * 24} hours old",
        f"kept for {compute.ANSWER_SECONDS:.0f} seconds",
        f"`{compute.GET_PERMISSION}` in each project",
    ],
)
def test_the_document_says_what_the_code_does(words: str) -> None:
    assert words in TEXT


def test_once_a_minute() -> None:
    """``once a minute at most``, ``good for an hour``."""
    assert certificate_source.UNKNOWN_KEY_INTERVAL.seconds == 60
    assert local_checks.MAXIMUM_LIFETIME.seconds == 3600


def in_yaml() -> Iterator[dict[str, Any]]:
    for block in blocks(DOCUMENT):
        if block.language == "yaml":
            yield safe_load(block.text)


def test_the_settings_are_accepted() -> None:
    (operator,) = (content["attestors"]["gcp"]["settings"] for content in in_yaml() if "attestors" in content)
    example = (ROOT / "deploy/policies/gcp.yaml").read_text(encoding="utf-8")
    # The example has its settings in comments: as it stands, and with them.
    commented = re.sub(
        r"^( {6})# (settings:| +projects:| +serviceAccounts:| +- )", r"\1\2", example, flags=re.MULTILINE
    )
    policies = [content for content in in_yaml() if content.get("kind") == "NodeAttestationPolicy"]
    policies += [safe_load(example), safe_load(commented)]
    given = [policy["spec"]["authorizedAttestors"][0].get("settings", {}) for policy in policies]
    assert [set(one) for one in given] == [settings.POLICY_SETTINGS, set(), settings.POLICY_SETTINGS]
    for one in given:
        parsed = GCPSettings.parse(AttestorSettings(operator=operator, policy=one))
        assert parsed.projects == {"my-workloads": 123456789012}
        assert parsed.instances == LookUp()


def test_the_nodes_settings_are_accepted() -> None:
    (configuration,) = (json.loads(block.text) for block in blocks(DOCUMENT) if block.language == "json")
    assert configuration["provider"] == "gcp"
    assert NodeSettings.parse(configuration["settings"]).endpoint == MetadataEndpoint(METADATA_ADDRESS)
