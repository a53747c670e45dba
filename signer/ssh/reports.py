"""What nodes are proven to trust and to present, by their attested requests; and the gates of a rotation. Pure.

The version of trust that a node has is in its attested request, so in its sealed record. What a node writes about
itself is no report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from attestors.wire.ssh.keys import HostKey
from signer.model.cluster import LONG_AGO, ClusterKey
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
    former_certificate_end: datetime = LONG_AGO
    """Until when it may present a certificate of another authority than ``host_authority``, because nothing shows that
    it could read its newest one; :data:`LONG_AGO` once something does."""


@dataclass(frozen=True, slots=True)
class Reports:
    """Of every attested node with SSH whose Machine exists."""

    nodes: tuple[NodeReport, ...]
    """Those whose Machine is not being deleted."""
    unknown: tuple[str, ...] = ()
    """Nodes whose record says nothing that counts; none whose Machine is being deleted."""
    leaving: tuple[NodeReport, ...] = ()
    """Those whose Machine is being deleted: they run, and trust what they trusted, until it is gone."""
    leaving_unknown: tuple[str, ...] = ()
    """The others whose Machine is being deleted."""

    def version_after(self, version: int, now: datetime) -> int:
        """The version of trust that every node takes, where the recorded one is ``version``.

        A node that reports a higher one refuses the recorded one: it is from a backup. If that is ahead of the clock,
        nodes may have been given any that is believed at present.
        """
        seconds, most = int(now.timestamp()), int((now + BELIEVED_AHEAD).timestamp())
        every = (*self.nodes, *self.leaving)
        reported = max((one.trust_version for one in every if one.trust_version <= most), default=0)
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


def no_node_is_left_without(version: int, reports: Reports | NotReported) -> Proof:
    """As :func:`every_node_has`, of the nodes whose Machine is being deleted, too: until it is gone, such a node opens
    to whatever it trusts.
    """
    if isinstance(reports, NotReported):
        return NotKnown(reports.message)
    proof = every_node_has(version, reports)
    reported = [one.node for one in reports.leaving if one.trust_version != version]
    leaving = tuple(sorted({*reported, *reports.leaving_unknown}))
    if not leaving:
        return proof
    message = f"these nodes run until their Machines, which are being deleted, are gone: {named(leaving)}"
    if isinstance(proof, Proven):
        return NotProven(message, leaving)
    return replace(proof, message=f"{proof.message}; {message}", members=tuple(sorted({*proof.members, *leaving})))


def every_node_presents(authority: HostKey, reports: Reports | NotReported, now: datetime) -> Proof:
    """Every node could read a host certificate by that authority, or none of another one is valid any more."""
    if isinstance(reports, NotReported):
        return NotKnown(reports.message)
    lagging = tuple(
        sorted(
            one.node
            for one in reports.nodes
            if (one.host_authority != authority.fingerprint and now < one.host_certificate_end)
            or now < one.former_certificate_end
        )
    )
    if lagging:
        return NotProven(f"these nodes may have a host certificate of another authority: {named(lagging)}", lagging)
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
    "no_node_is_left_without",
]
