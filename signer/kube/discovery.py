"""What an API server serves (Kubernetes API concepts, "API discovery").

An API server that has just started, or whose CustomResourceDefinitions are being installed, knows one version of a
group before the other. That a version is not served is believed of one document only: the group's, which names all of
them at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from signer.kube.calls import Get


async def served_versions(client: Get, group: str) -> frozenset[str]:
    """The versions of an API group.

    Raises:
        ResourceNotServed: there is no such group, or not yet.
        ApiError: it cannot be asked.
    """
    return _texts((await client.get(f"/apis/{group}")).get("versions"), "version")


async def served_plurals(client: Get, group: str, version: str) -> frozenset[str]:
    """The resources of a version of an API group, by their plurals; with subresources, as ``machines/status``.

    Raises:
        ResourceNotServed: there is no such version, or not yet.
        ApiError: it cannot be asked.
    """
    return _texts((await client.get(f"/apis/{group}/{version}")).get("resources"), "name")


def _texts(entries: Any, key: str) -> frozenset[str]:
    """``APIGroup.versions`` or ``APIResourceList.resources``; what is no entry counts as none."""
    found = entries if isinstance(entries, list) else []
    return frozenset(str(entry.get(key)) for entry in found if isinstance(entry, Mapping))
