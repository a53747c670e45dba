"""The certificates of a node that may be in use, their CAs, and whether the list is complete.

The list comes from the controller's records. This module alone separates the certificates of the node's present
identity from those of former identities with the same node name. Certificates that kube-controller-manager approved and
signed without this controller are in no record: condition ``AutoApprovalRemoved`` says whether there can be any.
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
"""As the moment: include expired certificates."""


class NotAll(enum.Enum):
    """Why the list may be incomplete."""

    NOT_RECORDED = "the node has no record"
    LEFT_THE_JOURNAL = "a certificate that may be valid was dropped from the journal"
    SIGNED_ELSEWHERE = "kube-controller-manager chooses CA and lifetime of built-in serving certificates"
    UNKNOWN_KIND = "the journal names a kind of certificate that this version does not know"


@dataclass(frozen=True, slots=True)
class CertificatesInUse:
    """The certificates of a node that may be in use at one moment."""

    own: tuple[JournalEntry, ...]
    """Certificates of the record's present identity, newest last."""
    former: tuple[JournalEntry, ...]
    """Certificates of identities that had the node name before."""
    approved: tuple[BuiltinApproval, ...]
    """Certificates approved here and signed by kube-controller-manager. Only their keys are known."""
    not_all: frozenset[NotAll]
    """Why the list may be incomplete; empty if it is complete."""

    @property
    def is_all(self) -> bool:
        """Whether the list has every certificate of that kind that this controller approved and that may be in use."""
        return not self.not_all

    @property
    def ca_cert_hashes(self) -> frozenset[str]:
        """Hashes of the CAs that signed them, as far as they are known."""
        return frozenset(entry.ca_cert_hash for entry in (*self.own, *self.former))

    @property
    def last(self) -> JournalEntry | Unjournaled:
        """The present identity's certificate that expires last; of several with the same end, the newest."""
        return last_to_end(self.own)


def certificates_in_use(records: Iterable[AttestedNode], at: datetime, kind: str = EVERY_KIND) -> CertificatesInUse:
    """The certificates of that kind in the records of one node, or of one Machine, that may be in use ``at`` that time.

    A certificate counts until its end by our clock. To include certificates that a server with a slow clock still
    accepts, pass an earlier time.
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
