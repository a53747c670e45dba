"""What the running servers of a control plane were started with, by their mirror pods in the workload cluster.

The kubelet publishes each static pod as a mirror pod ``<program>-<node name>`` (Kubernetes ``pkg/kubelet/pod``).
Whoever administers the workload cluster can write such pods. So what they say is a claim: it can delay a step, and
never proves one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from signer.kube.calls import Get
from signer.kube.errors import NotFound
from signer.kube.resources import PODS
from signer.model.fields import MAXIMUM_NAME_CHARACTERS, items_of, mapping_of, parse_time, short_text_of, text_of
from signer.rotation.control_plane.readiness import RequiredArgument, required_flags
from signer.rotation.control_plane.template import Component, flag_name
from signer.rotation.phases import SigningPairs

NAMESPACE: Final = "kube-system"
PROGRAMS: Final[Mapping[Component, str]] = {
    Component.API_SERVER: "kube-apiserver",
    Component.CONTROLLER_MANAGER: "kube-controller-manager",
}
"""The programs that kubeadm runs as static pods and that read a CA."""

_MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"
_MOST_CONTAINERS: Final = 16
_MOST_WORDS: Final = 256
_MAXIMUM_WORD_CHARACTERS: Final = 4096


@dataclass(frozen=True, slots=True)
class RunningServer:
    """One program on one node, as the workload cluster claims."""

    component: Component
    node_name: str
    flags: Mapping[str, str]
    """Value by name; of a flag that is given several times, the last, as Kubernetes' programs read it."""
    started: datetime
    """Start of the running container, by the node's clock."""

    def lacks(self, signing: SigningPairs) -> tuple[RequiredArgument, ...]:
        """The flags that a rotation requires and that it was not started with."""
        return tuple(one for one in required_flags(self.component, signing) if self.flags.get(one.name) != one.value)


@dataclass(frozen=True, slots=True)
class NotShown:
    """The workload cluster does not show that program as running on that node."""

    component: Component
    node_name: str
    why: str


ServerClaim: TypeAlias = RunningServer | NotShown


async def read_server(client: Get, component: Component, node_name: str) -> ServerClaim:
    """Read one mirror pod. ``component`` is one of :data:`PROGRAMS`, ``node_name`` from a Machine's ``nodeRef``.

    Raises:
        ApiError: the workload cluster cannot be asked.
    """
    name = f"{PROGRAMS[component]}-{node_name}"
    try:
        return running_server(await client.get(PODS.object(name, NAMESPACE)), component, node_name)
    except ValueError:  # of the path
        return NotShown(component, node_name, "no pod can have the name of its mirror pod")
    except NotFound:
        return NotShown(component, node_name, "its mirror pod does not exist")


def running_server(pod: Mapping[str, Any], component: Component, node_name: str) -> ServerClaim:
    """Read a mirror pod, whatever it holds."""
    metadata, spec = mapping_of(pod, "metadata"), mapping_of(pod, "spec")
    if _MIRROR_ANNOTATION not in mapping_of(metadata, "annotations"):
        return NotShown(component, node_name, "the pod is no mirror pod")
    if short_text_of(spec, "nodeName") != node_name:
        return NotShown(component, node_name, "the pod is on another node")
    container = _named(items_of(spec, "containers"), PROGRAMS[component])
    status = _named(items_of(mapping_of(pod, "status"), "containerStatuses"), PROGRAMS[component])
    try:
        started = parse_time(text_of(mapping_of(mapping_of(status, "state"), "running"), "startedAt"))
    except ValueError:
        return NotShown(component, node_name, "its container is not running")
    words = (*items_of(container, "command"), *items_of(container, "args"))
    if len(words) > _MOST_WORDS:
        return NotShown(component, node_name, f"its command has more than {_MOST_WORDS} words")
    return RunningServer(component, node_name, dict(_flags(words)), started)


def _named(entries: list[Any], name: str) -> Mapping[str, Any]:
    for entry in entries[:_MOST_CONTAINERS]:
        if isinstance(entry, Mapping) and short_text_of(entry, "name", MAXIMUM_NAME_CHARACTERS) == name:
            return entry
    return {}


def _flags(words: tuple[Any, ...]) -> Iterator[tuple[str, str]]:
    """The flags that are written ``--name=value``, as kubeadm writes them."""
    for word in words:
        if isinstance(word, str) and len(word) <= _MAXIMUM_WORD_CHARACTERS and word.startswith("--"):
            name, _, value = word.removeprefix("--").partition("=")
            yield flag_name(name), value
