"""API discovery (Kubernetes API concepts, "API discovery").

An API server that has just started, or whose CustomResourceDefinitions are being installed, knows one version of a
group before the other. That a version is not served is concluded only from the document of the group, which lists all
versions at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from signer.kube.calls import Get


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


def _texts(entries: Any, key: str) -> frozenset[str]:
    """Values of ``key`` in ``APIGroup.versions`` or ``APIResourceList.resources``; malformed entries are left out."""
    found = entries if isinstance(entries, list) else []
    return frozenset(str(entry.get(key)) for entry in found if isinstance(entry, Mapping))
