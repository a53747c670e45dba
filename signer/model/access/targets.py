"""What a grant opens: nodes, every node, or one container."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from attestors.wire.ssh.container_names import Container, Pod, Workload, WorkloadKind
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.principals import PlainPrincipal
from signer.model.access.reader import Reader, subdomain

MAXIMUM_NODES: Final = 16
MAXIMUM_LOGINS: Final = 8
MAXIMUM_LOGIN: Final = 63
DEFAULT_LOGINS: Final = ("root",)
CONTAINER_LOGIN: Final = "container"
"""The name of the virtual resource ``logins`` for container targets. No login on a node has it."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """Those nodes."""

    names: tuple[str, ...]
    """Sorted, each once, 1 to ``MAXIMUM_NODES``."""


@dataclass(frozen=True, slots=True)
class AllNodes:
    """Every node of the cluster, also later ones."""


NodeTarget: TypeAlias = Nodes | AllNodes
GrantTarget: TypeAlias = Nodes | AllNodes | Container


def read_target(spec: Reader) -> GrantTarget:
    """``spec.target``: exactly one of its fields."""
    target = spec.object("target").knows("nodes", "allNodes", "container")
    if sum(target.has(name) for name in ("nodes", "allNodes", "container")) != 1:
        raise spec.invalid("target", "must have exactly one of nodes, allNodes and container")
    if target.has("nodes"):
        return Nodes(tuple(sorted(target.each("nodes", 1, MAXIMUM_NODES, subdomain))))
    if target.has("allNodes"):
        target.object("allNodes").knows()
        return AllNodes()
    container = target.object("container").knows("namespace", "pod", "workload", "container")
    if container.has("pod") == container.has("workload"):
        raise target.invalid("container", "must have exactly one of pod and workload")
    of = Pod(container.subdomain("pod")) if container.has("pod") else _workload(container)
    return Container(container.label("namespace"), of, container.label("container"))


def _workload(container: Reader) -> Workload:
    workload = container.object("workload").knows("kind", "name")
    return Workload(workload.read("kind", _workload_kind), workload.subdomain("name"))


def _workload_kind(value: Any) -> WorkloadKind:
    try:
        return WorkloadKind(value)
    except ValueError:
        raise ValueError("must be DaemonSet, Deployment, Job or StatefulSet") from None


def read_logins(spec: Reader, target: GrantTarget) -> tuple[str, ...]:
    """``spec.logins``: sorted; those of nodes by default ``root``, and none of a container."""
    if isinstance(target, Container):
        return spec.each("logins", 0, 0, _login)
    if spec.fields.get("logins") is None:
        return DEFAULT_LOGINS
    return tuple(sorted(spec.each("logins", 1, MAXIMUM_LOGINS, _login)))


def rights_needed(target: GrantTarget, logins: tuple[str, ...]) -> tuple[str, ...]:
    """The names of the virtual resource ``logins`` on which the creator needs a right."""
    return (CONTAINER_LOGIN,) if isinstance(target, Container) else logins


def _login(value: Any) -> str:
    form = f"must be a login of at most {MAXIMUM_LOGIN} lower-case letters, digits, '.', '_' and '-'"
    if not isinstance(value, str) or len(value) > MAXIMUM_LOGIN:
        raise ValueError(form)
    try:
        PlainPrincipal(value)
    except SSHRefused:
        raise ValueError(form) from None
    if value == CONTAINER_LOGIN:
        raise ValueError(f"must not be {CONTAINER_LOGIN}: that is the right to containers")
    return value
