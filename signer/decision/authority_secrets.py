"""Loads a cluster's CAs from their Secrets. An unchanged Secret is read, and not loaded again."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

from signer.authority import (
    CertificateAuthority,
    CertificateAuthorityUnavailable,
    IssuingSet,
    discovery_hashes,
    load_certificate_authority,
)
from signer.kube.calls import Get
from signer.kube.client import JsonObject
from signer.kube.errors import NotFound
from signer.kube.resources import SECRETS
from signer.model.authority_suffixes import (
    CLIENT_CA,
    CLUSTER_CA,
    AfterRotation,
    AuthorityChoice,
    AuthoritySuffixes,
    ByExistence,
    ExpectedSecret,
    Published,
    RotatingAuthorities,
    SeparateNodeClients,
)
from signer.model.cluster import CLUSTER_NAME_LABEL, ClusterKey
from signer.model.fields import mapping_of, text_of

LOADED_SECONDS: Final = 60.0
"""An unchanged Secret whose CA could not sign is loaded again after this time: the CA may be valid by now."""
ABSENT_SECONDS: Final = 600.0
"""Time for which Secret ``<cluster>-cca`` counts as absent while ``<cluster>-ca`` is unchanged."""


class AuthorityUnavailable(Exception):
    """No CA is available for signing now; ``reason`` is stable, and the message contains the remedy."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class AuthorityUnreachable(AuthorityUnavailable):
    """The Secrets could not be asked for: an outage of the management cluster, which ends. A refusal is none."""


class LoadAuthority(Protocol):
    """Creates a CA from a Secret's data, as :func:`~signer.authority.load_certificate_authority` does."""

    def __call__(self, secret_data: Mapping[str, bytes], *, now: datetime) -> CertificateAuthority:
        """See :func:`~signer.authority.load_certificate_authority`."""
        ...


Answer: TypeAlias = IssuingSet | AuthorityUnavailable


@dataclass(frozen=True, slots=True)
class _Loaded:
    """One Secret as it was last loaded."""

    resource_version: str
    answer: CertificateAuthority | AuthorityUnavailable
    loaded_at: float


@dataclass(frozen=True, slots=True)
class _Absent:
    """The Secret does not exist, or does not say that it is this Cluster's: suffix ``b-ca`` of Cluster ``a`` is ``ca``
    of ``a-b``.
    """

    answer: AuthorityUnavailable


