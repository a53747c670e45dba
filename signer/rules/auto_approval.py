"""Rules for auto-approval: which bindings grant it, which to remove now, and which access reviews prove it removed.

The input is the ClusterRoles and ClusterRoleBindings that were read. RoleBindings grant nothing here, because
kube-controller-manager's SubjectAccessReview names no namespace.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from attestors.wire.names import BOOTSTRAP_USER_PREFIX, BOOTSTRAPPERS_GROUP, NODE_USER_PREFIX, NODES_GROUP
from signer.model.auto_approval import (
    MAXIMUM_SAVED_BINDING_BYTES,
    ApprovalSubresource,
    ClusterRole,
    ClusterRoleBinding,
    RoleScope,
    Subject,
    saved_size,
)

AUTHENTICATED_GROUP: Final = "system:authenticated"
UNAUTHENTICATED_GROUP: Final = "system:unauthenticated"
DEFAULT_NODE_TOKEN_GROUP: Final = f"{BOOTSTRAPPERS_GROUP}:kubeadm:default-node-token"
"""The group that kubeadm, and so Cluster API, gives to every bootstrap token."""
_SERVICE_ACCOUNTS_GROUP: Final = "system:serviceaccounts"

MAXIMUM_IDENTITIES: Final = 256
"""Most identities to review. With more, the removal of auto-approval cannot be proven."""

# The API server recreates these roles when it starts (rbac/bootstrappolicy). So a binding counts even while its role is
# deleted.
_ROLES_RECREATED_AT_START: Final[Mapping[str, ClusterRole]] = {
    f"system:certificates.k8s.io:{subresource.resource.replace('/', ':')}": ClusterRole(
        f"system:certificates.k8s.io:{subresource.resource.replace('/', ':')}",
        frozenset({subresource}),
        RoleScope.ONLY_APPROVAL,
    )
    for subresource in ApprovalSubresource
}


class Obstacle(enum.Enum):
    """Why a binding is reported and not removed. The value completes the sentence "it is not removed, because"."""

    GRANTS_MORE = "its ClusterRole grants more than that"
    AGGREGATED = "its ClusterRole is aggregated, and may grant more later"
    UNREADABLE_ROLE = "the rules of its ClusterRole cannot be read"
    UNUSABLE_NAME = "its name, or its ClusterRole's, cannot be used in a path"
    TOO_LARGE = "it is too large to be saved"


def unexpected_subjects(binding: ClusterRoleBinding) -> tuple[Subject, ...]:
    """The subjects that are neither nodes nor bootstrap tokens, by group or name; the groups of tokens begin alike
    (Kubernetes' ``bootstrapapi.BootstrapGroupPattern``). Only a person gives automatic approval to them.
    """
    return tuple(subject for subject in binding.subjects if not _is_node_or_token(subject))


def _is_node_or_token(subject: Subject) -> bool:
    if subject.kind == "Group":
        is_known = subject.name in (NODES_GROUP, BOOTSTRAPPERS_GROUP)
        return is_known or subject.name.startswith(f"{BOOTSTRAPPERS_GROUP}:")
    return subject.kind == "User" and subject.name.startswith((NODE_USER_PREFIX, BOOTSTRAP_USER_PREFIX))


@dataclass(frozen=True, slots=True)
class RemovableGrant:
    """A binding that grants auto-approval and nothing else."""

    binding: ClusterRoleBinding
    subresources: frozenset[ApprovalSubresource]


@dataclass(frozen=True, slots=True)
class ReportedGrant:
    """A binding that grants auto-approval, and that an administrator has to change."""

    binding: ClusterRoleBinding
    subresources: frozenset[ApprovalSubresource]
    obstacle: Obstacle


Grant: TypeAlias = RemovableGrant | ReportedGrant


@dataclass(frozen=True, slots=True)
class RoleGone:
    """There is no ClusterRole of that name, and the API server recreates none."""


@dataclass(frozen=True, slots=True)
class ReviewedIdentity:
    """A user and groups to send SubjectAccessReviews about."""

    label: str
    """The identity's name in messages."""
    user: str
    groups: tuple[str, ...]
    may_be_administrator: bool
    """Whether the permission to do everything may explain an allowed review. It never does for bootstrap tokens, nodes
    and the groups that hold every user: a bootstrap token that may do everything is the worst case."""


@dataclass(frozen=True, slots=True)
class AllowedReview:
    """A SubjectAccessReview that the API server answered with ``allowed: true``."""

    subresource: ApprovalSubresource
    identity: ReviewedIdentity
    explanation: str = ""
    """The API server's reason, verbatim. Escape it before printing."""


class TooManyIdentities(Exception):
    """The bindings name too many identities to review, so that nothing can be proven."""


def role_of(name: str, roles: Mapping[str, ClusterRole]) -> ClusterRole | RoleGone:
    """The role of that name. The two roles that the API server recreates count even while they are deleted."""
    return roles.get(name) or _ROLES_RECREATED_AT_START.get(name) or RoleGone()


def granting_bindings(roles: Mapping[str, ClusterRole], bindings: Iterable[ClusterRoleBinding]) -> tuple[Grant, ...]:
    """The bindings that grant auto-approval to at least one subject. ``roles`` holds every ClusterRole, by name."""
    grants: list[Grant] = []
    for binding in bindings:
        role = role_of(binding.role_name, roles)
        if isinstance(role, RoleGone) or not role.subresources or not binding.subjects:
            continue
        obstacles = [*_obstacles(role, binding)]
        if obstacles:
            grants.append(ReportedGrant(binding, role.subresources, obstacles[0]))
        else:
            grants.append(RemovableGrant(binding, role.subresources))
    return tuple(grants)


def _obstacles(role: ClusterRole, binding: ClusterRoleBinding) -> Iterable[Obstacle]:
    match role.scope:
        case RoleScope.MORE:
            yield Obstacle.GRANTS_MORE
        case RoleScope.AGGREGATED:
            yield Obstacle.AGGREGATED
        case RoleScope.UNREADABLE:
            yield Obstacle.UNREADABLE_ROLE
        case RoleScope.ONLY_APPROVAL:
            pass
    if not binding.is_addressable:
        yield Obstacle.UNUSABLE_NAME
    if saved_size(binding) > MAXIMUM_SAVED_BINDING_BYTES:
        yield Obstacle.TOO_LARGE


def due_removals(grants: Iterable[Grant], unattested: Sequence[str]) -> tuple[RemovableGrant, ...]:
    """The bindings that Enforce removes now.

    Bindings for first certificates are removed at once. Bindings for renewal stay while a Machine would lose renewal:
    ``unattested`` names the Machines that have no certificate of ours to renew. A binding of both stays as long.
    """
    due = {ApprovalSubresource.NODECLIENT} if unattested else set(ApprovalSubresource)
    return tuple(grant for grant in grants if isinstance(grant, RemovableGrant) and grant.subresources <= due)


def reviewed_identities(
    grants: Iterable[Grant], token_groups: Iterable[frozenset[str]]
) -> tuple[ReviewedIdentity, ...]:
    """Every identity that must have no auto-approval: kubeadm's default groups, and each subject of the bindings.

    ``token_groups`` are the sets of groups that bootstrap tokens in the cluster have.

    Raises:
        TooManyIdentities: more than :data:`MAXIMUM_IDENTITIES`.
    """
    found: dict[tuple[str, tuple[str, ...]], ReviewedIdentity] = {}
    always = ({BOOTSTRAPPERS_GROUP}, {BOOTSTRAPPERS_GROUP, DEFAULT_NODE_TOKEN_GROUP})
    for groups in (*always, *token_groups):
        _add(found, _token(frozenset(groups)))
    for identity in _IDENTITIES_OF_EVERY_CLUSTER:
        _add(found, identity)
    for grant in grants:
        for subject in grant.binding.subjects:
            _add(found, _of_subject(subject))
    return tuple(found.values())


def _add(found: dict[tuple[str, tuple[str, ...]], ReviewedIdentity], identity: ReviewedIdentity) -> None:
    found.setdefault((identity.user, identity.groups), identity)
    if len(found) > MAXIMUM_IDENTITIES:
        raise TooManyIdentities(f"more than {MAXIMUM_IDENTITIES} users and groups are granted it")


def grants_that_explain(opening: AllowedReview, grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """The bindings because of which RBAC allows the review."""
    return tuple(
        grant
        for grant in grants
        if opening.subresource in grant.subresources
        and any(_matches(subject, opening.identity) for subject in grant.binding.subjects)
    )


def _matches(subject: Subject, identity: ReviewedIdentity) -> bool:
    match subject.kind:
        case "Group":
            return subject.name in identity.groups
        case "ServiceAccount":
            return identity.user == _service_account(subject)
        case _:
            return subject.name == identity.user


# The user names of the node and the tokens are placeholders that no node or token has. They are needed because
# authorizers other than RBAC may look at user names.
_IDENTITIES_OF_EVERY_CLUSTER: Final = (
    ReviewedIdentity(
        f"Group {NODES_GROUP}",
        f"{NODE_USER_PREFIX}auto-approval-review",
        (NODES_GROUP, AUTHENTICATED_GROUP),
        may_be_administrator=False,
    ),
    ReviewedIdentity(f"Group {AUTHENTICATED_GROUP}", "", (AUTHENTICATED_GROUP,), may_be_administrator=False),
    ReviewedIdentity(
        f"Group {UNAUTHENTICATED_GROUP}", "system:anonymous", (UNAUTHENTICATED_GROUP,), may_be_administrator=False
    ),
)


def _token(groups: frozenset[str]) -> ReviewedIdentity:
    named = sorted(groups - {AUTHENTICATED_GROUP})
    everything = tuple(sorted({*groups, BOOTSTRAPPERS_GROUP, AUTHENTICATED_GROUP}))
    label = f"bootstrap tokens in {', '.join(named)}"
    return ReviewedIdentity(label, f"{BOOTSTRAP_USER_PREFIX}000000", everything, may_be_administrator=False)


def _of_subject(subject: Subject) -> ReviewedIdentity:
    match subject.kind:
        case "Group":
            return ReviewedIdentity(
                str(subject), "", (subject.name,), may_be_administrator=not _joins_nodes_group(subject.name)
            )
        case "ServiceAccount":
            own = f"{_SERVICE_ACCOUNTS_GROUP}:{subject.namespace}"
            groups = (_SERVICE_ACCOUNTS_GROUP, own, AUTHENTICATED_GROUP)
            return ReviewedIdentity(str(subject), _service_account(subject), groups, may_be_administrator=True)
        case _:
            joins = subject.name.startswith((BOOTSTRAP_USER_PREFIX, NODE_USER_PREFIX, "system:anonymous"))
            return ReviewedIdentity(str(subject), subject.name, (), may_be_administrator=not joins)


def _joins_nodes_group(group: str) -> bool:
    """Whether bootstrap tokens, nodes or all users are in that group."""
    common_groups = {NODES_GROUP, AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP, BOOTSTRAPPERS_GROUP}
    return group in common_groups or group.startswith(f"{BOOTSTRAPPERS_GROUP}:")


def _service_account(subject: Subject) -> str:
    return f"system:serviceaccount:{subject.namespace}:{subject.name}"
