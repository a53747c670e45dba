from __future__ import annotations

import pytest

from signer.model.documentation import DOCUMENTATION_URL, reason_url
from signer.model.reasons import Reason

PAGE = f"{DOCUMENTATION_URL}/troubleshooting/"


@pytest.mark.parametrize("provider", ["tpm", "insecure", "keyed-mac", ""])
def test_a_reason_of_the_core_has_its_heading_whichever_attestor_is_asked(provider: str) -> None:
    for reason in Reason:
        assert reason_url(reason, provider) == f"{PAGE}#{reason.lower()}"


def test_a_reason_of_an_attestor_of_the_project_has_its_heading() -> None:
    assert reason_url("QuoteRefused", "tpm") == f"{PAGE}#quoterefused"


@pytest.mark.parametrize(
    ("reason", "provider"),
    [("QuoteRefused", "keyed-mac"), ("QuoteRefused", ""), ("Quote#Refused", "tpm"), ("Q" * 65, "tpm"), ("", "tpm")],
)
def test_any_other_reason_leads_to_the_section_on_attestors(reason: str, provider: str) -> None:
    assert reason_url(reason, provider) == f"{PAGE}#reasons-of-attestors"