class AuthoritySecrets:
    """The Secrets of one cluster's CAs."""

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
        self._cluster = cluster
        self._now = now
        self._monotonic = monotonic
        self._loaded: dict[str, _Loaded] = {}
        """By suffix."""
        self._client_absent_at = float("-inf")
        """When Secret ``<cluster>-cca`` was last found absent, for the current ``<cluster>-ca``."""
        self._answer: Answer | None = None
        self._published_before: tuple[str, frozenset[str]] = ("", frozenset())
        """Secret ``<cluster>-trust`` as it was last read: its version, and hashes."""

    async def read(self, choice: AuthorityChoice, *, not_before: float) -> Answer:
        """The CAs, from Secrets that are read now. The same object as before if nothing has changed.

        That Secret ``<cluster>-cca`` is absent may have been found earlier, at ``not_before`` (of the monotonic clock)
        at the earliest.

        Raises:
            ApiError: from the management cluster.
        """
        match choice:
            case RotatingAuthorities():
                answer = await self._rotating(choice)
            case SeparateNodeClients():
                answer = await self._separate(choice)
            case AfterRotation(before, retired, also_accepted, published):
                answer = await self._by_suffixes(before, not_before)
                retired |= await self._published(published)
                if isinstance(answer, IssuingSet):
                    answer = await self._accepting(replace(answer, retired=answer.retired | retired), also_accepted)
            case _:
                answer = await self._by_suffixes(choice, not_before)
        if self._answer is None or answer != self._answer:
            self._answer = answer
        return self._answer

    async def _by_suffixes(self, choice: AuthoritySuffixes | ByExistence, not_before: float) -> Answer:
        if isinstance(choice, ByExistence):
            serving = await self._secret(CLUSTER_CA)
            client = await self._existing_client_authority(serving, not_before)
        else:
            client = await self._secret(choice.client)
            serving = client if choice.serving == choice.client else await self._secret(choice.serving)
        return _issuing_set(client.answer, serving.answer)

    async def _rotating(self, choice: RotatingAuthorities) -> Answer:
        """The CAs by a rotation's record. A Secret with another CA than the record names gives nothing.

        A CA that is accepted, and whose Secret cannot be used, counts as retired: evidence that names it waits.
        """
        found = _issuing_set(await self._expected(choice.client), await self._expected(choice.serving))
        if isinstance(found, AuthorityUnavailable):
            return found
        return await self._accepting(replace(found, retired=found.retired | choice.retired), choice.also_accepted)

    async def _accepting(self, found: IssuingSet, secrets: tuple[ExpectedSecret, ...]) -> IssuingSet:
        accepted, waiting = [], set(found.retired)
        signing = {found.client.certificate.der, found.serving.certificate.der}
        for one in secrets:
            authority = await self._expected(one)
            if isinstance(authority, AuthorityUnavailable):
                waiting.add(one.public_key_hash)
            elif authority.certificate.der not in signing:
                accepted.append(authority)
        return replace(found, also_accepted=tuple(accepted), retired=frozenset(waiting))

    async def _separate(self, choice: SeparateNodeClients) -> Answer:
        """The cluster's CA and its node-client authority. Another CA in that Secret signs nothing, and neither does
        the cluster's in its place: the next look of the controller at its Secret decides that.
        """
        node_client, cluster = await self._expected(choice.client), (await self._secret(CLUSTER_CA)).answer
        if isinstance(node_client, AuthorityUnavailable):
            return node_client
        if isinstance(cluster, AuthorityUnavailable):
            return cluster
        found = IssuingSet.with_node_client(node_client, cluster)
        return replace(found, retired=found.retired | choice.retired | await self._published(choice.published))

    async def _published(self, published: Published) -> frozenset[str]:
        """Discovery hashes of the CAs that joining Machines are given. A tenant may write them: they only delay."""
        if published is Published.NOT_READ:
            return frozenset()
        try:
            secret = await self._client.get(SECRETS.object(f"{self._cluster.name}-trust", self._cluster.namespace))
            data = decode_secret(secret)
        except (NotFound, UnreadableSecret):
            return frozenset()
        version = text_of(mapping_of(secret, "metadata"), "resourceVersion")
        if not version or version != self._published_before[0]:
            text = data.get("server-ca.crt", b"")
            self._published_before = version, frozenset(await asyncio.to_thread(discovery_hashes, text))
        return self._published_before[1]

    async def _expected(self, secret: ExpectedSecret) -> CertificateAuthority | AuthorityUnavailable:
        answer = (await self._secret(secret.suffix)).answer
        if isinstance(answer, AuthorityUnavailable):
            return answer
        if hashlib.sha256(answer.certificate.der).hexdigest() != secret.digest:
            title = f"Secret {self._cluster.namespace}/{self._cluster.name}-{secret.suffix}"
            message = f"{title} holds another CA than the controller put there: restore it"
            return AuthorityUnavailable("ForeignAuthority", message)
        return answer

    async def _existing_client_authority(self, serving: _Loaded | _Absent, not_before: float) -> _Loaded | _Absent:
        """The CA of ``<cluster>-cca`` if that Secret exists, else ``serving``."""
        now = self._monotonic()
        if self._client_absent_at >= max(not_before, now - ABSENT_SECONDS):
            return serving
        client = await self._secret(CLIENT_CA)
        if isinstance(client, _Loaded):
            return client
        self._client_absent_at = now
        return serving

    async def _secret(self, suffix: str) -> _Loaded | _Absent:
        name = f"{self._cluster.name}-{suffix}"
        title = f"Secret {self._cluster.namespace}/{name}"
        before = self._loaded.get(suffix)
        try:
            secret = await self._client.get(SECRETS.object(name, self._cluster.namespace))
        except NotFound:
            self._loaded.pop(suffix, None)
            return _Absent(AuthorityUnavailable("CertificateAuthorityMissing", f"{title} does not exist"))
        metadata = mapping_of(secret, "metadata")
        owner = text_of(mapping_of(metadata, "labels"), CLUSTER_NAME_LABEL)
        if "-" in suffix and owner != self._cluster.name:  # the name alone may be that of another Cluster's Secret
            message = f"{title} has no label {CLUSTER_NAME_LABEL}: {self._cluster.name}; name a Secret of this Cluster"
            return _Absent(AuthorityUnavailable("CertificateAuthorityNotAllowed", message))
        version = text_of(metadata, "resourceVersion")
        if before is not None and version and version == before.resource_version and not self._may_change(before):
            return before
        if suffix == CLUSTER_CA:
            self._client_absent_at = float("-inf")
        # In a thread: the tenant's data takes CPU time to parse.
        answer = await asyncio.to_thread(self._load, secret, title)
        loaded = self._loaded[suffix] = _Loaded(version, answer, self._monotonic())
        return loaded

    def _may_change(self, loaded: _Loaded) -> bool:
        """Whether the unchanged Secret may give another result now: a CA that was not valid yet."""
        is_unavailable = isinstance(loaded.answer, AuthorityUnavailable)
        return is_unavailable and self._monotonic() - loaded.loaded_at > LOADED_SECONDS

    def _load(self, secret: JsonObject, title: str) -> CertificateAuthority | AuthorityUnavailable:
        try:
            return (self._load_authority or load_certificate_authority)(decode_secret(secret), now=self._now())
        except CertificateAuthorityUnavailable as error:
            return AuthorityUnavailable(str(error.reason), f"{title}: {error}")
        except UnreadableSecret as error:
            return AuthorityUnavailable("CertificateAuthorityInvalid", f"{title}: {error}")


def _issuing_set(
    client: CertificateAuthority | AuthorityUnavailable, serving: CertificateAuthority | AuthorityUnavailable
) -> Answer:
    if isinstance(client, AuthorityUnavailable):
        return client
    if isinstance(serving, AuthorityUnavailable):
        return serving
    return IssuingSet.by_purpose(client, serving)


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
