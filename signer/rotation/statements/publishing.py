"""Publishes the statement as a ConfigMap of the workload cluster, and looks at what is there afterwards.

The owner of the workload cluster can change or delete the ConfigMap. That only delays nodes: they accept nothing that
the controller has not signed. So each pass compares, and writes what differs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime

from attestors.wire import statement
from attestors.wire.statement import (
    ClientRenewal,
    ClusterTrust,
    ControllerPublicKeys,
    PinnedController,
    SignedStatement,
    StatementRefused,
    accept_client_renewal,
    accept_trust,
    authorities_in,
)
from attestors.wire.statement.names import (
    RENEWAL_KEY,
    STATEMENT_CONFIG_MAP,
    STATEMENT_KEY,
)
from signer.authority.statement_signing import StatementKeys
from signer.kube.calls import GetCreateReplace
from signer.kube.client import JsonObject
from signer.rotation.statements.rendering import RenewalFacts, TrustFacts, render, render_renewal
from signer.store.statements import (
    SIGNED_AGAIN,
    our_statement,
    read_statements,
    statement_text,
    write_statement,
)


class SequenceTooLow(Exception):
    """Nodes would refuse the statement: a later one of this controller is published."""


@dataclass(frozen=True, slots=True)
class Published:
    """The statement that the workload cluster publishes now."""

    signed: SignedStatement
    written: bool
    """Whether this call wrote it."""


async def publish_statement(
    client: GetCreateReplace, facts: TrustFacts, keys: StatementKeys, now: datetime
) -> Published:
    """Publish the statement, unless one that says the same is published and lives long enough.

    A published statement keeps its turns: nodes that joined since are not listed, and need no restart.

    Raises:
        ApiError: from the workload cluster; Conflict if another client wrote meanwhile.
        NotPublished: it is not there after the write.
        SequenceTooLow: a later statement of this controller is there.
        MalformedStatement, CertificateAuthorityUnavailable: see :func:`.rendering.render`.
    """
    seconds = int(now.timestamp())
    found = await read_statements(client, STATEMENT_CONFIG_MAP)
    present = our_statement(statement_text(found, STATEMENT_KEY), keys)
    if isinstance(present, SignedStatement):
        if _is_good(present, facts, keys, seconds):
            return Published(present, written=False)
        if present.statement.sequence > facts.sequence or (
            present.statement.sequence == facts.sequence and not _has_the_same_content(present, facts)
        ):
            raise SequenceTooLow(
                f"sequence {facts.sequence} is not greater than {present.statement.sequence}, which is published"
            )
    signed = await asyncio.to_thread(render, facts, keys, seconds)
    await _write(client, found, STATEMENT_KEY, signed)
    return Published(signed, written=True)


async def publish_renewal(
    client: GetCreateReplace, facts: RenewalFacts, keys: StatementKeys, now: datetime
) -> Published:
    """Publish the statement that client certificates are to be renewed, beside that about trust.

    One that is published keeps its times: nodes have acted on it, or will.

    Raises:
        ApiError, NotPublished, SequenceTooLow, MalformedStatement, CertificateAuthorityUnavailable: as for
            :func:`publish_statement`.
    """
    seconds = int(now.timestamp())
    found = await read_statements(client, STATEMENT_CONFIG_MAP)
    present = our_statement(statement_text(found, RENEWAL_KEY), keys)
    if isinstance(present, SignedStatement):
        if _is_good_renewal(present, facts, keys, seconds):
            return Published(present, written=False)
        if present.statement.sequence > facts.sequence:
            raise SequenceTooLow(
                f"sequence {facts.sequence} is not greater than {present.statement.sequence}, which is published"
            )
    signed = await asyncio.to_thread(render_renewal, facts, keys, seconds)
    await _write(client, found, RENEWAL_KEY, signed)
    return Published(signed, written=True)


async def _write(client: GetCreateReplace, found: JsonObject, key: str, signed: SignedStatement) -> None:
    """The other statement of the ConfigMap stays as it is."""
    text = statement.encode(signed).decode("ascii")
    await write_statement(client, STATEMENT_CONFIG_MAP, found, key, text, kept=(STATEMENT_KEY, RENEWAL_KEY))


def _is_good(present: SignedStatement, facts: TrustFacts, keys: StatementKeys, now: int) -> bool:
    """Whether it tells nodes what they are to be told, and all of them accept it, now and for a while.

    All of them: those that trust any one of the CAs, and that pinned any one of the controller's keys.
    """
    if not _has_the_same_content(present, facts):
        return False
    if now + int(SIGNED_AGAIN.total_seconds()) >= present.statement.not_after:
        return False
    try:
        for authority in (*facts.trusted, *facts.signers):
            for key in keys.public.keys:
                accept_trust(
                    present,
                    trusted=authorities_in([authority.certificate.der]),
                    pin=PinnedController(facts.cluster, ControllerPublicKeys((key,)), 0),
                    last_sequence=0,
                    now=now,
                )
    except StatementRefused:
        return False
    return True


def _is_good_renewal(present: SignedStatement, facts: RenewalFacts, keys: StatementKeys, now: int) -> bool:
    """The same, for all nodes: those that pinned any one of the controller's keys."""
    payload = present.statement.payload
    if not isinstance(payload, ClientRenewal) or payload.authority != facts.key_identifier:
        return False
    if present.statement.sequence != facts.sequence or (
        now + int(SIGNED_AGAIN.total_seconds()) >= present.statement.not_after
    ):
        return False
    try:
        for key in keys.public.keys:
            accept_client_renewal(
                present,
                trusted=authorities_in([facts.signer.certificate.der]),
                pin=PinnedController(facts.cluster, ControllerPublicKeys((key,)), 0),
                last_sequence=0,
                now=now,
            )
    except StatementRefused:
        return False
    return True


def _has_the_same_content(present: SignedStatement, facts: TrustFacts) -> bool:
    payload = present.statement.payload
    return (
        isinstance(payload, ClusterTrust)
        and present.statement.cluster == facts.cluster
        and (payload.rotation, payload.bundle) == (facts.rotation_id, facts.bundle)
    )
