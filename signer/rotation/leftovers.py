"""Which objects of a workload cluster hold a CA's certificate, and which others hold CAs of their own.

A rotation changes none of them: add-ons and people wrote them. Before a rotation they show what has to be changed in
time, and after it what was left. The workload cluster's word holds no step.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

from signer.kube.calls import List
from signer.kube.errors import ApiError
from signer.kube.resources import (
    API_SERVICES,
    CONFIG_MAPS,
    CUSTOM_RESOURCE_DEFINITIONS,
    MUTATING_WEBHOOKS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    Resource,
)
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, short_text_of, text_of

MOST_HOLDERS: Final = 1000
"""Objects that one scan keeps; the rest are counted."""
SEARCH_AGAIN: Final = timedelta(hours=1)
"""While something was found, or could not be read."""
_MAXIMUM_OBJECTS: Final = 20_000
_MAXIMUM_BYTES: Final = 64 * 1024 * 1024
"""Of each collection."""
_MOST_BUNDLES: Final = 1024
"""Webhooks that are read of one configuration."""
_PEM: Final = re.compile(
    rb"-----BEGIN CERTIFICATE-----((?:[A-Za-z0-9+/=\s]|\\n|\\r)*+)-----END CERTIFICATE-----", re.ASCII
)
r"""Also with the line breaks of a JSON string, ``\n``. The body has no ``-``, so that each byte is read once."""
_ENCODED_PEM: Final = re.compile(rb"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t[A-Za-z0-9+/=]*+", re.ASCII)
"""Base64 of PEM, as in the fields ``*-data`` of a kubeconfig."""
_LINE_BREAKS: Final = re.compile(rb"\\n|\\r|\s", re.ASCII)
_KUBE_ROOT_CA: Final = "kube-root-ca.crt"
_WRITTEN_BY_ROTATION: Final = frozenset(
    {("kube-public", "cluster-info"), ("kube-system", "extension-apiserver-authentication")}
)
"""ConfigMaps that a rotation changes itself, and proves."""


@dataclass(frozen=True, slots=True)
class Holder:
    """An object that holds CAs."""

    kind: str
    namespace: str
    """Empty for an object without namespace."""
    name: str
    holds_old: bool
    """Whether the CA in question is one of them."""

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Scan:
    """What one look over a workload cluster has found."""

    holders: tuple[Holder, ...]
    """Every webhook configuration, APIService and CustomResourceDefinition with a ``caBundle``. ConfigMaps and tokens
    of service accounts only with the CA in question."""
    more: int = 0
    """Holders beyond the first :data:`MOST_HOLDERS`."""
    unread: Mapping[str, str] = field(default_factory=dict)
    """Kinds that could not be read, or not to the end, and why."""

    @property
    def leftovers(self) -> tuple[Holder, ...]:
        """Those that hold the CA in question."""
        return tuple(one for one in self.holders if one.holds_old)


@dataclass(frozen=True, slots=True)
class NotSearched:
    """There was no scan yet."""


class LeftoverSearch:
    """Looks for the old CA after a rotation, until nothing holds it any more."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._digest = ""
        self._next = datetime.min.replace(tzinfo=UTC)
        self.last: Scan | NotSearched = NotSearched()

    async def look(self, client: List, digest: str) -> None:
        """Scan, if it is time."""
        if digest != self._digest:
            self._digest, self._next = digest, self._now()
        if self._now() < self._next:
            return
        scan = self.last = await scan_for(client, digest)
        is_done = not scan.leftovers and not scan.unread
        self._next = datetime.max.replace(tzinfo=UTC) if is_done else self._now() + SEARCH_AGAIN

    def forget(self) -> None:
        """Another rotation is under way, or none."""
        self._digest, self.last = "", NotSearched()


async def scan_for(client: List, digest: str) -> Scan:
    """Look for the certificate with that SHA-256 digest (hexadecimal, of its DER).

    What cannot be read is in :attr:`Scan.unread`.
    """
    found: list[Holder] = []
    more, unread = 0, {}
    for collection in _COLLECTIONS:
        try:
            async with contextlib.aclosing(_holders(client, collection, digest)) as holders:
                async for holder in holders:
                    if len(found) < MOST_HOLDERS:
                        found.append(holder)
                    else:
                        more += 1
        except ApiError as error:
            unread[collection.kind] = printable(str(error))
        except _TooMany as error:
            unread[collection.kind] = str(error)
    return Scan(tuple(sorted(found, key=lambda one: (one.kind, one.namespace, one.name))), more, unread)


