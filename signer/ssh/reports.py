"""What nodes are proven to trust and to present, by their attested requests; and the gates of a rotation. Pure.

The version of trust that a node has is in its attested request, so in its sealed record. What a node writes about
itself is no report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from attestors.wire.ssh.keys import HostKey
from signer.model.cluster import ClusterKey
from signer.rotation.proofs import NotKnown, NotProven, Proof, Proven, named

BELIEVED_AHEAD: Final = timedelta(days=1)
"""Versions are Unix times. A node may report any number, and one that is further ahead was never given."""
RAISED_AFTER: Final = timedelta(hours=1)
"""From one version to the next that nodes' reports lead to: a node that reports numbers at will cannot have all others
attest again and again."""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What the newest attested request of a node, and the certificate that answered it, say of SSH."""

    node: str
    trust_version: int
    """Of the trust that its sshd has; 0 for none."""
    host_authority: str
    """Fingerprint of the authority of its newest host certificate; empty without one."""
    host_certificate_end: datetime
    """When its last host certificate of any authority ends."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Of every attested node with SSH whose Machine exists and is not being deleted."""

    nodes: tuple[NodeReport, ...]
    unknown: tuple[str, ...] = ()
    """Nodes whose record says nothing that counts."""

    def version_after(self, version: int, now: datetime) -> int:
        """The version of trust that every node takes, where the recorded one is ``version``.

        A node that reports a higher one refuses the recorded one: it is from a backup. If that is ahead of the clock,
        nodes may have been given any that is believed at present.
        """
        seconds, most = int(now.timestamp()), int((now + BELIEVED_AHEAD).timestamp())
        reported = max((one.trust_version for one in self.nodes if one.trust_version <= most), default=0)
        if reported <= version or now.timestamp() - version < RAISED_AFTER.total_seconds():
            return version
        return seconds if reported < seconds else most + 1


@dataclass(frozen=True, slots=True)
class NotReported:
    """Nothing is known of the nodes."""

    message: str


ReportsOf: TypeAlias = Callable[[ClusterKey], Reports | NotReported]


def every_node_has(version: int, reports: Reports | NotReported) -> Proof:
    """Every node reports exactly that version of trust, which is the recorded one. A higher one was given by a state
    that is no more, so it says nothing about the present trust.
    """
    if isinstance(reports, NotReported):
        return NotKnown(reports.message)
    lagging = tuple(sorted(one.node for one in reports.nodes if one.trust_version != version))
    if lagging:
        return NotProven(f"these nodes have not attested with trust version {version}: {named(lagging)}", lagging)
    return _all_known(reports)


def every_node_presents(authority: HostKey, reports: Reports | NotReported, now: datetime) -> Proof:
    """Every node's newest host certificate is by that authority, or none of its certificates is valid any more."""
    if isinstance(reports, NotReported):
        return NotKnown(reports.message)
    lagging = tuple(
        sorted(
            one.node
            for one in reports.nodes
            if one.host_authority != authority.fingerprint and now < one.host_certificate_end
        )
    )
    if lagging:
        return NotProven(f"these nodes have a host certificate of another authority: {named(lagging)}", lagging)
    return _all_known(reports)


def _all_known(reports: Reports) -> Proof:
    if reports.unknown:
        return NotKnown(f"nothing is known of these nodes: {named(reports.unknown)}", reports.unknown)
    return Proven()


__all__ = [
    "BELIEVED_AHEAD",
    "RAISED_AFTER",
    "NodeReport",
    "NotReported",
    "Reports",
    "ReportsOf",
    "every_node_has",
    "every_node_presents",
]
