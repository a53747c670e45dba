"""Adds a tools container to a pod in a person's name, and waits until it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from signer.gateway.resolver import NotResolved, RunningContainer
from signer.gateway.tools_container import (
    Missing,
    NoToolsContainer,
    Runs,
    require_ours,
    tools_state,
)
from signer.kube.calls import Query, QueryTypedPatch
from signer.kube.errors import ApiError, Conflict, NotFound
from signer.kube.resources import PODS
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.tools_image import NamedToolsImage, NoToolsImage

START_SECONDS: Final = 90.0
"""For pulling the image, too. A busy kubelet may take most of a minute before it begins."""
POLL_SECONDS: Final = 0.5
SWITCHED_OFF: Final = "the operator can name an image for this (access.toolsImage of the controller's configuration)"
_TOO_OLD: Final = (
    "the workload cluster adds no ephemeral containers to pods: its API server must be Kubernetes 1.25 or newer"
)
_STRATEGIC: Final = "application/strategic-merge-patch+json"
"""Adds to the list of containers by name (``patchMergeKey``)."""


async def tools_container(
    api: QueryTypedPatch, target: RunningContainer, grant_uid: str, tools: NamedToolsImage
) -> RunningContainer:
    """The grant's tools container beside ``target``: the one that runs, else a new one.

    Raises:
        NotResolved: there is none; the message says why, and what to do.
        ApiError: the workload cluster does not answer.
    """
    if isinstance(tools, NoToolsImage):
        raise NotResolved(SWITCHED_OFF)
    path = PODS.object(target.pod, target.namespace)
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:
                pod = await api.get(path)
                if text_of(mapping_of(pod, "metadata"), "uid") != target.uid:
                    raise NotResolved(f"pod {target.pod} was replaced; connect again")
                match tools_state(pod, target.container, grant_uid, tools):
                    case Runs(name):
                        return replace(target, container=name)
                    case Missing(container):
                        await _add(api, target, container)
                await asyncio.sleep(POLL_SECONDS)
    except NoToolsContainer as error:
        raise NotResolved(error.message) from None
    except TimeoutError:
        raise NotResolved("the tools container has not started yet; try again in a minute") from None


async def running_tools_container(
    api: Query, target: RunningContainer, grant_uid: str, tools: NamedToolsImage
) -> RunningContainer:
    """The grant's tools container beside ``target``, if it runs.

    Raises:
        NotResolved: it does not.
        ApiError: the workload cluster does not answer.
    """
    if isinstance(tools, NoToolsImage):
        raise NotResolved(SWITCHED_OFF)
    pod = await api.get(PODS.object(target.pod, target.namespace))
    try:
        state = tools_state(pod, target.container, grant_uid, tools)
    except NoToolsContainer as error:
        raise NotResolved(error.message) from None
    if not isinstance(state, Runs) or text_of(mapping_of(pod, "metadata"), "uid") != target.uid:
        raise NotResolved("no tools container of the grant runs in the pod")
    return replace(target, container=state.name)


async def _add(api: QueryTypedPatch, target: RunningContainer, container: Mapping[str, Any]) -> None:
    """With the pod's UID, so that no other pod of the name gets it."""
    patch = {"metadata": {"uid": target.uid}, "spec": {"ephemeralContainers": [dict(container)]}}
    try:
        answer = await api.patch(PODS.object(target.pod, target.namespace, "ephemeralcontainers"), patch, _STRATEGIC)
    except NotFound:
        raise NotResolved(_TOO_OLD) from None
    except Conflict:
        return  # the next look shows what is there now
    except ApiError as error:
        raise NotResolved(f"cannot add a tools container to pod {target.pod}: {printable(str(error))}") from None
    stated = items_of(mapping_of(answer, "spec"), "ephemeralContainers")
    found = [one for one in stated if isinstance(one, Mapping) and one.get("name") == container["name"]]
    if not found:
        raise NotResolved(_TOO_OLD)
    require_ours(found[0], container)


__all__ = ["POLL_SECONDS", "START_SECONDS", "SWITCHED_OFF", "running_tools_container", "tools_container"]