def holds(text: bytes, digest: str) -> bool:
    """Whether a text holds that certificate: as DER, as PEM, also inside JSON, or as base64 of PEM."""
    if hashlib.sha256(text).hexdigest() == digest:
        return True
    if any(_digest(match[1]) == digest for match in _PEM.finditer(text)):
        return True
    encoded = (_decoded(match[0]) for match in _ENCODED_PEM.finditer(text))
    return any(_digest(match[1]) == digest for decoded in encoded for match in _PEM.finditer(decoded))


def _digest(body: bytes) -> str:
    """The digest of a PEM block's content; empty if it is no base64."""
    decoded = _decoded(_LINE_BREAKS.sub(b"", body))
    return hashlib.sha256(decoded).hexdigest() if decoded else ""


def _decoded(text: bytes | str) -> bytes:
    """Decoded base64; empty if it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):  # ValueError: a text that is not ASCII
        return b""


# Collections

Bundles: TypeAlias = Iterator[bytes]


@dataclass(frozen=True, slots=True)
class _Collection:
    resource: Resource
    kind: str
    read: Callable[[Mapping[str, Any]], Bundles]
    """The texts of an object that may hold certificates."""
    selector: str = ""
    """A field selector."""
    lists_all: bool = True
    """Whether objects count that hold other CAs."""


class _TooMany(Exception):
    """The collection has more objects than are read."""


async def _holders(client: List, collection: _Collection, digest: str) -> AsyncGenerator[Holder, None]:
    params = {"fieldSelector": collection.selector} if collection.selector else None
    pages = client.list_pages(collection.resource.collection(), params, maximum_bytes=_MAXIMUM_BYTES)
    count = 0
    async with contextlib.aclosing(pages):
        async for page in pages:
            for item in items_of(page, "items"):
                count += 1
                if isinstance(item, Mapping) and (bundles := [one for one in collection.read(item) if one]):
                    holds_old = any(holds(one, digest) for one in bundles)
                    if holds_old or collection.lists_all:
                        yield _holder(collection.kind, item, holds_old)
            if count > _MAXIMUM_OBJECTS:
                raise _TooMany(f"there are more than {_MAXIMUM_OBJECTS}, and the others were not read")


def _holder(kind: str, item: Mapping[str, Any], holds_old: bool) -> Holder:
    metadata = mapping_of(item, "metadata")
    namespace, name = (printable(short_text_of(metadata, key)) for key in ("namespace", "name"))
    return Holder(kind, namespace, name, holds_old)


def _of_webhooks(item: Mapping[str, Any]) -> Bundles:
    for one in items_of(item, "webhooks")[:_MOST_BUNDLES]:
        if isinstance(one, Mapping):
            yield _decoded(text_of(mapping_of(one, "clientConfig"), "caBundle"))


def _of_api_service(item: Mapping[str, Any]) -> Bundles:
    yield _decoded(text_of(mapping_of(item, "spec"), "caBundle"))


def _of_definition(item: Mapping[str, Any]) -> Bundles:
    webhook = mapping_of(mapping_of(mapping_of(item, "spec"), "conversion"), "webhook")
    yield _decoded(text_of(mapping_of(webhook, "clientConfig"), "caBundle"))


def _of_config_map(item: Mapping[str, Any]) -> Bundles:
    metadata = mapping_of(item, "metadata")
    place = text_of(metadata, "namespace"), text_of(metadata, "name")
    if place[1] == _KUBE_ROOT_CA or place in _WRITTEN_BY_ROTATION:
        return
    for value in mapping_of(item, "data").values():
        if isinstance(value, str):
            yield value.encode("utf-8", "surrogatepass")
    for value in mapping_of(item, "binaryData").values():
        if isinstance(value, str):
            yield _decoded(value)


def _of_token(item: Mapping[str, Any]) -> Bundles:
    yield _decoded(text_of(mapping_of(item, "data"), "ca.crt"))


_COLLECTIONS: Final = (
    _Collection(API_SERVICES, "APIService", _of_api_service),
    _Collection(MUTATING_WEBHOOKS, "MutatingWebhookConfiguration", _of_webhooks),
    _Collection(VALIDATING_WEBHOOKS, "ValidatingWebhookConfiguration", _of_webhooks),
    _Collection(CUSTOM_RESOURCE_DEFINITIONS, "CustomResourceDefinition", _of_definition),
    _Collection(CONFIG_MAPS, "ConfigMap", _of_config_map, lists_all=False),
    _Collection(SECRETS, "Secret", _of_token, "type=kubernetes.io/service-account-token", lists_all=False),
)
