"""Publishes the trust bundle as a ConfigMap of the workload cluster, and looks at what is there afterwards.

The sequence is the Unix time since which the content holds, or one more than that of the content before. So no object
has to keep it, and a restored management cluster publishes none that is too low.

The owner of the workload cluster can delete the ConfigMap, or put an earlier one there. That only delays nodes: they
accept neither a lower sequence nor what the controller has not signed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography.exceptions import InvalidSignature

from attestors.wire import statement
from attestors.wire.statement import (
    MAXIMUM_NODE_ACCESS_TRUST_BYTES,
    ClusterIdentity,
    ControllerPublicKeys,
    MalformedStatement,
    NodeAccessTrust,
    PinnedController,
    SignedStatement,
    StatementRefused,
    UnsupportedStatement,
    accept_node_access_trust,
    authorities_in,
    signed_input,
)
from attestors.wire.statement.names import NODE_ACCESS_CONFIG_MAP, STATEMENT_KEY, STATEMENT_NAMESPACE
from attestors.wire.statement.signatures import verify
from signer.authority.statement_signing import StatementKeys
from signer.kube.calls import GetCreateReplace
from signer.kube.client import JsonObject
from signer.kube.errors import NotFound
from signer.kube.resources import CONFIG_MAPS
from signer.model.fields import mapping_of
from signer.ssh.bundle.content import BundleFacts, render
from signer.ssh.revocations import NothingOfOurs

SIGNED_AGAIN: Final = timedelta(days=10)
"""A bundle with less of its life left is signed again, under the same sequence."""
PATH: Final = CONFIG_MAPS.object(NODE_ACCESS_CONFIG_MAP, STATEMENT_NAMESPACE)


class NotPublished(Exception):
    """After the write, the ConfigMap does not hold the bundle: something else writes it."""


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
    try:
        found = await client.get(PATH)
    except NotFound:
        return NothingOfOurs()
    present = await asyncio.to_thread(_ours, _text_of(found), place, keys)
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
    try:
        found = await client.get(PATH)
    except NotFound:
        found = None
    made = await asyncio.to_thread(_made, facts, keys, seconds, last, "" if found is None else _text_of(found))
    if made.written:
        await _write(client, found, made.text)
        if _text_of(await client.get(PATH)) != made.text:
            raise NotPublished(f"ConfigMap {STATEMENT_NAMESPACE}/{NODE_ACCESS_CONFIG_MAP} was changed after the write")
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
    try:
        signed = statement.decode(text.encode("utf-8", "replace"), maximum_bytes=MAXIMUM_NODE_ACCESS_TRUST_BYTES)
    except (MalformedStatement, UnsupportedStatement):
        return ()
    cluster = signed.statement.cluster
    if not isinstance(signed.statement.payload, NodeAccessTrust) or (cluster.namespace, cluster.name) != (
        place.namespace,
        place.name,
    ):
        return ()
    values = {signature.key.text: signature.value for signature in signed.signatures}
    for name, public in keys.public.by_hash().items():
        try:
            verify(public, values.get(name, b""), signed_input(signed.statement))
        except InvalidSignature:
            continue
        return (signed,)
    return ()


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


async def _write(client: GetCreateReplace, found: JsonObject | None, text: str) -> None:
    metadata: dict[str, Any] = {"name": NODE_ACCESS_CONFIG_MAP, "namespace": STATEMENT_NAMESPACE}
    body = {"apiVersion": CONFIG_MAPS.api_version, "kind": "ConfigMap", "data": {STATEMENT_KEY: text}}
    if found is None:
        await client.create(CONFIG_MAPS.collection(STATEMENT_NAMESPACE), {**body, "metadata": metadata})
        return
    kept = {name: value for name, value in mapping_of(found, "metadata").items() if name != "managedFields"}
    await client.replace(PATH, {**body, "metadata": {**kept, **metadata}})


def _text_of(found: Mapping[str, Any]) -> str:
    text = mapping_of(found, "data").get(STATEMENT_KEY)
    return text if isinstance(text, str) else ""
