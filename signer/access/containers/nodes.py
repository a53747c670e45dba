"""On which node a Pod runs, as its workload cluster says.

That cluster may lie: the answer is a hint for people, who then connect to an attested node with that name, which proves
itself by its host certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from attestors.wire.ssh.container_names import Container, Pod
from signer.kube.calls import Get
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError
from signer.kube.resources import PODS
from signer.model.addresses import is_subdomain
from signer.model.cluster import ClusterKey
from signer.model.fields import mapping_of, short_text_of

ANSWER_SECONDS: Final = 2.0
"""A grant waits so long for the hint, and no longer."""
PAUSE_SECONDS: Final = 60.0
"""An API server that did not answer is not asked again for so long: the grants of other Clusters wait meanwhile."""


@dataclass(frozen=True, slots=True)
class RunsOn:
    """The workload cluster says that the Pod runs on the node of that name."""

    node: str


@dataclass(frozen=True, slots=True)
class NotKnown:
    """Nothing is known: the Pod does not run, or nobody could be asked."""


NodeHint: TypeAlias = RunsOn | NotKnown


class NodeHints(Protocol):
    """What a grant's status is made with."""

    async def of(self, cluster: ClusterKey, container: Container) -> NodeHint:
        """The node of the container's Pod. It never raises for a fault of the workload cluster."""
        ...


class ContainerNodes:
    """Implements :class:`NodeHints` by the connections to the workload clusters."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._clients: dict[ClusterKey, Get] = {}
        self._silent_until: dict[ClusterKey, float] = {}

    @contextlib.contextmanager
    def connected(self, cluster: ClusterKey, client: Get) -> Iterator[None]:
        """The workload cluster can be asked until the block ends."""
        self._clients[cluster] = client
        self._silent_until.pop(cluster, None)
        try:
            yield
        finally:
            if self._clients.get(cluster) is client:
                del self._clients[cluster]

    async def of(self, cluster: ClusterKey, container: Container) -> NodeHint:
        """See NodeHints. Of a workload, any Pod may be meant, and nodes open Pods by their own names alone."""
        client = self._clients.get(cluster)
        if client is None or not isinstance(container.of, Pod):
            return NotKnown()
        if self._monotonic() < self._silent_until.get(cluster, 0.0):
            return NotKnown()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await client.get(PODS.object(container.of.name, container.namespace))
        except TimeoutError:
            self._silent_until[cluster] = self._monotonic() + PAUSE_SECONDS
            return NotKnown()
        except ApiError:
            return NotKnown()
        return hint_of(found)


def hint_of(pod: JsonObject) -> NodeHint:
    """What a Pod says. Pure."""
    name = short_text_of(mapping_of(pod, "spec"), "nodeName")
    return RunsOn(name) if is_subdomain(name) else NotKnown()


__all__ = [
    "ANSWER_SECONDS",
    "PAUSE_SECONDS",
    "ContainerNodes",
    "NodeHint",
    "NodeHints",
    "NotKnown",
    "RunsOn",
    "hint_of",
]
