"""Which bindings open the auto-approval, what is removed when, and who is asked about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from signer.model.auto_approval import (
    MAXIMUM_SAVED_BINDING_BYTES,
    ApprovalSubresource,
    ClusterRole,
    ClusterRoleBinding,
    RoleScope,
    Subject,
    saved_size,
)
from signer.rules.auto_approval import (
    MAXIMUM_IDENTITIES,
    AllowedReview,
    Grant,
    Obstacle,
    RemovableGrant,
    ReportedGrant,
    ReviewedIdentity,
    RoleGone,
    TooManyIdentities,
    due_removals,
    granting_bindings,
    grants_that_explain,
    reviewed_identities,
    role_of,
)

RBAC = "rbac.authorization.k8s.io"
NODECLIENT = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
SELFNODECLIENT = "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient"
TOKENS = "system:bootstrappers:kubeadm:default-node-token"


def group(name: str) -> Subject:
    return Subject("Group", RBAC, name, "")


def user(name: str) -> Subject:
    return Subject("User", RBAC, name, "")


def bound(name: str, role: str, *subjects: Subject, **fields: Any) -> ClusterRoleBinding:
    return ClusterRoleBinding(name, f"uid-{name}", "1", role, subjects, **fields)


def role(name: str, *subresources: ApprovalSubresource, scope: RoleScope = RoleScope.ONLY_APPROVAL) -> ClusterRole:
    return ClusterRole(name, frozenset(subresources), scope)


ROLES: Mapping[str, ClusterRole] = {
    found.name: found
    for found in (
        role(NODECLIENT, ApprovalSubresource.NODECLIENT),
        role(SELFNODECLIENT, ApprovalSubresource.SELFNODECLIENT),
        role("both", *ApprovalSubresource),
        role("admin", *ApprovalSubresource, scope=RoleScope.MORE),
        role("aggregated", ApprovalSubresource.NODECLIENT, scope=RoleScope.AGGREGATED),
        role("garbage", *ApprovalSubresource, scope=RoleScope.UNREADABLE),
        role("viewer", scope=RoleScope.MORE),
    )
}


def the(*bindings: ClusterRoleBinding) -> tuple[Grant, ...]:
    return granting_bindings(ROLES, bindings)


FIRST = bound("kubeadm:node-autoapprove-bootstrap", NODECLIENT, group(TOKENS))
RENEWAL = bound("kubeadm:node-autoapprove-certificate-rotation", SELFNODECLIENT, group("system:nodes"))
BOTH = bound("both", "both", group("system:nodes"))


def test_kubeadms_bindings_are_removable() -> None:
    assert the(FIRST, RENEWAL) == (
        RemovableGrant(FIRST, frozenset({ApprovalSubresource.NODECLIENT})),
        RemovableGrant(RENEWAL, frozenset({ApprovalSubresource.SELFNODECLIENT})),
    )


def test_the_name_of_a_binding_says_nothing() -> None:
    other = bound("innocent", NODECLIENT, group("system:authenticated"))
    assert the(other) == (RemovableGrant(other, frozenset({ApprovalSubresource.NODECLIENT})),)


@pytest.mark.parametrize(
    ("role_name", "obstacle"),
    [
        ("admin", Obstacle.GRANTS_MORE),
        ("aggregated", Obstacle.AGGREGATED),
        ("garbage", Obstacle.UNREADABLE_ROLE),
    ],
)
def test_what_may_grant_more_is_reported(role_name: str, obstacle: Obstacle) -> None:
    other = bound("other", role_name, group("system:nodes"))
    assert the(other) == (ReportedGrant(other, ROLES[role_name].subresources, obstacle),)


def test_what_cannot_be_deleted_by_name_is_reported() -> None:
    (grant,) = the(bound("a\nb", NODECLIENT, group("system:nodes")))
    assert isinstance(grant, ReportedGrant)
    assert grant.obstacle is Obstacle.UNUSABLE_NAME


def test_what_is_too_large_to_keep_is_reported() -> None:
    (grant,) = the(bound("large", NODECLIENT, group("system:nodes"), annotations={"note": "x" * 20_000}))
    assert isinstance(grant, ReportedGrant)
    assert grant.obstacle is Obstacle.TOO_LARGE


def test_just_not_too_large_to_keep() -> None:
    """The limit is what one ConfigMap entry may take; at it, it is kept."""
    bare = bound("large", NODECLIENT, group("system:nodes"), annotations={"note": ""})
    for more, kind in ((0, RemovableGrant), (1, ReportedGrant)):
        note = "x" * (MAXIMUM_SAVED_BINDING_BYTES - saved_size(bare) + more)
        (grant,) = the(bound("large", NODECLIENT, group("system:nodes"), annotations={"note": note}))
        assert isinstance(grant, kind)


def test_of_several_obstacles_the_role_comes_first() -> None:
    """Renaming it would not help."""
    (grant,) = the(bound("a\nb", "admin", group("system:nodes")))
    assert isinstance(grant, ReportedGrant)
    assert grant.obstacle is Obstacle.GRANTS_MORE


def test_obstacles_finish_a_sentence() -> None:
    assert [obstacle.value for obstacle in Obstacle] == [
        "its ClusterRole grants more than that",
        "its ClusterRole is aggregated, and may grant more later",
        "the rules of its ClusterRole cannot be read",
        "its name, or its ClusterRole's, cannot be used in a path",
        "it is too large to be saved",
    ]


def test_bindings_that_grant_nothing() -> None:
    assert the(bound("a", "viewer", group("x")), bound("b", "gone", group("x")), bound("c", NODECLIENT)) == ()


@pytest.mark.parametrize("subresource", ApprovalSubresource)
def test_a_builtin_role_that_was_deleted_comes_back_with_the_next_start(subresource: ApprovalSubresource) -> None:
    name = NODECLIENT if subresource is ApprovalSubresource.NODECLIENT else SELFNODECLIENT
    dangling = bound("dangling", name, group("system:nodes"))
    assert granting_bindings({}, [dangling]) == (RemovableGrant(dangling, frozenset({subresource})),)
    assert role_of("another", {}) == RoleGone()


def test_a_builtin_role_that_was_changed_is_what_it_is_now() -> None:
    changed = {NODECLIENT: role(NODECLIENT, *ApprovalSubresource, scope=RoleScope.MORE)}
    (grant,) = granting_bindings(changed, [FIRST])
    assert isinstance(grant, ReportedGrant)


# What is removed when


def test_first_certificates_at_once_renewal_when_nobody_needs_it() -> None:
    grants = the(FIRST, RENEWAL, BOTH)
    assert [grant.binding for grant in due_removals(grants, ["machine-1"])] == [FIRST]
    assert [grant.binding for grant in due_removals(grants, [])] == [FIRST, RENEWAL, BOTH]


def test_what_grants_more_is_never_removed() -> None:
    assert due_removals(the(bound("admin", "admin", group("system:nodes"))), []) == ()


# Who is asked about


def asked(*grants: Grant, tokens: tuple[frozenset[str], ...] = ()) -> dict[str, ReviewedIdentity]:
    return {identity.label: identity for identity in reviewed_identities(grants, tokens)}


def test_whom_kubeadm_lets_in_is_always_asked_about() -> None:
    found = asked()
    assert {identity.groups for identity in found.values()} == {
        ("system:authenticated", "system:bootstrappers"),
        ("system:authenticated", "system:bootstrappers", TOKENS),
        ("system:nodes", "system:authenticated"),
        ("system:authenticated",),
        ("system:unauthenticated",),
    }
    assert not any(identity.may_be_administrator for identity in found.values())
    nodes, token = found["Group system:nodes"], found["bootstrap tokens in system:bootstrappers"]
    assert nodes.user.startswith("system:node:")
    assert found["Group system:authenticated"].user == ""
    assert found["Group system:unauthenticated"].user == "system:anonymous"
    assert f"bootstrap tokens in system:bootstrappers, {TOKENS}" in found
    assert token.user.startswith("system:bootstrap:")


def test_groups_of_tokens_are_asked_about_as_a_whole() -> None:
    seen = frozenset({"system:bootstrappers", "system:bootstrappers:edge", "system:authenticated"})
    found = asked(tokens=(seen, frozenset({"system:bootstrappers:edge"})))
    identity = found["bootstrap tokens in system:bootstrappers, system:bootstrappers:edge"]
    assert identity.groups == ("system:authenticated", "system:bootstrappers", "system:bootstrappers:edge")
    assert len(found) == len(asked()) + 1


@pytest.mark.parametrize(
    ("subject", "name", "groups", "may_be_administrator"),
    [
        (user("system:bootstrap:abcdef"), "system:bootstrap:abcdef", (), False),
        (user("system:node:one"), "system:node:one", (), False),
        (user("system:anonymous"), "system:anonymous", (), False),
        (user("alice"), "alice", (), True),
        (group("system:bootstrappers:edge"), "", ("system:bootstrappers:edge",), False),
        (group("system:bootstrappers"), "", ("system:bootstrappers",), False),
        (group("system:nodes"), "", ("system:nodes",), False),
        (group("system:authenticated"), "", ("system:authenticated",), False),
        (group("system:masters"), "", ("system:masters",), True),
        (
            Subject("ServiceAccount", "", "robot", "ci"),
            "system:serviceaccount:ci:robot",
            ("system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"),
            True,
        ),
        (Subject("Robot", "", "r2", ""), "r2", (), True),
    ],
)
def test_every_subject_is_asked_about(
    subject: Subject, name: str, groups: tuple[str, ...], may_be_administrator: bool
) -> None:
    """A second subject too, and one of those who join never counts as an administrator."""
    (grant,) = the(bound("b", NODECLIENT, group(TOKENS), subject))
    assert asked(grant)[str(subject)] == ReviewedIdentity(str(subject), name, groups, may_be_administrator)


def test_anonymous_requests_are_nobodys_administrator() -> None:
    """Though asked about without the user name, as the binding has it."""
    (grant,) = the(bound("b", NODECLIENT, group("system:unauthenticated")))
    found = [one for one in reviewed_identities([grant], []) if one.groups == ("system:unauthenticated",)]
    assert [(one.user, one.may_be_administrator) for one in found] == [("system:anonymous", False), ("", False)]


def test_more_than_can_be_asked_about_is_not_proven() -> None:
    assert MAXIMUM_IDENTITIES == 256
    room = 256 - len(asked())
    (few,) = the(bound("few", NODECLIENT, *(user(f"u{number}") for number in range(room))))
    assert len(asked(few)) == 256
    (many,) = the(bound("many", NODECLIENT, *(user(f"u{number}") for number in range(room + 1))))
    with pytest.raises(TooManyIdentities):
        asked(many)


# By what


@pytest.mark.parametrize(
    "subject", [user("alice"), group("system:nodes"), Subject("ServiceAccount", "", "robot", "ci")]
)
def test_a_yes_is_explained_by_the_bindings_of_that_subject(subject: Subject) -> None:
    (grant, *_) = others = the(
        bound("b", NODECLIENT, user("carol"), subject), bound("c", NODECLIENT, user("bob")), BOTH, RENEWAL
    )
    identity = asked(grant)[str(subject)]
    names = [
        found.binding.name
        for found in grants_that_explain(AllowedReview(ApprovalSubresource.NODECLIENT, identity), others)
    ]
    assert names == (["b", "both"] if subject.name == "system:nodes" else ["b"])


def test_a_yes_that_no_binding_explains() -> None:
    (everybody,) = (identity for label, identity in asked().items() if label == "Group system:unauthenticated")
    opening = AllowedReview(ApprovalSubresource.NODECLIENT, everybody)
    assert grants_that_explain(opening, the(FIRST, RENEWAL)) == ()
    assert opening.explanation == ""
