"""Section ``access``: which policies may allow access grants, and what no policy may go beyond."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from signer.configuration.document import (
    ALL_NAMESPACES,
    InvalidConfiguration,
    object_of,
    read_namespaces,
    require_namespace,
    unknown_fields,
)
from signer.configuration.gateway import GatewayNotNamed, NamedGateway, read_gateway
from signer.model.access_policy import MAXIMUM_APPROVALS, MAXIMUM_LIFETIME, MINIMUM_LIFETIME, PROVIDER
from signer.model.durations import parse_duration
from signer.model.object_names import NAMESPACE, NAMESPACE_FORM
from signer.model.tools_image import InvalidToolsImage, NamedToolsImage, NoToolsImage, ToolsImage

_ACCESS_FIELDS: Final = frozenset(
    {
        "namespaces",
        "creatorVerification",
        "minimumApprovals",
        "minimumApprovalsByNamespace",
        "maximumLifetime",
        "bastions",
        "bastionsByNamespace",
        "gateway",
        "gatewayNamespace",
        "toolsImage",
    }
)
DEFAULT_GATEWAY_NAMESPACE: Final = "node-access-gateway"


class CreatorVerification(enum.Enum):
    """Whether a grant counts although the API server does not prove who made it."""

    REQUIRED = "Required"
    UNVERIFIED = "Unverified"
    """Whoever may create grants can create them in any name. For trials."""


@dataclass(frozen=True, slots=True)
class ContainersSwitchedOff:
    """The controller gives no gateway a way into workload clusters."""


@dataclass(frozen=True, slots=True)
class ContainersSwitchedOn:
    """The controller gives the gateway a way into each workload cluster whose policy allows grants."""


@dataclass(frozen=True, slots=True)
class AccessPermission:
    """The controller serves AccessGrants of Clusters whose policy allows them."""

    namespaces: frozenset[str] = frozenset()
    """Namespaces whose policies may allow grants; ``*`` for all. None unless the operator names them."""
    creator_verification: CreatorVerification = CreatorVerification.REQUIRED
    minimum_approvals: int = 0
    """At least as many approvals are needed, whatever the policy says."""
    minimum_approvals_by_namespace: Mapping[str, int] = field(default_factory=dict)
    maximum_lifetime: timedelta = MAXIMUM_LIFETIME
    """No grant lives longer, whatever the policy says."""
    bastions: frozenset[str] = frozenset()
    """Bastion providers that policies and grants may name. Grants without a bastion are always allowed."""
    bastions_by_namespace: Mapping[str, frozenset[str]] = field(default_factory=dict)
    gateway_namespace: str = DEFAULT_GATEWAY_NAMESPACE
    """Namespace of the gateway to containers, in the management cluster. Not a tenant's."""
    containers: ContainersSwitchedOn | ContainersSwitchedOff = ContainersSwitchedOff()
    gateway: NamedGateway = field(default_factory=GatewayNotNamed)
    """What grants for containers say about the gateway."""
    tools: NamedToolsImage = field(default_factory=NoToolsImage)
    """What the gateway may add to pods. Such a container stays in the Pod's spec until the Pod is gone."""

    def allows(self, namespace: str) -> bool:
        """Whether policies in that namespace may allow grants."""
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces

    def approvals_in(self, namespace: str) -> int:
        """The approvals that a grant in that namespace needs at least."""
        return self.minimum_approvals_by_namespace.get(namespace, self.minimum_approvals)

    def bastions_in(self, namespace: str) -> frozenset[str]:
        """The bastion providers for that namespace."""
        return self.bastions_by_namespace.get(namespace, self.bastions)


@dataclass(frozen=True, slots=True)
class AccessSwitchedOff:
    """The controller serves no AccessGrants."""


def read_access(path: str, entry: Any) -> AccessPermission:
    """Which policies may allow grants, none unless their namespaces are named, and what no policy may go beyond.

    Raises:
        InvalidConfiguration: a field is invalid.
    """
    stated = object_of(path, entry)
    for unknown in unknown_fields(stated, _ACCESS_FIELDS):
        raise InvalidConfiguration(
            f"--config: {path} has the fields {', '.join(sorted(_ACCESS_FIELDS))}, and not {unknown}"
        )
    try:
        verification = CreatorVerification(stated.get("creatorVerification", CreatorVerification.REQUIRED.value))
    except ValueError:
        raise InvalidConfiguration(f"--config: {path}.creatorVerification must be Required or Unverified") from None
    approvals = f"{path}.minimumApprovalsByNamespace"
    bastions = f"{path}.bastionsByNamespace"
    approvals_by_namespace = object_of(approvals, stated.get("minimumApprovalsByNamespace"))
    bastions_by_namespace = object_of(bastions, stated.get("bastionsByNamespace"))
    for namespace in approvals_by_namespace:
        require_namespace(approvals, namespace, "; those of all others belong in minimumApprovals")
    for namespace in bastions_by_namespace:
        require_namespace(bastions, namespace, "; those of all others belong in bastions")
    return AccessPermission(
        read_namespaces(f"{path}.namespaces", stated.get("namespaces") or []),
        verification,
        _approvals(f"{path}.minimumApprovals", stated.get("minimumApprovals", 0)),
        {namespace: _approvals(f"{approvals}.{namespace}", of) for namespace, of in approvals_by_namespace.items()},
        _maximum_lifetime(f"{path}.maximumLifetime", stated.get("maximumLifetime")),
        _bastions(f"{path}.bastions", stated.get("bastions") or []),
        {namespace: _bastions(f"{bastions}.{namespace}", of) for namespace, of in bastions_by_namespace.items()},
        _gateway_namespace(f"{path}.gatewayNamespace", stated.get("gatewayNamespace", DEFAULT_GATEWAY_NAMESPACE)),
        gateway=read_gateway(f"{path}.gateway", stated.get("gateway")),
        tools=_tools(f"{path}.toolsImage", stated.get("toolsImage", "")),
    )


def _gateway_namespace(path: str, value: Any) -> str:
    if not isinstance(value, str) or NAMESPACE.fullmatch(value) is None:
        raise InvalidConfiguration(f"--config: {path} must be a namespace: {NAMESPACE_FORM}")
    return value


def _tools(path: str, value: Any) -> NamedToolsImage:
    """An empty text names no image."""
    if value == "":
        return NoToolsImage()
    try:
        return ToolsImage(value if isinstance(value, str) else "")
    except InvalidToolsImage as error:
        raise InvalidConfiguration(f"--config: {path} {error}") from None


def _approvals(path: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= MAXIMUM_APPROVALS:
        raise InvalidConfiguration(f"--config: {path} must be a whole number from 0 to {MAXIMUM_APPROVALS}")
    return value


def _maximum_lifetime(path: str, value: Any) -> timedelta:
    if value is None:
        return MAXIMUM_LIFETIME
    try:
        lifetime = parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise InvalidConfiguration(f"--config: {path}: {error}") from error
    if not MINIMUM_LIFETIME <= lifetime <= MAXIMUM_LIFETIME:
        raise InvalidConfiguration(f"--config: {path} must be between 1m and 168h")
    return lifetime


def _bastions(path: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and PROVIDER.fullmatch(one) for one in value):
        raise InvalidConfiguration(f"--config: {path} must be a list of bastion providers, such as [aws, pod]")
    return frozenset(value)
