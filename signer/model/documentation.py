"""Links to the documents, for Events, conditions of Machines and the output of ``explain``."""

from __future__ import annotations

import re
from typing import Final

from signer.model.host_keys import HostCertificateReason
from signer.model.reasons import Reason

DOCUMENTATION_URL: Final = "https://node-attestation.example"
"""Base URL of the documents' site, which ``make site`` builds. The name is reserved (RFC 2606) and does not resolve: no
site is published. ``make generate`` writes it from ``[project.urls]`` in ``pyproject.toml``."""
DOCUMENTED_ATTESTORS: Final = frozenset({"aws", "gcp", "tpm"})
"""The attestors whose own reasons have headings in ``docs/troubleshooting.md``."""
ATTESTORS_SECTION: Final = "reasons-of-attestors"
"""The section on reasons of attestors without headings of their own."""

_CORE: Final = frozenset(str(reason) for reason in (*Reason, *HostCertificateReason))
_WORD: Final = re.compile(r"[A-Za-z0-9]{1,64}")


def reason_url(reason: str, provider: str) -> str:
    """URL of a reason's explanation. ``provider`` names the attestor that gave it; empty if none did."""
    has_heading = reason in _CORE or provider in DOCUMENTED_ATTESTORS
    anchor = reason.lower() if has_heading and _WORD.fullmatch(reason) else ATTESTORS_SECTION
    return f"{DOCUMENTATION_URL}/troubleshooting/#{anchor}"


def page_url(page: str) -> str:
    """URL of a page of the documents, by its name in ``docs`` without ``.md``."""
    return f"{DOCUMENTATION_URL}/{page}/"
