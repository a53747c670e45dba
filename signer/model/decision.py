"""The outcome of one CSR: one value of one closed type.

``Deny`` is final, and a kubelet that is denied asks again within seconds: only what can never become right is denied.
A fault of ours, or of a cloud, is a ``Defer``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from types import MappingProxyType
from typing import Final, TypeAlias

from signer.model.reasons import Reason
from signer.model.record import JournalEntry

MAXIMUM_MESSAGE_CHARACTERS: Final = 1024


@dataclass(frozen=True, slots=True)
class Approve:
    """Attested, reserved and journaled: approve, and sign exactly what the journal entry says."""

    node_name: str
    reason: Reason
    message: str
    entry: JournalEntry
    certificate: bytes = field(repr=False)
    """PEM, signed already; published after the approval."""
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """What the attestor resolved, written with the approval. The journal does not hold it: what was approved already,
    and is only signed from the journal, has none here."""


@dataclass(frozen=True, slots=True)
class ApproveOnly:
    """A built-in serving request of an attested node, journaled: approve it; kube-controller-manager signs."""

    node_name: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Deny:
    """Proven wrong, for good under what the operator now declares.

    ``reason`` is a :class:`Reason`, or an attestor's own CamelCase word. ``annotations`` go into the same write.
    """

    reason: str
    message: str
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True)
class Challenge:
    """Good so far; shown as a denial with reason ``ChallengeIssued`` and the challenge in an annotation."""

    challenge: str


@dataclass(frozen=True, slots=True)
class Fail:
    """Approved already, and we will not sign it; Approved and Denied exclude each other.

    ``reason`` is a :class:`Reason`, or an attestor's own CamelCase word.
    """

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Defer:
    """Not provable yet. Woken by a change of what it waits for, and in any case after ``retry_after``."""

    reason: str
    message: str
    retry_after: timedelta | None = None
    """None: the work queue's own backoff."""
    waits_for: tuple[str, ...] = ()
    """Provider IDs beside the claimed one: a change of their Machines wakes it too.

    ``system:node:<name>`` stands for the record of that node.
    """
    grows: bool = False
    """Whether the pause grows with each time: a node may choose what an attestor waits for, a thousand times."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """Not ours, or settled already."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """The policy leaves such requests alone; this would have been decided. It is judged again if the policy changes."""

    instead_of: ApproveOnly | Deny | Defer


Decision: TypeAlias = Approve | ApproveOnly | Deny | Challenge | Fail | Defer | Ignore | LeftAlone


class Refused(Exception):
    """Raised by a check: the request is wrong for good."""

    def __init__(self, reason: str, message: str, annotations: Mapping[str, str] | None = None) -> None:
        super().__init__(printable(f"{reason}: {message}"))
        self.deny = Deny(reason, printable(message), MappingProxyType(dict(annotations or {})))


class Deferred(Exception):
    """Raised by a check: the request cannot be judged yet."""

    def __init__(
        self,
        reason: str,
        message: str,
        retry_after: timedelta | None = None,
        *,
        waits_for: tuple[str, ...] = (),
        grows: bool = False,
    ) -> None:
        super().__init__(printable(f"{reason}: {message}"))
        self.defer = Defer(reason, printable(message), retry_after, waits_for, grows)


def printable(text: str) -> str:
    """``text`` for a condition, an Event or a log: bounded, control and non-ASCII characters escaped.

    Names in messages come from nodes, tenants and workload API servers.
    """
    bounded = text[:MAXIMUM_MESSAGE_CHARACTERS]
    if bounded.isascii() and bounded.isprintable():  # nearly always: nothing is to be escaped
        return bounded
    escaped = "".join(
        character if " " <= character <= "~" else character.encode("unicode_escape").decode("ascii")
        for character in bounded
    )
    return escaped[:MAXIMUM_MESSAGE_CHARACTERS]
