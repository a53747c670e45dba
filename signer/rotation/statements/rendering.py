"""From the facts of a rotation to the statement about the trust of a cluster's nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from attestors.wire import pem
from attestors.wire.statement import (
    MAXIMUM_SHARE,
    MAXIMUM_SPREAD_SECONDS,
    ClientRenewal,
    ClusterIdentity,
    ClusterTrust,
    SignedStatement,
    Statement,
    node_digest,
)
from signer.authority import CACertificate, CertificateAuthority
from signer.authority.authority_certificate import key_identifier
from signer.authority.statement_signing import StatementKeys, sign_statement

LIFETIME: Final = timedelta(days=30)
"""How long a statement counts. It is signed again before that for as long as it is published."""
BACKDATE: Final = timedelta(minutes=5)
SHORTEST_SPREAD_SECONDS: Final = 60
RENEWALS_IN_A_SECOND: Final = 2
"""Of client certificates that nodes are told to renew: 1,000 nodes need 500 seconds."""
TURN_SECONDS: Final = 240
"""Two minutes to restart a kubelet, and two to turn back."""


@dataclass(frozen=True, slots=True)
class TrustFacts:
    """What nodes are to be told."""

    cluster: ClusterIdentity
    rotation_id: str
    sequence: int
    """Greater than that of every statement with another content about this cluster, also of earlier rotations."""
    trusted: tuple[CertificateAuthority, ...]
    """The CAs that nodes must trust, the one that their evidence must name first."""
    signers: tuple[CertificateAuthority, ...]
    """CAs that sign besides ``trusted``: those that nodes trust now, and will not any more."""
    node_names: tuple[str, ...]
    """The nodes whose kubelets restart in turn. A node that joins later has the CAs from its join."""
    turn_seconds: int = TURN_SECONDS

    @property
    def bundle(self) -> str:
        """The trusted CAs, PEM."""
        blocks = (pem.Block("CERTIFICATE", authority.certificate.der) for authority in self.trusted)
        return b"".join(map(pem.encode, blocks)).decode("ascii")


@dataclass(frozen=True, slots=True)
class RenewalFacts:
    """Which client certificates nodes are to renew."""

    cluster: ClusterIdentity
    authority: CACertificate
    """Their CA."""
    sequence: int
    """Greater than that of every earlier statement of the kind about this cluster."""
    signer: CertificateAuthority
    """The CA that nodes know the cluster by."""
    nodes: int
    """How many have such a certificate."""

    @property
    def key_identifier(self) -> str:
        """What the certificates have as authority key identifier, hexadecimal."""
        return key_identifier(self.authority).hex()

    @property
    def spread_seconds(self) -> int:
        """For all of them to begin."""
        return min(max(SHORTEST_SPREAD_SECONDS, self.nodes // RENEWALS_IN_A_SECOND), MAXIMUM_SPREAD_SECONDS)


def turns_of(node_names: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """The nodes by digest, in turns of a tenth of them, or of one."""
    digests = sorted({node_digest(name) for name in node_names})
    together = max(1, len(digests) // MAXIMUM_SHARE)
    return tuple(tuple(digests[start : start + together]) for start in range(0, len(digests), together))


def render(facts: TrustFacts, keys: StatementKeys, now: int) -> SignedStatement:
    """The signed statement, valid from ``now`` (Unix time).

    Raises:
        MalformedStatement: the facts exceed a bound, such as that of nodes.
        CertificateAuthorityUnavailable: a CA was loaded without its key.
    """
    statement = Statement(
        cluster=facts.cluster,
        sequence=facts.sequence,
        not_before=now - int(BACKDATE.total_seconds()),
        not_after=now + int(LIFETIME.total_seconds()),
        payload=ClusterTrust(facts.rotation_id, facts.bundle, turns_of(facts.node_names), facts.turn_seconds),
    )
    return sign_statement(statement, (*facts.trusted, *facts.signers), keys)


def render_renewal(facts: RenewalFacts, keys: StatementKeys, now: int) -> SignedStatement:
    """The signed statement, valid from ``now`` (Unix time), from which nodes renew.

    Raises:
        MalformedStatement, CertificateAuthorityUnavailable: as for :func:`render`.
    """
    statement = Statement(
        cluster=facts.cluster,
        sequence=facts.sequence,
        not_before=now - int(BACKDATE.total_seconds()),
        not_after=now + int(LIFETIME.total_seconds()),
        payload=ClientRenewal(facts.key_identifier, now, facts.spread_seconds),
    )
    return sign_statement(statement, (facts.signer,), keys)
