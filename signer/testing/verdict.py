"""The verdict on a CSR."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass

from signer.kube.client import JsonObject


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a CSR, as the API shows it."""

    condition: str
    """``Approved``, ``Denied``, ``Failed``, or empty while it is undecided."""
    reason: str
    message: str
    certificate: bytes
    """PEM; empty if none was issued."""
    annotations: Mapping[str, str]

    @classmethod
    def of(cls, manifest: JsonObject) -> Verdict:
        """Read a CSR object."""
        status = manifest.get("status") or {}
        conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
        kind = next((kind for kind in ("Failed", "Denied", "Approved") if kind in conditions), "")
        condition = conditions.get(kind, {})
        return cls(
            kind,
            condition.get("reason", ""),
            condition.get("message", ""),
            base64.b64decode(status.get("certificate") or ""),
            manifest["metadata"].get("annotations") or {},
        )


def is_decided(manifest: JsonObject) -> bool:
    """Whether the CSR has a certificate, was denied or has failed."""
    verdict = Verdict.of(manifest)
    return bool(verdict.certificate) or verdict.condition in ("Denied", "Failed")
