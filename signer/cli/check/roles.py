"""The rules of the roles in ``deploy/rbac`` that a controller needs, for ``check``.

``tests/documents/test_grant_calls.py`` compares them with the files.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from signer.configuration import (
    AccessPermission,
    Configuration,
    ContainersSwitchedOn,
    RotationSettings,
    SSHPermission,
)

_CLUSTER_API: Final = "cluster.x-k8s.io"
_ATTESTATION: Final = "attestation.cluster.x-k8s.io"
_ACCESS: Final = "access.cluster.x-k8s.io"
_ADMISSION: Final = "admissionregistration.k8s.io"
_BOOTSTRAP: Final = "bootstrap.cluster.x-k8s.io"
_CONTROL_PLANE: Final = "controlplane.cluster.x-k8s.io"
_COORDINATION: Final = "coordination.k8s.io"
_POLICIES_AND_BINDINGS: Final = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")


class Scope(enum.Enum):
    """Where a role is bound."""

    WATCHED = "in the watched namespace, or in all"
    OWN = "in the controller's namespace"
    SERVED = "in each namespace of a Cluster with a policy"
    CLUSTER = "in the whole cluster, whatever is watched"
    GATEWAY = "in the gateway's namespace"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule: verbs on resources of one API group, limited to ``names`` if there are any."""

    group: str
    resources: tuple[str, ...]
    verbs: tuple[str, ...]
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NeededRole:
    """A role in ``deploy/rbac``."""

    name: str
    file: str
    scope: Scope
    rules: tuple[Rule, ...]


def _rule(group: str, resources: str, verbs: str, *names: str) -> Rule:
    return Rule(group, tuple(resources.split()), tuple(verbs.split()), names)


BASE: Final = (
    NeededRole(
        "node-attestation-controller",
        "management.yaml",
        Scope.WATCHED,
        (
            _rule(_CLUSTER_API, "clusters", "get list watch"),
            _rule(_CLUSTER_API, "machines machinepools", "get list watch"),
            _rule(_ATTESTATION, "nodeattestationpolicies", "get list watch"),
            _rule(_ATTESTATION, "nodeattestationpolicies/status", "patch"),
            _rule(_ATTESTATION, "attestednodes", "create get list watch update delete"),
            _rule("", "events", "create"),
        ),
    ),
    NeededRole(
        "node-attestation-controller",
        "management.yaml",
        Scope.OWN,
        (
            _rule(_ATTESTATION, "identityreservations", "create get list watch patch delete"),
            _rule("", "secrets", "get", "node-attestation-controller-key"),
            _rule("", "configmaps", "create get list patch delete"),
            _rule(_COORDINATION, "leases", "create"),
            _rule(_COORDINATION, "leases", "get update", "node-attestation-controller"),
        ),
    ),
    NeededRole("node-attestation-secrets", "management.yaml", Scope.SERVED, (_rule("", "secrets", "get"),)),
)
"""What every controller needs."""

ROTATION: Final = (
    NeededRole(
        "node-attestation-rotation-records",
        "rotation.yaml",
        Scope.WATCHED,
        (_rule(_ATTESTATION, "certificateauthorityrotations", "get list watch"),),
    ),
    NeededRole(
        "node-attestation-rotation",
        "rotation.yaml",
        Scope.SERVED,
        (
            _rule(_ATTESTATION, "certificateauthorityrotations", "create update"),
            _rule("", "secrets", "create update"),
            _rule(_CONTROL_PLANE, "kubeadmcontrolplanes", "get patch"),
            _rule(_CLUSTER_API, "clusters", "patch"),
            _rule(_BOOTSTRAP, "kubeadmconfigs", "list patch"),
            _rule(_ATTESTATION, "nodeattestationpolicies", "patch"),
        ),
    ),
    NeededRole(
        "node-attestation-rotation-admission",
        "rotation.yaml",
        Scope.CLUSTER,
        (
            Rule(_ADMISSION, _POLICIES_AND_BINDINGS, ("create",)),
            Rule(_ADMISSION, _POLICIES_AND_BINDINGS, ("get", "update"), ("node-attestation-rotation",)),
        ),
    ),
)
"""For ``--rotate-authorities``."""

SSH: Final = (
    NeededRole(
        "node-attestation-ssh",
        "ssh.yaml",
        Scope.SERVED,
        (
            _rule("", "secrets", "create update"),
            _rule(_ATTESTATION, "nodeattestationpolicies", "patch"),
            _rule(_CLUSTER_API, "machinedeployments", "list"),
            _rule(_BOOTSTRAP, "kubeadmconfigs", "list"),
            _rule(_BOOTSTRAP, "kubeadmconfigtemplates", "get"),
            _rule(_CONTROL_PLANE, "kubeadmcontrolplanes", "get"),
            _rule("infrastructure.cluster.x-k8s.io", "*", "get list"),
        ),
    ),
)
"""For ``--ssh``."""

ACCESS: Final = (
    NeededRole(
        "node-attestation-access-watch",
        "access.yaml",
        Scope.WATCHED,
        (_rule(_ACCESS, "accessgrants accessapprovals bastions", "get list watch"),),
    ),
    NeededRole(
        "node-attestation-access",
        "access.yaml",
        Scope.SERVED,
        (
            _rule(_ACCESS, "accessgrants", "create patch update delete"),
            _rule(_ACCESS, "accessapprovals", "create"),
            _rule(_ACCESS, "accessgrants/status", "patch update"),
            _rule(_ACCESS, "bastions", "create patch update delete"),
            _rule("", "configmaps", "get create update"),
        ),
    ),
    NeededRole(
        "node-attestation-access-proof",
        "access.yaml",
        Scope.CLUSTER,
        (
            Rule(
                _ADMISSION,
                _POLICIES_AND_BINDINGS,
                ("get",),
                ("node-access-grants", "node-access-approvals", "node-access-bastions"),
            ),
            _rule(_ADMISSION, "validatingwebhookconfigurations", "get", "node-access"),
            _rule("authorization.k8s.io", "subjectaccessreviews", "create"),
        ),
    ),
)
"""For ``--access``."""

CONTAINERS: Final = (
    NeededRole(
        "node-attestation-containers",
        "containers.yaml",
        Scope.GATEWAY,
        (_rule("", "secrets", "create get list update delete"),),
    ),
)
"""For ``--containers``."""


def needed_roles(configuration: Configuration) -> tuple[NeededRole, ...]:
    """The roles for what is switched on."""
    access = configuration.access
    return (
        *BASE,
        *(ROTATION if isinstance(configuration.rotation, RotationSettings) else ()),
        *(SSH if isinstance(configuration.ssh, SSHPermission) else ()),
        *(ACCESS if isinstance(access, AccessPermission) else ()),
        *(
            CONTAINERS
            if isinstance(access, AccessPermission) and isinstance(access.containers, ContainersSwitchedOn)
            else ()
        ),
    )
