"""CAs, a controller and its statements, for tests of nodes and of the controller."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from attestors.wire import pem
from attestors.wire.ssh.krl import CertificateRevocations, RevocationList, encode_revocation_list
from attestors.wire.statement import (
    ClusterIdentity,
    ClusterTrust,
    NodeAccessTrust,
    Payload,
    SignedStatement,
    Statement,
    node_digest,
)
from signer.authority import CertificateAuthority, load_certificate_authority
from signer.authority.statement_signing import StatementKeys, sign_statement
from signer.model.seal import ControllerKeys, KeyUse
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.support import node_access

NOW: Final = int(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC).timestamp())
IDENTITY: Final = ClusterIdentity("fleet", "prod", "5f1c1f7a-0000-4000-8000-000000000001")
ROTATION: Final = "a2b3c4d5"


@functools.cache
def authority(
    name: str = "old",
    algorithm: EncryptionAlgorithm = EncryptionAlgorithm.ECDSA_P256,
    *,
    start: int = NOW - 3600,
    days: int = 3650,
) -> CertificateAuthority:
    """A CA with its key; one for each name."""
    begin = datetime.fromtimestamp(start, UTC)
    made = new_cluster_certificate_authority(algorithm, common_name=name, now=begin, duration=timedelta(days=days))
    return load_certificate_authority(made.secret_data, now=begin)


def bundle_of(*authorities: CertificateAuthority) -> str:
    """Their certificates, PEM."""
    return "".join(pem.encode(pem.Block("CERTIFICATE", one.certificate.der)).decode("ascii") for one in authorities)


@functools.cache
def controller(current: str = "c", previous: str = "") -> StatementKeys:
    """The controller's keys under a controller key that is that letter repeated."""
    generations = [32 * letter.encode("ascii") for letter in (current, previous) if letter]
    return StatementKeys.of(ControllerKeys(*generations).subkeys(KeyUse.STATEMENT))


def trust_of(*authorities: CertificateAuthority, nodes: Sequence[str] = (), turn_seconds: int = 120) -> ClusterTrust:
    """A payload with those CAs; each node has a turn of its own."""
    return ClusterTrust(ROTATION, bundle_of(*authorities), tuple((node_digest(node),) for node in nodes), turn_seconds)


def bundle(
    sequence: int = 1, *revoked: CertificateRevocations, version: int = 7, renew_below: int = 0, spread: int = 240
) -> NodeAccessTrust:
    """A trust bundle's content under that sequence."""
    revocations = RevocationList(sequence, sequence, certificates=revoked)
    return NodeAccessTrust(node_access.trust(version=version), encode_revocation_list(revocations), renew_below, spread)


def signed(
    payload: Payload,
    *signers: CertificateAuthority,
    keys: StatementKeys | None = None,
    sequence: int = 1,
    cluster: ClusterIdentity = IDENTITY,
    not_before: int = NOW,
    not_after: int = NOW + 86400,
) -> SignedStatement:
    """The statement, signed by those CAs and by the controller."""
    statement = Statement(cluster, sequence, not_before, not_after, payload)
    return sign_statement(statement, signers, controller() if keys is None else keys)
