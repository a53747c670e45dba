"""What the trust bundle says: the authorities, the key revocation list, and who attests now. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

from attestors.wire.node_access import Trust
from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.keys import RevocableKey
from attestors.wire.ssh.krl import CertificateRevocations, Fingerprint, RevocationList, encode_revocation_list
from attestors.wire.statement import (
    MAXIMUM_RENEW_SPREAD_SECONDS,
    MAXIMUM_REVOCATION_LIST_BYTES,
    ClusterIdentity,
    NodeAccessTrust,
    SignedStatement,
    Statement,
)
from signer.authority import CertificateAuthority
from signer.authority.statement_signing import StatementKeys, sign_statement
from signer.rotation.statements.rendering import RENEWALS_IN_A_SECOND
from signer.ssh.revocations import Revocation

LIFETIME: Final = timedelta(days=30)
"""How long a node accepts it that has not accepted it before. It is signed again long before."""
BACKDATE: Final = timedelta(minutes=5)
SHORTEST_SPREAD_SECONDS: Final = 10
"""Of the times at which nodes attest. Longer than this, a few nodes need not wait for each other."""


class TooManyRevocations(Exception):
    """They do not fit into what nodes are told. No part of them is left out: the published list stays."""


@dataclass(frozen=True, slots=True)
class BundleFacts:
    """What nodes are to be told."""

    cluster: ClusterIdentity
    trust: Trust
    renew_below: int
    """:attr:`signer.ssh.available.AvailableAuthorities.renew_below`."""
    renew_spread_seconds: int
    """:func:`renew_spread_seconds`."""
    revoked: tuple[Revocation, ...] = field(repr=False)
    signers: tuple[CertificateAuthority, ...]
    """The CAs by which a node may know the cluster."""

    def payload(self, sequence: int) -> NodeAccessTrust:
        """The statement's content under that sequence, which is the list's version, too.

        Raises:
            TooManyRevocations: the list is too large.
            MalformedStatement: a number is.
        """
        return NodeAccessTrust(
            self.trust, revocation_list(self.revoked, sequence), self.renew_below, self.renew_spread_seconds
        )


def renew_spread_seconds(renew_below: int, nodes: int) -> int:
    """Within which so many nodes attest, where ``renew_below`` has them do so: seldom more than
    ``RENEWALS_IN_A_SECOND``. It doubles with the fleet, so that few changes of the fleet make another bundle.
    """
    spread = SHORTEST_SPREAD_SECONDS
    while renew_below and spread * RENEWALS_IN_A_SECOND < nodes:
        spread *= 2
    return min(spread, MAXIMUM_RENEW_SPREAD_SECONDS)


def revocation_list(revoked: tuple[Revocation, ...], version: int) -> bytes:
    """sshd's RevokedKeys. The version is a Unix time, or a little later: it stands as the time of the list, too.

    Raises:
        TooManyRevocations: it is too large.
    """
    try:
        found = RevocationList(
            version=version,
            generated=version,
            certificates=tuple(one for one in revoked if isinstance(one, CertificateRevocations)),
            keys=tuple(one for one in revoked if isinstance(one, RevocableKey)),
            fingerprints=tuple(one for one in revoked if isinstance(one, Fingerprint)),
        )
        encoded = encode_revocation_list(found)
    except SSHRefused as refused:
        if refused.reason is not SSHReason.TOO_LARGE:
            raise
        raise TooManyRevocations(refused.message) from None
    if len(encoded) > MAXIMUM_REVOCATION_LIST_BYTES:
        raise TooManyRevocations(
            f"{found.entries} entries need {len(encoded)} bytes, and {MAXIMUM_REVOCATION_LIST_BYTES} can be published: "
            "revoke public keys or serial numbers instead of key ids, or replace the user authority, which ends every "
            "certificate that it signed"
        )
    return encoded


def render(
    facts: BundleFacts, payload: NodeAccessTrust, sequence: int, keys: StatementKeys, now: int
) -> SignedStatement:
    """The signed statement, valid from ``now`` (Unix time).

    Raises:
        MalformedStatement: a number or the count of signatures is out of bounds.
        CertificateAuthorityUnavailable: a CA was loaded without its key.
    """
    statement = Statement(
        cluster=facts.cluster,
        sequence=sequence,
        not_before=now - int(BACKDATE.total_seconds()),
        not_after=now + int(LIFETIME.total_seconds()),
        payload=payload,
    )
    return sign_statement(statement, facts.signers, keys)
