"""``AccessApproval``: one person's word on one grant, as it was when the person read it."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from signer.model.access.creator import StatedCreator, read_creator
from signer.model.access.digest import DIGEST
from signer.model.access.errors import InvalidAccessApproval
from signer.model.access.metadata import GrantReference, ObjectMetadata, read_grant_reference, read_metadata
from signer.model.access.reader import Reader


class Decision(enum.Enum):
    """What the person says."""

    APPROVE = "Approve"
    DENY = "Deny"


@dataclass(frozen=True, slots=True)
class AccessApproval:
    """One AccessApproval. Nothing in its spec ever changes."""

    metadata: ObjectMetadata
    grant: GrantReference
    decision: Decision
    spec_digest: str
    created_by: StatedCreator


def parse_access_approval(manifest: Mapping[str, Any]) -> AccessApproval:
    """Read an AccessApproval. It does not rely on the API server's validation.

    Raises:
        InvalidAccessApproval: a field is missing, unknown or invalid.
    """
    whole = Reader(InvalidAccessApproval, "", manifest)
    metadata = read_metadata(whole)
    spec = whole.object("spec").knows("grantRef", "decision", "specDigest", "createdBy")
    return AccessApproval(
        metadata,
        read_grant_reference(spec),
        spec.read("decision", _decision),
        spec.text("specDigest", 64, DIGEST, "a SHA-256 digest: 64 hexadecimal digits in lower case"),
        read_creator(spec),
    )


def _decision(value: Any) -> Decision:
    try:
        return Decision(value)
    except ValueError:
        raise ValueError("must be Approve or Deny") from None
