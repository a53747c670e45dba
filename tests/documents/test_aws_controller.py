"""``docs/aws.md`` on the server plugin: its settings are accepted, and its reasons and figures are the code's."""

from __future__ import annotations

import inspect
import re

from attestors.aws import controller, freshness, issuers, settings, web_identity
from attestors.aws.caller_identity import answer
from attestors.aws.ec2 import directory, rules, trust
from attestors.aws.settings import AWSSettings
from attestors.contract import AttestorSettings
from tests.documents.markdown import ROOT, blocks
from tests.support.yaml_documents import safe_load

DOCUMENT = ROOT / "docs/aws.md"
LINES = DOCUMENT.read_text(encoding="utf-8")
TEXT = " ".join(LINES.split())
ROWS = [line for line in LINES.splitlines() if re.match(r"\| \d+ \|", line)]
SOURCE = "".join(inspect.getsource(module) for module in (controller, freshness, web_identity, answer, rules, trust))
DOCUMENTS = [safe_load(block.text) for block in blocks(DOCUMENT) if block.language == "yaml"]


def test_every_reason_is_in_the_table() -> None:
    denials = set(re.findall(r'denied\(\s*"(\w+)"', SOURCE))
    waiting = set(re.findall(r'(?:not_yet|not_until_fixed)\(\s*"(\w+)"', SOURCE))
    of_the_cloud = {"CloudUnavailable", "CloudAccessRefused"}
    assert len(denials) > 15
    assert len(waiting) > 8
    for reason in {*denials, "MalformedEvidence", "BindingMismatch"}:
        assert any(f"`{reason}`" in row for row in ROWS), reason
    for reason in {*waiting, *of_the_cloud}:
        assert any(f"[`{reason}`](troubleshooting.md#{reason.lower()}) (waits)" in row for row in ROWS), reason


def test_every_setting_is_explained() -> None:
    for name in settings.OPERATOR_SETTINGS:
        assert f"| `{name}` | " in LINES, name
    for name in settings.POLICY_SETTINGS:
        assert f"(`{name}`" in TEXT, name


def test_figures() -> None:
    for words in (
        f"attached more than {rules.MAXIMUM_ATTACH_DIFFERENCE.seconds} seconds apart",
        f"gathered for {directory.GATHER_SECONDS} seconds",
        f"| EC2's answers | cached for {directory.LIFETIME_SECONDS:.0f} seconds |",
        "| an issuer's keys | cached for an hour, and for six hours while the issuer cannot be reached |",
    ):
        assert words in TEXT, words
    assert (issuers.LIFETIME_SECONDS, issuers.STALE_SECONDS) == (3600, 6 * 3600)


def test_the_examples_are_accepted() -> None:
    configuration, policy = DOCUMENTS
    example = safe_load((ROOT / "deploy/policies/aws.yaml").read_text(encoding="utf-8"))
    assert [one["name"] for one in example["spec"]["authorizedAttestors"]] == ["aws"]
    operator = configuration["attestors"]["aws"]["settings"]
    [authorized] = policy["spec"]["authorizedAttestors"]
    parsed = AWSSettings.parse(AttestorSettings(operator=operator, policy=authorized["settings"]))
    assert len(parsed.roles) == 1
