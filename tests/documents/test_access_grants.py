"""``docs/troubleshooting.md`` has every reason of access grants that a person can meet."""

from __future__ import annotations

from typing import Final

import pytest

from signer.access.certificates import CertificateReason
from signer.access.conditions import GrantReason
from signer.access.reconciler import REVOCATION_LIST_FULL, REVOCATIONS_UNKNOWN
from signer.access.record import MAXIMUM_EPOCH, Cause
from signer.model.access.bastion import BastionReason
from tests.documents.markdown import ROOT

SECTION: Final = (
    (ROOT / "docs/troubleshooting.md")
    .read_text(encoding="utf-8")
    .partition("\n## Reasons of access grants\n")[2]
    .partition("\n## ")[0]
)
FINE: Final = frozenset(
    {
        GrantReason.ISSUED,
        GrantReason.SEALED,
        GrantReason.ALLOWED,
        GrantReason.ENOUGH_APPROVALS,
        GrantReason.RECONCILED,
        GrantReason.BASTION_NOT_NEEDED,
        GrantReason.NOT_ENDED,
    }
)


@pytest.mark.parametrize(
    "reason",
    [
        *(one.value for one in GrantReason if one not in FINE),
        *(one.value for one in CertificateReason),
        REVOCATIONS_UNKNOWN,
        REVOCATION_LIST_FULL,
    ],
)
def test_each_reason_is_explained(reason: str) -> None:
    assert f"`{reason}`" in SECTION or f"\n### {reason}\n" in SECTION


@pytest.mark.parametrize("cause", Cause)
def test_each_end_is_explained_and_whether_it_is_final(cause: Cause) -> None:
    row = next((line for line in SECTION.splitlines() if line.startswith(f"| `{cause.value}` |")), "")
    if cause is Cause.RECORD_NOT_AUTHENTIC:
        assert f"\n### {cause.value}\n" in SECTION
    else:
        assert row.endswith("| no |") is cause.is_final, row


def test_the_number_of_returns_is_the_codes() -> None:
    assert f"more than {MAXIMUM_EPOCH} times" in SECTION


@pytest.mark.parametrize("reason", BastionReason)
def test_reasons_of_bastions_are_documented(reason: BastionReason) -> None:
    page = (ROOT / "docs/bastions.md").read_text(encoding="utf-8")
    table = page.partition("### What the status says")[2].partition("\n### ")[0]
    assert f"| `{reason.value}` |" in table
