"""The condition ``NodeAttested`` of a Machine, for ``spec.readinessGates``.

Its form is ``metav1.Condition`` (apimachinery ``pkg/apis/meta/v1/types.go``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from attestors.contract import Security
from signer.model.certificates_in_use import EVER, certificates_in_use
from signer.model.cluster import MachineView
from signer.model.decision import Decision, Defer, Deny, Fail, printable
from signer.model.fields import format_time
from signer.model.reasons import Reason
from signer.model.record import KUBELET_CLIENT, AttestedNode, JournalEntry

NODE_ATTESTED: Final = "NodeAttested"
"""The condition's type, for ``spec.readinessGates[].conditionType``."""
NOT_ATTESTED_YET: Final = "NotAttestedYet"
ATTESTATION_EXPIRED: Final = "AttestationExpired"

_REASON: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]{0,127}[A-Za-z0-9_])?", re.ASCII)
_ATTESTOR_SPECIFIC: Final = "AttestorSpecific"


@dataclass(frozen=True, slots=True)
class NodeAttested:
    """The condition to be written."""

    status: str
    """``True``, ``False`` or ``Unknown``."""
    reason: str
    message: str
    hint: str = field(default="", compare=False)
    """Appended to the message: names the request. A difference in the hint alone causes no write."""


NOT_YET: Final = NodeAttested("Unknown", NOT_ATTESTED_YET, "no request of this Machine's node was attested yet")


def node_attested_by(records: Iterable[AttestedNode], last: NodeAttested, now: datetime) -> NodeAttested:
    """The condition from a Machine's records and the last decision. A valid record of a secure attestor comes first.

    ``last`` is the result of :func:`node_attested_after` for the last decision other than an approval.
    """
    known = sorted(((valid_until(record), record) for record in records), key=lambda one: one[0], reverse=True)
    for end, record in known:
        if end > now and record.identity.security is Security.SECURE:
            # Without the expiry: each renewal would then write to the Machine. The AttestedNode has it.
            text = f"attested by {record.identity.provider} as node {record.node_name}"
            return NodeAttested("True", str(Reason.ATTESTED), printable(text))
    for end, record in known:
        if end > now:
            text = f"asserted without proof by {record.identity.provider} as node {record.node_name}"
            return NodeAttested("False", str(Reason.ASSERTED), printable(text))
    if last != NOT_YET:
        return last
    if known:
        end = known[0][0]
        return NodeAttested("False", ATTESTATION_EXPIRED, f"the last certificate expired at {format_time(end)}")
    return NOT_YET


def node_attested_despite(record: AttestedNode, machine: MachineView) -> NodeAttested:
    """The condition of a Machine that shows another provider ID than was claimed for it when its node was attested."""
    shown = machine.provider_id or "one that cannot be read"
    text = f"node {record.node_name} claims provider ID {record.machine.provider_id}, and the Machine shows {shown}"
    return NodeAttested("False", str(Reason.PROVIDER_ID_DISAGREES), printable(text))


def valid_until(record: AttestedNode) -> datetime:
    """When the last client certificate of the record's present identity expires.

    The record's ``last_not_after`` also counts certificates of former identities, perhaps insecure ones.
    """
    entry = certificates_in_use((record,), EVER, KUBELET_CLIENT).last
    return entry.not_after if isinstance(entry, JournalEntry) else record.first_attestation


def node_attested_after(decision: Decision, hint: str = "") -> NodeAttested:
    """The condition after a denial, failure or deferral; :data:`NOT_YET` after any other decision."""
    match decision:
        case Deny() | Fail():
            return NodeAttested("False", _reason(decision.reason), printable(decision.message) or "denied", hint)
        case Defer():
            return NodeAttested("Unknown", _reason(decision.reason), printable(decision.message) or "waiting", hint)
        case _:
            return NOT_YET


def _reason(reason: str) -> str:
    """An attestor's own reason, if it is valid for a ``metav1.Condition``."""
    return reason if _REASON.fullmatch(reason) else _ATTESTOR_SPECIFIC
