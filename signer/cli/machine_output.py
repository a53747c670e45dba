"""A Machine as JSON, for ``status`` and ``explain``."""

from __future__ import annotations

from typing import Any

from signer.explain.machines import LastCertificate, MachineStatus
from signer.model.decision import printable
from signer.model.fields import format_time


def machine_as_json(one: MachineStatus) -> dict[str, Any]:
    """The state of a Machine, or of an instance of a MachinePool, as JSON."""
    certificate = one.certificate if isinstance(one.certificate, LastCertificate) else None
    return {
        "kind": one.machine.kind,
        "name": printable(one.machine.name),
        "providerID": printable(one.machine.provider_id),
        "node": one.node,
        "state": one.state.value,
        "reason": one.reason,
        "notAfter": format_time(certificate.not_after) if certificate else None,
        "attestor": certificate.attestor if certificate else "",
        "certificateAuthority": certificate.authority if certificate else "",
    }
