"""Reads the caches of the management cluster as a command's user, and says what that user may not read."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

from signer.configuration import Configuration
from signer.explain.dry_run_client import DryRunClient
from signer.kube.calls import Get, GetList
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Forbidden
from signer.kube.resources import SECRETS
from signer.store.authentic_records import KeysUnavailable
from signer.store.caches import Caches
from signer.store.cluster_api import discover_cluster_api
from signer.store.controller_key import MISSING_KEY_REMEDY, SECRET_NAME


async def empty_caches(source: GetList, configuration: Configuration) -> Caches:
    """The caches that decisions need, for the Cluster API version that is served.

    Raises:
        ApiError: the API server does not say which version it serves.
    """
    return Caches(
        await discover_cluster_api(source),
        own_namespace=configuration.namespace,
        floors=configuration.floors,
        limits=configuration.namespace_limits,
        watch_namespace=configuration.watch_namespace,
    )


@dataclass(frozen=True, slots=True)
class ReadableCaches:
    """The caches with the controller key, as far as this user may read that."""

    caches: Caches
    unread: tuple[str, ...]
    """What this user may not read, and what is then not known, besides reservations, which only decisions need."""


async def readable_caches(source: GetList, configuration: Configuration) -> ReadableCaches:
    """Read what this user may read. Without the controller key no record is authentic, and the message says why.

    Raises:
        ApiError: another error than a refusal.
    """
    dry_run_client = DryRunClient(source)
    caches = await empty_caches(dry_run_client, configuration)
    refused = await caches.fill_readable(dry_run_client)
    unread = [name for name in refused if name != caches.reservations.name]
    await caches.controller_key.refresh(dry_run_client)
    _without_a_key(dry_run_client, caches, configuration)
    if await key_is_refused(source, caches, configuration.namespace):
        secret = f"Secret {configuration.namespace}/{SECRET_NAME}"
        unread.append(f"{secret}, so that the seals of AttestedNodes are not verified")
    if unread:
        caches.authentic.use_no_keys(KeysUnavailable("; ".join(unread)))
    return ReadableCaches(caches, tuple(unread))


async def verified_caches(source: GetList, configuration: Configuration) -> Caches:
    """The caches with the controller key. Without the key, no record is authentic, and the message says why.

    Raises:
        ApiError: a collection cannot be listed.
    """
    dry_run_client = DryRunClient(source)
    caches = await empty_caches(dry_run_client, configuration)
    await caches.fill(dry_run_client)
    await caches.controller_key.refresh(dry_run_client)
    _without_a_key(dry_run_client, caches, configuration)
    return caches


def _without_a_key(dry_run_client: DryRunClient, caches: Caches, configuration: Configuration) -> None:
    if dry_run_client.intended:  # the key is missing, and the controller would create it
        secret = f"Secret {configuration.namespace}/{SECRET_NAME}"
        caches.authentic.use_no_keys(KeysUnavailable(f"{secret} does not exist: {MISSING_KEY_REMEDY}"))


async def key_is_refused(source: Get, caches: Caches, namespace: str) -> bool:
    """Whether the controller key, which was not readable before, is refused to this user."""
    reads = NotingReads(source)
    if not caches.controller_key.readable:
        with contextlib.suppress(ApiError):
            await reads.get(SECRETS.object(SECRET_NAME, namespace))
    return reads.refused


class NotingReads:
    """Reads objects, and notes whether the API server refused one to the user."""

    def __init__(self, source: Get) -> None:
        self._source = source
        self._refused = False

    @property
    def refused(self) -> bool:
        """Whether a read was refused."""
        return self._refused

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        try:
            return await self._source.get(path)
        except Forbidden:
            self._refused = True
            raise
