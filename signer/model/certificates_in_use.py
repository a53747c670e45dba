"""Which certificates of a node may be in use, by which CA, and whether that is all.

The answer comes from what the controller recorded. It is the one place that tells certificates of the node's present
identity from those of identities that had the node name before. Certificates that kube-controller-manager approved and
signed without this controller are in no record: whether there can be any is what condition ``AutoApprovalRemoved``
says.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from signer.model.cluster import LONG_AGO
from signer.model.record import (
    BUILTIN_KUBELET_SERVING,
    HELD_AFTER_END,
    AttestedNode,
    BuiltinApproval,
    JournalEntry,
    Unjournaled,
    is_known,
    last_to_end,
)

EVERY_KIND: Final = ""
EVER: Final = LONG_AGO
"""As the moment that is asked about: also what has run out."""


class NotAll(enum.Enum):
    """Why certificates may be in use that the answer does not name."""

    NOT_RECORDED = "nothing is recorded of the node"
    LEFT_THE_JOURNAL = "a certificate that may be valid had to leave the journal"
    SIGNED_ELSEWHERE = "kube-controller-manager chooses CA and lifetime of built-in serving certificates"
    UNKNOWN_KIND = "the journal names a kind of certificate that this version does not know"


@dataclass(frozen=True, slots=True)
class CertificatesInUse:
    """The certificates of a node that may be in use at one moment."""

    own: tuple[JournalEntry, ...]
    """Of the identity that the record is about now, newest last."""
    former: tuple[JournalEntry, ...]
    """Of identities that had the node name before."""
    approved: tuple[BuiltinApproval, ...]
    """Approved here and signed elsewhere. Only their keys are known: what a node serves with proves the rest."""
    not_all: frozenset[NotAll]
    """Why that is not all; empty where it is."""

    @property
    def is_all(self) -> bool:
        """Whether no other certificate of that kind can be in use that this controller allowed."""
        return not self.not_all

    @property
    def ca_cert_hashes(self) -> frozenset[str]:
        """The CAs that signed them, as far as they are known."""
        return frozenset(entry.ca_cert_hash for entry in (*self.own, *self.former))

    @property
    def last(self) -> JournalEntry | Unjournaled:
        """The identity's own that runs out last; of several such the newest."""
        return last_to_end(self.own)


def certificates_in_use(records: Iterable[AttestedNode], at: datetime, kind: str = EVERY_KIND) -> CertificatesInUse:
    """What the records of one node, or of one Machine, say about certificates of that kind.

    A certificate counts until its end by our clock. A caller that must not miss one which a server with a slow clock
    still accepts asks about an earlier moment.
    """
    own: list[JournalEntry] = []
    former: list[JournalEntry] = []
    approved: list[BuiltinApproval] = []
    not_all = {NotAll.NOT_RECORDED}
    for record in records:
        not_all.discard(NotAll.NOT_RECORDED)
        for entry in record.journal:
            if entry.not_after <= at:
                continue
            if not is_known(entry.kind):
                not_all.add(NotAll.UNKNOWN_KIND)
            if kind in (EVERY_KIND, entry.kind):
                (own if record.is_own(entry) else former).append(entry)
        for approval in record.builtin_approvals:
            if not is_known(approval.kind):
                not_all.add(NotAll.UNKNOWN_KIND)
            if kind in (EVERY_KIND, approval.kind):
                approved.append(approval)
        if record.dropped_not_after != LONG_AGO and at < record.dropped_not_after + HELD_AFTER_END:
            not_all.add(NotAll.LEFT_THE_JOURNAL)
    if kind in (EVERY_KIND, BUILTIN_KUBELET_SERVING):
        not_all.add(NotAll.SIGNED_ELSEWHERE)
    return CertificatesInUse(tuple(own), tuple(former), tuple(approved), frozenset(not_all))
