"""Which grants open the auto-approval, which of them are removed now, and which questions prove that it is shut.

Pure: from ClusterRoles and ClusterRoleBindings as they were read. RoleBindings grant nothing here, because the question
is asked without a namespace.
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
"""What kubeadm, and Cluster API with it, gives to every bootstrap token."""
_SERVICE_ACCOUNTS_GROUP: Final = "system:serviceaccounts"

MAXIMUM_IDENTITIES: Final = 256
"""How many are asked about; with more the door cannot be proven shut."""

# API servers put these roles back at their start (rbac/bootstrappolicy), so that a binding of a deleted one is no more
# harmless than it was.
_ROLES_THAT_COME_BACK: Final[Mapping[str, ClusterRole]] = {
    f"system:certificates.k8s.io:{subresource.resource.replace('/', ':')}": ClusterRole(
        f"system:certificates.k8s.io:{subresource.resource.replace('/', ':')}",
        frozenset({subresource}),
        RoleScope.ONLY_APPROVAL,
    )
    for subresource in ApprovalSubresource
}


class Obstacle(enum.Enum):
    """Why a binding is reported and not removed; the value finishes the sentence "it is not removed, because"."""

    GRANTS_MORE = "its ClusterRole grants more than that"
    AGGREGATED = "its ClusterRole is aggregated, and may grant more tomorrow"
    UNREADABLE_ROLE = "the rules of its ClusterRole cannot be read"
    UNUSABLE_NAME = "its name, or its ClusterRole's, cannot be used in a path"
    TOO_LARGE = "it is too large to be kept"


@dataclass(frozen=True, slots=True)
class RemovableGrant:
    """A binding that grants doors and nothing else."""

    binding: ClusterRoleBinding
    subresources: frozenset[ApprovalSubresource]


@dataclass(frozen=True, slots=True)
class ReportedGrant:
    """A binding that grants doors, and that a person has to change."""

    binding: ClusterRoleBinding
    subresources: frozenset[ApprovalSubresource]
    obstacle: Obstacle


Grant: TypeAlias = RemovableGrant | ReportedGrant


@dataclass(frozen=True, slots=True)
class RoleGone:
    """No ClusterRole of that name, and none that comes back by itself."""


@dataclass(frozen=True, slots=True)
class ReviewedIdentity:
    """Somebody about whom SubjectAccessReviews are asked."""

    label: str
    """For messages."""
    user: str
    groups: tuple[str, ...]
    may_be_administrator: bool
    """Whether being allowed everything explains being allowed this. Never for those whom the door is there for: a
    bootstrap token that may do everything is the widest door of all."""


@dataclass(frozen=True, slots=True)
class Opening:
    """A review that was answered with yes."""

    subresource: ApprovalSubresource
    identity: ReviewedIdentity
    explanation: str = ""
    """What the API server says about it; its own words, and to be made printable."""


class TooManyIdentities(Exception):
    """More subjects and groups than are asked about: nothing can be proven."""


def role_of(name: str, roles: Mapping[str, ClusterRole]) -> ClusterRole | RoleGone:
    """The role of that name among all that exist; the stock ones also where they were deleted."""
    return roles.get(name) or _ROLES_THAT_COME_BACK.get(name) or RoleGone()


def granting_bindings(roles: Mapping[str, ClusterRole], bindings: Iterable[ClusterRoleBinding]) -> tuple[Grant, ...]:
    """The bindings that grant a door to somebody now. ``roles`` holds every ClusterRole, by name."""
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
    """What Enforce removes now: first certificates at once, renewal when no Machine would lose it.

    ``unattested`` names the Machines that have no certificate of ours to renew. A binding of both doors waits for both.
    """
    due = {ApprovalSubresource.NODECLIENT} if unattested else set(ApprovalSubresource)
    return tuple(grant for grant in grants if isinstance(grant, RemovableGrant) and grant.subresources <= due)


def reviewed_identities(
    grants: Iterable[Grant], token_groups: Iterable[frozenset[str]]
) -> tuple[ReviewedIdentity, ...]:
    """All who must be refused at both doors: those whom kubeadm lets in, and whomever any binding names.

    ``token_groups`` are the sets of groups of bootstrap tokens that were seen.

    Raises:
        TooManyIdentities: more than :data:`MAXIMUM_IDENTITIES`.
    """
    found: dict[tuple[str, tuple[str, ...]], ReviewedIdentity] = {}
    always = ({BOOTSTRAPPERS_GROUP}, {BOOTSTRAPPERS_GROUP, DEFAULT_NODE_TOKEN_GROUP})
    for groups in (*always, *token_groups):
        _add(found, _token(frozenset(groups)))
    for identity in _EVERY_CLUSTER_HAS:
        _add(found, identity)
    for grant in grants:
        for subject in grant.binding.subjects:
            _add(found, _of_subject(subject))
    return tuple(found.values())


def _add(found: dict[tuple[str, tuple[str, ...]], ReviewedIdentity], identity: ReviewedIdentity) -> None:
    found.setdefault((identity.user, identity.groups), identity)
    if len(found) > MAXIMUM_IDENTITIES:
        raise TooManyIdentities(f"more than {MAXIMUM_IDENTITIES} users and groups are granted it")


def grants_that_explain(opening: Opening, grants: Iterable[Grant]) -> tuple[Grant, ...]:
    """The bindings by which RBAC says yes."""
    return tuple(
        grant
        for grant in grants
        if opening.subresource in grant.subresources
        and any(_is(subject, opening.identity) for subject in grant.binding.subjects)
    )


def _is(subject: Subject, identity: ReviewedIdentity) -> bool:
    match subject.kind:
        case "Group":
            return subject.name in identity.groups
        case "ServiceAccount":
            return identity.user == _service_account(subject)
        case _:
            return subject.name == identity.user


# The names of nodes and tokens are such as nobody has: authorizers other than RBAC may look at them.
_EVERY_CLUSTER_HAS: Final = (
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
    """Whether tokens, nodes or everybody are in that group."""
    everybody = {NODES_GROUP, AUTHENTICATED_GROUP, UNAUTHENTICATED_GROUP, BOOTSTRAPPERS_GROUP}
    return group in everybody or group.startswith(f"{BOOTSTRAPPERS_GROUP}:")


def _service_account(subject: Subject) -> str:
    return f"system:serviceaccount:{subject.namespace}:{subject.name}"
