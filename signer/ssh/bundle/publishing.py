"""Publishes the trust bundle as a ConfigMap of the workload cluster, and looks at what is there afterwards.

The sequence is the Unix time since which the content holds, or one more than that of the content before. So no object
has to keep it, and a restored management cluster publishes none that is too low.

The owner of the workload cluster can delete the ConfigMap, or put an earlier one there. That only delays nodes: they
accept neither a lower sequence nor what the controller has not signed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import datetime

from attestors.wire import statement
from attestors.wire.statement import (
    MAXIMUM_NODE_ACCESS_TRUST_BYTES,
    ClusterIdentity,
    ControllerPublicKeys,
    NodeAccessTrust,
    PinnedController,
    SignedStatement,
    StatementRefused,
    accept_node_access_trust,
    authorities_in,
)
from attestors.wire.statement.names import NODE_ACCESS_CONFIG_MAP, STATEMENT_KEY
from signer.authority.statement_signing import StatementKeys
from signer.kube.calls import GetCreateReplace
from signer.ssh.bundle.content import BundleFacts, render
from signer.ssh.revocations import NothingOfOurs
from signer.store.statements import SIGNED_AGAIN, our_statement, read_statements, statement_text, write_statement


@dataclass(frozen=True, slots=True)
class PublishedBundle:
    """The bundle that the workload cluster publishes now."""

    sequence: int
    payload: NodeAccessTrust
    text: str
    """As it is in the ConfigMap."""
    not_after: int
    """Unix time."""
    facts: BundleFacts = field(repr=False)
    keys: ControllerPublicKeys
    """What it was made of."""
    written: bool
    """Whether this call wrote it."""


@dataclass(frozen=True, slots=True)
class NothingPublished:
    """This process has published none yet."""


async def published_before(
    client: GetCreateReplace, place: ClusterIdentity, keys: StatementKeys
) -> NodeAccessTrust | NothingOfOurs:
    """What the published bundle says, if this controller signed it for that place.

    Raises:
        ApiError: from the workload cluster.
    """
    text = statement_text(await read_statements(client, NODE_ACCESS_CONFIG_MAP), STATEMENT_KEY)
    present = await asyncio.to_thread(_ours, text, place, keys)
    return _payload_of(present[0]) if present else NothingOfOurs()


async def publish_bundle(
    client: GetCreateReplace,
    facts: BundleFacts,
    keys: StatementKeys,
    now: datetime,
    last: PublishedBundle | NothingPublished,
) -> PublishedBundle:
    """Publish the bundle, unless one that says the same is published and lives long enough.

    ``last`` is what this process published last for the cluster.

    Raises:
        ApiError: from the workload cluster; Conflict if another client wrote meanwhile.
        NotPublished: it is not there after the write.
        TooManyRevocations, MalformedStatement, CertificateAuthorityUnavailable: see :mod:`.content`.
    """
    seconds = int(now.timestamp())
    found = await read_statements(client, NODE_ACCESS_CONFIG_MAP)
    made = await asyncio.to_thread(_made, facts, keys, seconds, last, statement_text(found, STATEMENT_KEY))
    if made.written:
        await write_statement(client, NODE_ACCESS_CONFIG_MAP, found, STATEMENT_KEY, made.text)
    return made


def _made(
    facts: BundleFacts, keys: StatementKeys, now: int, last: PublishedBundle | NothingPublished, text: str
) -> PublishedBundle:
    """What is to be published, and whether it has to be written. It takes CPU only."""
    renewal = now + int(SIGNED_AGAIN.total_seconds())
    known: dict[int, NodeAccessTrust] = {}
    if isinstance(last, PublishedBundle):
        if (last.text, last.facts, last.keys) == (text, facts, keys.public) and renewal < last.not_after:
            return replace(last, written=False)
        known[last.sequence] = last.payload
    present = _ours(text, facts.cluster, keys)
    known.update({one.statement.sequence: _payload_of(one) for one in present})
    highest = max(known, default=0)
    payload = facts.payload(highest) if highest else None
    if payload is None or known[highest] != payload:
        highest = max(now, highest + 1)
        payload = facts.payload(highest)
    for one in present:
        end = one.statement.not_after
        if one.statement.sequence == highest and renewal < end and _all_accept(one, facts, keys, now):
            return PublishedBundle(highest, payload, text, end, facts, keys.public, written=False)
    signed = render(facts, payload, highest, keys, now)
    encoded = statement.encode(signed).decode("ascii")
    return PublishedBundle(highest, payload, encoded, signed.statement.not_after, facts, keys.public, written=True)


def _ours(text: str, place: ClusterIdentity, keys: StatementKeys) -> tuple[SignedStatement, ...]:
    """The published bundle, if a key of this controller signed it for a cluster of that place; none for anything else.

    The Cluster's UID may be another one: ``clusterctl move`` changes it, and the sequence has to increase all the same.
    """
    signed = our_statement(text, keys, MAXIMUM_NODE_ACCESS_TRUST_BYTES)
    if not isinstance(signed, SignedStatement):
        return ()
    cluster = signed.statement.cluster
    if not isinstance(signed.statement.payload, NodeAccessTrust) or (cluster.namespace, cluster.name) != (
        place.namespace,
        place.name,
    ):
        return ()
    return (signed,)


def _payload_of(signed: SignedStatement) -> NodeAccessTrust:
    assert isinstance(signed.statement.payload, NodeAccessTrust)
    return signed.statement.payload


def _all_accept(present: SignedStatement, facts: BundleFacts, keys: StatementKeys, now: int) -> bool:
    """Whether all nodes accept it: those that know the cluster by any one of its CAs, and that
    pinned any one of the controller's keys.
    """
    try:
        for authority in facts.signers:
            for key in keys.public.keys:
                accept_node_access_trust(
                    present,
                    trusted=authorities_in([authority.certificate.der]),
                    pin=PinnedController(facts.cluster, ControllerPublicKeys((key,)), 0),
                    last_sequence=0,
                    now=now,
                )
    except StatementRefused:
        return False
    return True
