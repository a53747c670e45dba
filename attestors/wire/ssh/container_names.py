"""Names of containers as SSH has them: user names at the gateway and on nodes, and principals of certificates.

``NAMESPACE_POD_CONTAINER``            one container; without ``_CONTAINER``, the pod's only one
``NAMESPACE_deploy.NAME_CONTAINER``    a pod of the Deployment; also ``sts.`` (StatefulSet), ``ds.``, ``job.``
``NAMESPACE_deploy.NAME.N_CONTAINER``  the pod with that number

No name in Kubernetes has an underscore. A pod whose own name begins like a workload's has ``pod.`` before it. A number
behind the last dot is the pod's number; a workload whose name ends so is addressed with one more.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from attestors.wire.ssh.errors import SSHReason, SSHRefused
from attestors.wire.ssh.principals import MAXIMUM_PRINCIPAL_CHARACTERS, PlainPrincipal

_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
"""RFC 1123: namespaces and containers."""
_SUBDOMAIN: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*")
"""RFC 1123: pods and workloads."""
_MAXIMUM_SUBDOMAIN: Final = 253
_NUMBERED: Final = re.compile(r"(?P<name>.+)\.(?P<number>0|[1-9][0-9]{0,4})")
_POD: Final = "pod"
_FORM: Final = "name a container as NAMESPACE_POD_CONTAINER or NAMESPACE_deploy.NAME_CONTAINER (also sts., ds., job.)"


class WorkloadKind(enum.Enum):
    """Kinds whose pods may be named together."""

    DAEMON_SET = "DaemonSet"
    DEPLOYMENT = "Deployment"
    JOB = "Job"
    STATEFUL_SET = "StatefulSet"

    @property
    def short_name(self) -> str:
        """As kubectl abbreviates the kind."""
        return _SHORT_NAMES[self]


_SHORT_NAMES: Final = {
    WorkloadKind.DAEMON_SET: "ds",
    WorkloadKind.DEPLOYMENT: "deploy",
    WorkloadKind.JOB: "job",
    WorkloadKind.STATEFUL_SET: "sts",
}
_KINDS: Final = {short: kind for kind, short in _SHORT_NAMES.items()}


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod of that name.

    Raises:
        SSHRefused: ``PrincipalInvalid``.
    """

    name: str

    def __post_init__(self) -> None:
        _require_subdomain(self.name, "pod")

    def __str__(self) -> str:
        first, dot, _ = self.name.partition(".")
        return f"{_POD}.{self.name}" if dot and (first in _KINDS or first == _POD) else self.name


@dataclass(frozen=True, slots=True)
class Workload:
    """Any pod of that workload.

    Raises:
        SSHRefused: ``PrincipalInvalid``.
    """

    kind: WorkloadKind
    name: str

    def __post_init__(self) -> None:
        _require_subdomain(self.name, self.kind.value)

    def __str__(self) -> str:
        return f"{self.kind.short_name}.{self.name}"


@dataclass(frozen=True, slots=True)
class Container:
    """What a grant opens: one container of a pod, or of each pod of a workload.

    Raises:
        SSHRefused: ``PrincipalInvalid``.
    """

    namespace: str
    of: Pod | Workload
    container: str

    def __post_init__(self) -> None:
        _require_label(self.namespace, "namespace")
        _require_label(self.container, "container")

    def __str__(self) -> str:
        return f"{self.namespace}_{self.of}_{self.container}"

    @property
    def principal(self) -> PlainPrincipal:
        """The name in certificates.

        Raises:
            SSHRefused: ``PrincipalInvalid``: it is longer than OpenSSH's user names here.
        """
        return PlainPrincipal(str(self))


@dataclass(frozen=True, slots=True)
class Numbered:
    """The pod of a workload with that number: the ordinal of a StatefulSet's; else by age, then by name."""

    workload: Workload
    number: int


@dataclass(frozen=True, slots=True)
class OnlyContainer:
    """The pod has one, which need not be named."""


Addressed: TypeAlias = Pod | Workload | Numbered


@dataclass(frozen=True, slots=True)
class ContainerAddress:
    """The user name of a login."""

    namespace: str
    of: Addressed
    container: str | OnlyContainer


def parse_container_address(user: str) -> ContainerAddress:
    """Parse the user name of a login.

    Raises:
        SSHRefused: ``PrincipalInvalid``.
    """
    namespace, of, container = _parts(user)
    named = _numbered(of)
    return ContainerAddress(namespace, named, container or OnlyContainer())


def parse_container_principal(principal: str) -> Container:
    """Parse the principal of a certificate: it has a container, and no number.

    Raises:
        SSHRefused: ``PrincipalInvalid``.
    """
    namespace, of, container = _parts(principal)
    if not container:
        raise _invalid("the container is missing")
    found = Container(namespace, _named(of), container)
    if str(found) != principal:
        raise _invalid(f"write it as {found}")
    return found


def _parts(text: str) -> tuple[str, str, str]:
    if len(text) > MAXIMUM_PRINCIPAL_CHARACTERS:
        raise _invalid(f"the name is longer than {MAXIMUM_PRINCIPAL_CHARACTERS} characters")
    parts = text.split("_", 3)
    if len(parts) not in (2, 3):
        raise _invalid("there are not two or three names")
    namespace, of, container = parts[0], parts[1], parts[2] if len(parts) == 3 else ""
    _require_label(namespace, "namespace")
    if len(parts) == 3:
        _require_label(container, "container")
    return namespace, of, container


def _named(of: str) -> Pod | Workload:
    prefix, dot, name = of.partition(".")
    if dot and prefix in _KINDS:
        return Workload(_KINDS[prefix], name)
    return Pod(name) if dot and prefix == _POD else Pod(of)


def _numbered(of: str) -> Addressed:
    named = _named(of)
    if isinstance(named, Pod):
        return named
    found = _NUMBERED.fullmatch(named.name)
    return named if found is None else Numbered(Workload(named.kind, found["name"]), int(found["number"]))


def _require_label(text: str, what: str) -> None:
    if _LABEL.fullmatch(text) is None:
        raise _invalid(f"the {what} has not the form of one")


def _require_subdomain(text: str, what: str) -> None:
    if len(text) > _MAXIMUM_SUBDOMAIN or _SUBDOMAIN.fullmatch(text) is None:
        raise _invalid(f"the {what} has not the form of one")


def _invalid(why: str) -> SSHRefused:
    return SSHRefused(SSHReason.PRINCIPAL_INVALID, f"{why}: {_FORM}")


__all__ = [
    "Addressed",
    "Container",
    "ContainerAddress",
    "Numbered",
    "OnlyContainer",
    "Pod",
    "Workload",
    "WorkloadKind",
    "parse_container_address",
    "parse_container_principal",
]
