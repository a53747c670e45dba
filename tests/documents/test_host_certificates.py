"""The reasons of host certificates are documented, each under its heading."""

from __future__ import annotations

from signer.model.documentation import reason_url
from signer.model.host_keys import HostCertificateReason
from tests.documents.markdown import ROOT


def test_each_reason_has_a_heading() -> None:
    text = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    section = text.partition("\n## Reasons of host certificates\n")[2].partition("\n## ")[0]
    headings = [line.removeprefix("### ") for line in section.splitlines() if line.startswith("### ")]
    assert headings == sorted(one.value for one in HostCertificateReason)


def test_events_link_to_it() -> None:
    for one in HostCertificateReason:
        assert reason_url(one, "").endswith(f"/troubleshooting/#{one.lower()}")
