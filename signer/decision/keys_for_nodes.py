"""The statement that hands the controller's public keys to nodes: published behind each client certificate.

A node pins the keys at its first certificate, and learns new ones at any later one. The statement says the same for all
nodes of the cluster, so it is signed once an hour, and again when the CAs or the controller key change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from attestors.wire.statement import (
    ClusterIdentity,
    ControllerPublicKeys,
    MalformedStatement,
    Statement,
    as_explanatory_text,
)
from signer.authority import IssuingSet
from signer.authority.errors import CertificateAuthorityUnavailable
from signer.authority.statement_signing import StatementKeys, sign_statement
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
_BACKDATE_SECONDS: Final = 300
_LIFE_SECONDS: Final = 7200
"""A node reads it with its certificate, which Kubernetes deletes an hour after it was issued."""
_SIGNED_AGAIN_SECONDS: Final = 3600


@dataclass(frozen=True, slots=True)
class _Signed:
    authorities: IssuingSet
    keys: ControllerPublicKeys
    cluster: ClusterIdentity
    at: int
    text: bytes


class ReadAuthorities(Protocol):
    """Implemented by :class:`~signer.decision.authority_source.AuthoritySource`."""

    async def authority(self) -> IssuingSet:
        """The CAs; raises AuthorityUnavailable."""
        ...


class KeysForNodes:
    """The statement for the nodes of one workload cluster."""

    def __init__(
        self, key: ClusterKey, *, caches: Caches, authority_source: ReadAuthorities, now: Callable[[], datetime]
    ) -> None:
        self._key = key
        self._caches = caches
        self._authority_source = authority_source
        self._now = now
        self._signed: _Signed | None = None

    async def text(self) -> bytes:
        """The statement as explanatory text; empty, with a log line, if it cannot be made.

        A certificate without it is as good. The node gets the keys with its next one.
        """
        try:
            return await self._text()
        except (AuthorityUnavailable, CertificateAuthorityUnavailable, Deferred, MalformedStatement) as error:
            _LOG.warning("a certificate is published without the controller's keys", extra={"error": str(error)})
            return b""

    async def _text(self) -> bytes:
        cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
        if cluster is None:
            return b""
        authorities = await self._authority_source.authority()
        keys = self._caches.authentic.statement_keys()
        identity = ClusterIdentity(self._key.namespace, self._key.name, cluster.uid)
        now = int(self._now().timestamp())
        kept = self._signed
        if (
            kept is None
            or kept.authorities is not authorities
            or (kept.keys, kept.cluster) != (keys.public, identity)
            or not kept.at <= now < kept.at + _SIGNED_AGAIN_SECONDS
        ):
            text = await _signed_text(identity, authorities, keys, now)
            kept = self._signed = _Signed(authorities, keys.public, identity, now, text)
        return kept.text


async def _signed_text(cluster: ClusterIdentity, authorities: IssuingSet, keys: StatementKeys, now: int) -> bytes:
    """The sequence is the time: later keys have a greater one, in whichever replica, and no object has to keep it."""
    statement = Statement(
        cluster=cluster,
        sequence=now,
        not_before=now - _BACKDATE_SECONDS,
        not_after=now + _LIFE_SECONDS,
        payload=keys.public,
    )
    signers = authorities.known_to_nodes
    if any(authority.is_slow_to_sign for authority in signers):
        return as_explanatory_text(await asyncio.to_thread(sign_statement, statement, signers, keys))
    return as_explanatory_text(sign_statement(statement, signers, keys))
