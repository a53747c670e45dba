"""Publishes what agents on nodes are told about a rotation: signed statements in the workload cluster."""

from __future__ import annotations

from signer.rotation.statements.publishing import (
    Published,
    SequenceTooLow,
    publish_renewal,
    publish_statement,
)
from signer.rotation.statements.rendering import RenewalFacts, TrustFacts, render, render_renewal, turns_of
from signer.store.statements import NotPublished

__all__ = [
    "NotPublished",
    "Published",
    "RenewalFacts",
    "SequenceTooLow",
    "TrustFacts",
    "publish_renewal",
    "publish_statement",
    "render",
    "render_renewal",
    "turns_of",
]
