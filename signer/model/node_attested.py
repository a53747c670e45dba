"""Condition ``NodeAttested`` of a Machine, for ``spec.readinessGates``: what it should say.

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
    """What the condition should say."""

    status: str
    """``True``, ``False`` or ``Unknown``."""
    reason: str
    message: str
    hint: str = field(default="", compare=False)
    """Put behind the message: which request it was. Another request with the same end is no news."""


NOT_YET: Final = NodeAttested("Unknown", NOT_ATTESTED_YET, "no request of this Machine's node was attested yet")


def node_attested_by(records: Iterable[AttestedNode], last: NodeAttested, now: datetime) -> NodeAttested:
    """What records and the last decision say of a Machine; a live record of a secure attestor comes first.

    ``last`` is what :func:`node_attested_after` made of the last decision that was no approval.
    """
    known = sorted(((valid_until(record), record) for record in records), key=lambda one: one[0], reverse=True)
    for end, record in known:
        if end > now and record.identity.security is Security.SECURE:
            # Not until when: each renewal would be a write to other people's object. The AttestedNode says it.
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
        return NodeAttested("False", ATTESTATION_EXPIRED, f"the last certificate ran out at {format_time(end)}")
    return NOT_YET


def valid_until(record: AttestedNode) -> datetime:
    """When the last client certificate of the record's own identity runs out.

    The record's own end also counts those of another identity that had the node name before, perhaps an insecure one.
    """
    entry = certificates_in_use((record,), EVER, KUBELET_CLIENT).last
    return entry.not_after if isinstance(entry, JournalEntry) else record.first_attestation


def node_attested_after(decision: Decision, hint: str = "") -> NodeAttested:
    """What a decision that was no approval says of the Machine; nothing, for the others."""
    match decision:
        case Deny() | Fail():
            return NodeAttested("False", _reason(decision.reason), printable(decision.message) or "denied", hint)
        case Defer():
            return NodeAttested("Unknown", _reason(decision.reason), printable(decision.message) or "waiting", hint)
        case _:
            return NOT_YET


def _reason(reason: str) -> str:
    """An attestor's own reason is one word; whatever else comes is not written into other people's objects."""
    return reason if _REASON.fullmatch(reason) else _ATTESTOR_SPECIFIC
