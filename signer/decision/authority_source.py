"""The source of a cluster's CA: Secret ``<cluster>-ca``, read by name and cached while it is unchanged.

Secrets are not watched: that grant would give the controller every Secret of the management cluster.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol

from signer.authority import (
    CertificateAuthority,
    CertificateAuthorityUnavailable,
    IssuingSet,
    load_certificate_authority,
)
from signer.kube.calls import Get
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Forbidden, NotFound
from signer.kube.resources import SECRETS
from signer.model.cluster import ClusterKey

KEPT_SECONDS: Final = 60.0
"""Time for which a CA is used before its Secret is read again."""
FAILURE_KEPT_SECONDS: Final = 5.0


class AuthorityUnavailable(Exception):
    """No CA is available for signing now; ``reason`` is stable, and the message contains the remedy."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class LoadAuthority(Protocol):
    """Creates a CA from a Secret's data, as :func:`~signer.authority.load_certificate_authority` does."""

    def __call__(self, secret_data: Mapping[str, bytes], *, now: datetime) -> CertificateAuthority:
        """See :func:`~signer.authority.load_certificate_authority`."""
        ...


@dataclass(slots=True)
class _Kept:
    looked_at: float
    """When the last attempt to read began."""
    read_at: float
    """When the read that returned ``answer`` began; never later than ``looked_at``."""
    resource_version: str
    answer: IssuingSet | AuthorityUnavailable
    loaded_at: float = 0.0


class AuthoritySource:
    """The CA of one workload cluster."""

    def __init__(
        self,
        client: Get,
        cluster: ClusterKey,
        *,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        load: LoadAuthority | None = None,
    ) -> None:
        """``load`` creates the CA from the Secret's data if private keys are not available."""
        self._load_authority = load
        self._client = client
        self._path = SECRETS.object(f"{cluster.name}-ca", cluster.namespace)
        self._name = f"Secret {cluster.namespace}/{cluster.name}-ca"
        self._now = now
        self._monotonic = monotonic
        self._kept: _Kept | None = None
        self._reading = asyncio.Lock()

    def expiry(self) -> tuple[datetime, ...]:
        """When the CA that was last read expires; empty if none could be read."""
        kept = self._kept
        if kept is None or not isinstance(kept.answer, IssuingSet):
            return ()
        return (kept.answer.not_after,)

    async def authority(self, *, not_before: float = float("-inf")) -> IssuingSet:
        """The CAs for signing and for verification, from a read of the Secret at ``not_before`` (of the monotonic
        clock) or later.

        Raises:
            AuthorityUnavailable: the Secret is missing or unusable, or the management cluster cannot be asked and no
                recent enough read is cached.
        """
        kept = self._kept
        if self._is_stale(kept, not_before):
            async with self._reading:  # one read for all concurrent callers
                kept = self._kept
                if self._is_stale(kept, not_before):
                    kept = self._kept = await self._read(kept)
        if kept is None or kept.read_at < not_before:
            raise AuthorityUnavailable("ManagementClusterUnreachable", f"{self._name} cannot be read now")
        if isinstance(kept.answer, AuthorityUnavailable):
            raise AuthorityUnavailable(kept.answer.reason, str(kept.answer))
        return kept.answer

    def _is_stale(self, kept: _Kept | None, not_before: float) -> bool:
        if kept is None or kept.read_at < not_before:
            return True
        return self._monotonic() - kept.looked_at > _kept_seconds(kept)

    async def _read(self, before: _Kept | None) -> _Kept:
        read_at = self._monotonic()
        try:
            secret = await self._client.get(self._path)
        except NotFound:
            missing = AuthorityUnavailable("CertificateAuthorityMissing", f"{self._name} does not exist")
            return _Kept(read_at, read_at, "", missing)
        except ApiError as error:
            # An outage of the management cluster must not stop renewals; a denied read must.
            if before is not None and isinstance(before.answer, IssuingSet) and not isinstance(error, Forbidden):
                return replace(before, looked_at=read_at)
            unreachable = AuthorityUnavailable("ManagementClusterUnreachable", f"{self._name}: {error}")
            return _Kept(read_at, read_at, "", unreachable)
        version = str((secret.get("metadata") or {}).get("resourceVersion", ""))
        if before is not None and version and version == before.resource_version and not self._may_change(before):
            return _Kept(read_at, read_at, version, before.answer, before.loaded_at)
        # In a thread: the tenant's data takes CPU time to parse.
        return _Kept(read_at, read_at, version, await asyncio.to_thread(self._load, secret), read_at)

    def _may_change(self, kept: _Kept) -> bool:
        """Whether the unchanged Secret may give another result later: a CA that was not valid yet."""
        return isinstance(kept.answer, AuthorityUnavailable) and self._monotonic() - kept.loaded_at > KEPT_SECONDS

    def _load(self, secret: JsonObject) -> IssuingSet | AuthorityUnavailable:
        try:
            data = decode_secret(secret)
            return IssuingSet.of((self._load_authority or load_certificate_authority)(data, now=self._now()))
        except CertificateAuthorityUnavailable as error:
            return AuthorityUnavailable(str(error.reason), f"{self._name}: {error}")
        except UnreadableSecret as error:
            return AuthorityUnavailable("CertificateAuthorityInvalid", f"{self._name}: {error}")


class UnreadableSecret(ValueError):
    """``data`` of a Secret does not have the form that an API server stores."""


def decode_secret(secret: Mapping[str, Any]) -> dict[str, bytes]:
    """The decoded ``data`` of a Secret.

    Raises:
        UnreadableSecret: it is no map of base64 texts.
    """
    data = secret.get("data") or {}
    try:
        return {str(key): base64.b64decode(value, validate=True) for key, value in data.items()}
    except (AttributeError, TypeError, binascii.Error, ValueError) as error:
        raise UnreadableSecret("data is not a map of base64 texts") from error


def _kept_seconds(kept: _Kept) -> float:
    return KEPT_SECONDS if isinstance(kept.answer, IssuingSet) else FAILURE_KEPT_SECONDS
