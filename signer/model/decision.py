"""The decision on one CSR: one value of a closed union type.

``Deny`` is final, and a kubelet posts a new request within seconds of a denial. So only a request that can never become
valid is denied. A fault of the controller or of a cloud is a ``Defer``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

from signer.model.host_keys import NOT_ASKED, HostCertificates
from signer.model.reasons import Reason
from signer.model.record import JournalEntry

MAXIMUM_MESSAGE_CHARACTERS: Final = 1024


@dataclass(frozen=True, slots=True)
class Approve:
    """The request is attested, reserved and journaled: approve it, and sign exactly what the journal entry says."""

    node_name: str
    reason: Reason
    message: str
    entry: JournalEntry
    certificate: bytes = field(repr=False)
    """PEM, signed already; published after the approval."""
    annotations: Mapping[str, str] = field(default_factory=partial(MappingProxyType[str, str], {}))
    """The attestor's annotations, and the seal unless another client approved. The journal does not hold them."""
    host_certificates: HostCertificates = NOT_ASKED
    """What the host keys in the request got."""


@dataclass(frozen=True, slots=True)
class ApproveOnly:
    """The built-in serving request of an attested node is journaled: approve it. kube-controller-manager signs."""

    node_name: str
    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class Deny:
    """The request cannot become valid under the present objects and configuration: deny it.

    ``reason`` is a :class:`Reason`, or an attestor's own CamelCase word. ``annotations`` are written with the denial.
    """

    reason: str
    message: str
    annotations: Mapping[str, str] = field(default_factory=partial(MappingProxyType[str, str], {}))


@dataclass(frozen=True, slots=True)
class Challenge:
    """The request is valid so far. It is denied with reason ``ChallengeIssued`` and the challenge in an annotation."""

    challenge: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The request is approved already and must not be signed. Approved and Denied exclude each other.

    ``reason`` is a :class:`Reason`, or an attestor's own CamelCase word.
    """

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Defer:
    """The request cannot be decided yet. A change of the objects that it waits for wakes it, at the latest
    ``retry_after``."""

    reason: str
    message: str
    retry_after: timedelta | None = None
    """None: the work queue's own backoff."""
    waits_for: tuple[str, ...] = ()
    """Provider IDs besides the claimed one: a change of their Machines wakes the request too.

    ``system:node:<name>`` is the key of that node's record.
    """
    grows: bool = False
    """Whether the pause grows with each retry: a node may make an attestor wait for an object again and again."""


@dataclass(frozen=True, slots=True)
class Ignore:
    """The request is not ours, or is settled already."""


@dataclass(frozen=True, slots=True)
class LeftAlone:
    """The policy ignores such requests. The request is decided anew if the policy changes."""

    instead_of: ApproveOnly | Deny | Defer
    """The decision without that setting."""


Decision: TypeAlias = Approve | ApproveOnly | Deny | Challenge | Fail | Defer | Ignore | LeftAlone


class Refused(Exception):
    """Raised by a check: the request cannot become valid, so it is denied."""

    def __init__(self, reason: str, message: str, annotations: Mapping[str, str] | None = None) -> None:
        super().__init__(printable(f"{reason}: {message}"))
        self.deny = Deny(reason, printable(message), MappingProxyType(dict(annotations or {})))


class Deferred(Exception):
    """Raised by a check: the request cannot be decided yet."""

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
    """``text`` for a condition, an Event or a log: truncated, with control and non-ASCII characters escaped.

    Names in messages come from nodes, tenants and workload API servers.
    """
    bounded = text[:MAXIMUM_MESSAGE_CHARACTERS]
    if bounded.isascii() and bounded.isprintable():  # nearly always
        return bounded
    escaped = "".join(
        character if " " <= character <= "~" else character.encode("unicode_escape").decode("ascii")
        for character in bounded
    )
    return escaped[:MAXIMUM_MESSAGE_CHARACTERS]
