"""Publishes what agents on nodes are told about a rotation: signed statements in the workload cluster."""

from __future__ import annotations

from signer.rotation.statements.publishing import (
    NotPublished,
    Published,
    SequenceTooLow,
    publish_statement,
)
from signer.rotation.statements.rendering import TrustFacts, render, turns_of

__all__ = [
    "NotPublished",
    "Published",
    "SequenceTooLow",
    "TrustFacts",
    "publish_statement",
    "render",
    "turns_of",
]
