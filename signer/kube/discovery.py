"""API discovery (Kubernetes API concepts, "API discovery").

An API server that has just started, or whose CustomResourceDefinitions are being installed, knows one version of a
group before the other. That a version is not served is concluded only from the document of the group, which lists all
versions at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from signer.kube.calls import Get
from signer.kube.errors import ResourceNotServed
from signer.kube.resources import Resource

MAXIMUM_VERSIONS: Final = 16
"""Of one API group, for :func:`served_kinds`; the others are not asked."""


async def served_versions(client: Get, group: str) -> frozenset[str]:
    """The versions of an API group.

    Raises:
        ResourceNotServed: the group is not served, or not yet.
        ApiError: the API server cannot be asked.
    """
    return _texts((await client.get(f"/apis/{group}")).get("versions"), "version")


async def served_plurals(client: Get, group: str, version: str) -> frozenset[str]:
    """The resources of one version of an API group by plural, including subresources such as ``machines/status``.

    Raises:
        ResourceNotServed: the version is not served, or not yet.
        ApiError: the API server cannot be asked.
    """
    return _texts((await client.get(f"/apis/{group}/{version}")).get("resources"), "name")


async def first_served(client: Get, *versions: Resource) -> Resource:
    """The first of several versions of one resource that is served. A group may also hold resources of other providers.

    Raises:
        ResourceNotServed: no version is served, or none yet.
        ApiError: the API server cannot be asked.
    """
    served = await served_versions(client, versions[0].group)
    for resource in versions:
        if resource.version in served and resource.plural in await served_plurals(
            client, resource.group, resource.version
        ):
            return resource
    raise ResourceNotServed(f"no version of {versions[0].plural} is served")


async def served_kinds(client: Get, group: str) -> Mapping[str, Resource]:
    """The namespaced resources of an API group by kind, each in the first version that has it: the preferred one first.

    Raises:
        ResourceNotServed: the group is not served, or not yet.
        ApiError: the API server cannot be asked.
    """
    found = await client.get(f"/apis/{group}")
    preferred = _texts([found.get("preferredVersion")], "version")
    versions = [*preferred, *sorted(_texts(found.get("versions"), "version") - preferred, reverse=True)]
    kinds: dict[str, Resource] = {}
    for version in versions[:MAXIMUM_VERSIONS]:
        entries = (await client.get(f"/apis/{group}/{version}")).get("resources")
        for entry in entries if isinstance(entries, list) else []:
            if isinstance(entry, Mapping) and entry.get("namespaced") is True:
                name, kind = str(entry.get("name")), str(entry.get("kind"))
                if "/" not in name:  # a subresource has its parent's kind
                    kinds.setdefault(kind, Resource(group, version, name, namespaced=True))
    return kinds


def _texts(entries: Any, key: str) -> frozenset[str]:
    """Values of ``key`` in ``APIGroup.versions`` or ``APIResourceList.resources``; malformed entries are left out."""
    found = entries if isinstance(entries, list) else []
    return frozenset(str(entry.get(key)) for entry in found if isinstance(entry, Mapping))
