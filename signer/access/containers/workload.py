"""Keeps the objects in the workload cluster, and takes them away."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from signer.access.containers.objects import (
    NAMESPACE,
    NAMESPACE_BODY,
    SERVICE_ACCOUNT,
    WANTED,
    wanted_objects,
)
from signer.kube.calls import Delete, GetCreateReplace
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, NotFound, UnexpectedAnswer
from signer.kube.resources import NAMESPACES
from signer.kube.wanted_object import OWNER, OWNER_LABEL, WantedObject, uid_of
from signer.model.access.reader import MAXIMUM_UID_CHARACTERS
from signer.model.fields import mapping_of, short_text_of
from signer.model.tools_image import NamedToolsImage


class WorkloadCalls(GetCreateReplace, Delete, Protocol):
    """The calls to the workload cluster."""


class ForeignObject(Exception):
    """An object with a name of ours is somebody else's; the message names it, and the remedy."""


async def ensure_objects(client: WorkloadCalls, creators: Sequence[str], tools: NamedToolsImage) -> str:
    """Make what is missing, and put back what somebody changed. The gateway may act as ``creators`` and nobody else.
    They may add containers only with ``tools``. Returns the UID of the ServiceAccount: tokens are for that one, and not
    for a later one of its name.

    Raises:
        ForeignObject: an object of that name has not the controller's label. It stays as it is.
        ApiError: from the workload cluster; Conflict if somebody changed an object meanwhile.
    """
    with contextlib.suppress(AlreadyExists):
        await _make_namespace(client)
    account: Mapping[str, Any] = {}
    for wanted in wanted_objects(creators, tools):
        found = await _ensure(client, wanted)
        if wanted is SERVICE_ACCOUNT:
            account = found
    uid = short_text_of(mapping_of(account, "metadata"), "uid", MAXIMUM_UID_CHARACTERS)
    if not uid:
        raise UnexpectedAnswer(f"{SERVICE_ACCOUNT.title} has no UID", status=200)
    return uid


async def remove_objects(client: WorkloadCalls) -> bool:
    """Remove what the controller made, but for the Namespace, in which there may be more by now. Returns whether
    anything was there.

    Raises:
        ApiError: from the workload cluster.
    """
    removed = False
    for wanted in reversed(WANTED):
        try:
            found = await client.get(wanted.path)
            if wanted.is_ours(found):
                removed = True
                await client.delete(wanted.path, uid=uid_of(found))
        except NotFound:
            continue
    return removed


async def _make_namespace(client: WorkloadCalls) -> None:
    try:
        await client.get(NAMESPACES.object(NAMESPACE))
    except NotFound:
        await client.create(NAMESPACES.collection(), NAMESPACE_BODY)


async def _ensure(client: WorkloadCalls, wanted: WantedObject) -> JsonObject:
    try:
        found = await client.get(wanted.path)
    except NotFound:
        return await client.create(wanted.collection, wanted.body)
    if not wanted.is_ours(found):
        raise ForeignObject(
            f"{wanted.title} of the workload cluster has no label {OWNER_LABEL}: {OWNER}, so the controller does not "
            "change it; delete it"
        )
    if wanted.is_as_wanted(found):
        return found
    if wanted.needs_new_object(found):
        await client.delete(wanted.path, uid=uid_of(found))
        return await client.create(wanted.collection, wanted.body)
    return await client.replace(wanted.path, wanted.replacement(found))


__all__ = ["ForeignObject", "WorkloadCalls", "ensure_objects", "remove_objects"]
