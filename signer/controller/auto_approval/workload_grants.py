"""Reads auto-approval grants from a workload cluster, and verifies them with SubjectAccessReviews.

Used by the removal of auto-approval and by read-only callers. Everything that is read is bounded; beyond the bounds the
result is "cannot be proven", never "removed".
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from attestors.wire.names import BOOTSTRAPPERS_GROUP
from signer.kube.calls import ListCreate
from signer.kube.client import Parameters
from signer.kube.errors import ApiError, Forbidden, UnexpectedAnswer, without_credentials
from signer.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    SECRETS,
    SUBJECT_ACCESS_REVIEWS,
    Resource,
)
from signer.model.auto_approval import (
    ANY,
    CERTIFICATES_GROUP,
    CREATE,
    REQUESTS,
    ApprovalSubresource,
    ClusterRole,
    parse_cluster_role,
    parse_cluster_role_binding,
    saved_size,
)
from signer.model.bootstrap_token import TOKEN_SECRET_NAMESPACE, TOKEN_SECRET_TYPE
from signer.model.decision import printable
from signer.model.fields import mapping_of, text_of
from signer.rules.auto_approval import AllowedReview, Grant, ReviewedIdentity, granting_bindings

MAXIMUM_ROLES: Final = 5_000
MAXIMUM_BINDINGS: Final = 5_000
MAXIMUM_TOKENS: Final = 2_000
MAXIMUM_ROLE_BYTES: Final = 2 * 1024 * 1024
"""Limit for the names of all ClusterRoles of one cluster, which are held while its bindings are read."""
MAXIMUM_GRANT_BYTES: Final = 2 * 1024 * 1024
"""Limit for the bindings of one cluster that grant auto-approval, as JSON; other bindings are not held."""
_MAXIMUM_GROUPS_OF_TOKEN: Final = 16
_MAXIMUM_GROUPS_CHARACTERS: Final = 4096
_MAXIMUM_EXPLANATION_CHARACTERS: Final = 300

# A token with any other group does not authenticate (cluster-bootstrap/token/api, BootstrapGroupPattern).
_TOKEN_GROUP: Final = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")

TokenGroups: TypeAlias = frozenset[frozenset[str]]
"""The sets of groups of bootstrap tokens."""


class CannotBeProven(Exception):
    """The workload cluster exceeds the bounds, or its API server has no definite answer; ``reason`` is stable."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class AuthorizerFailed(CannotBeProven):
    """An authorizer of the API server failed, so the answer "no" is not final: it may become "yes"."""

    def __init__(self, message: str, openings: Sequence[AllowedReview] = ()) -> None:
        super().__init__("AuthorizerFailed", message)
        self.openings = tuple(openings)
        """The openings found before the failure, after which no further review was made."""


class MissingGrant(Exception):
    """The controller may not do something in the workload cluster; the message names what to grant."""


@dataclass(frozen=True, slots=True)
class TokensUnread:
    """The controller may not list bootstrap tokens' Secrets: their groups are known from requests only."""

    cause: str


async def read_grants(client: ListCreate) -> tuple[Grant, ...]:
    """The bindings that grant auto-approval now.

    Raises:
        MissingGrant: the controller may not list roles or bindings.
        CannotBeProven: there are too many, or they are too large.
        UnreadableGrant: a role or binding cannot be parsed.
        ApiError: from the workload cluster.
    """
    roles_read = _Bounded(MAXIMUM_ROLE_BYTES, CLUSTER_ROLES)
    roles: dict[str, ClusterRole] = {}

    def hold_roles(items: Sequence[Mapping[str, Any]]) -> None:
        for role in map(parse_cluster_role, items):
            roles_read.add(len(role.name))
            roles[role.name] = role

    grants_read = _Bounded(MAXIMUM_GRANT_BYTES, CLUSTER_ROLE_BINDINGS)
    grants: list[Grant] = []

    def hold_grants(items: Sequence[Mapping[str, Any]]) -> None:
        for grant in granting_bindings(roles, map(parse_cluster_role_binding, items)):
            grants_read.add(saved_size(grant.binding))
            grants.append(grant)

    await _read_all(client, CLUSTER_ROLES, MAXIMUM_ROLES, hold_roles)
    await _read_all(client, CLUSTER_ROLE_BINDINGS, MAXIMUM_BINDINGS, hold_grants)
    return tuple(grants)


async def read_token_groups(client: ListCreate) -> TokenGroups | TokensUnread:
    """The groups of all bootstrap tokens, without their secret parts. A missing grant gives TokensUnread.

    Raises:
        CannotBeProven: there are too many tokens, or one has too many groups.
        ApiError: from the workload cluster.
    """
    params = {"fieldSelector": f"type={TOKEN_SECRET_TYPE}"}
    path = SECRETS.collection(TOKEN_SECRET_NAMESPACE)
    found: set[frozenset[str]] = set()
    try:
        await _read_all(
            client, SECRETS, MAXIMUM_TOKENS, lambda items: found.update(map(_groups_of_token, items)), path, params
        )
    except MissingGrant as missing:
        return TokensUnread(str(missing))
    return frozenset(found)


async def openings_of(
    client: ListCreate,
    identities: Sequence[ReviewedIdentity],
    subresources: Sequence[ApprovalSubresource] = tuple(ApprovalSubresource),
) -> tuple[AllowedReview, ...]:
    """Review each identity for each subresource. Administrators, who may do everything, are skipped.

    Raises:
        AuthorizerFailed: an authorizer failed, and no other allowed the identity; has the openings found so far.
        MissingGrant: the controller may not create SubjectAccessReviews.
        ApiError: from the workload cluster; UnexpectedAnswer if a review has no boolean ``allowed``.
    """
    openings: list[AllowedReview] = []
    try:
        for identity in identities:
            if identity.may_be_administrator and (await _review(client, identity, _EVERYTHING)).allowed:
                continue
            for subresource in subresources:
                answer = await _review(client, identity, _attributes(subresource))
                if answer.allowed:
                    openings.append(AllowedReview(subresource, identity, answer.explanation))
    except AuthorizerFailed as error:
        raise AuthorizerFailed(str(error), openings) from error
    return tuple(openings)


@dataclass(frozen=True, slots=True)
class _Answer:
    allowed: bool
    explanation: str


def _attributes(subresource: ApprovalSubresource) -> dict[str, str]:
    """The attributes that kube-controller-manager reviews (``pkg/controller/certificates/approver/sarapprove.go``)."""
    return {
        "verb": CREATE,
        "group": CERTIFICATES_GROUP,
        "version": ANY,
        "resource": REQUESTS,
        "subresource": subresource.value,
    }


_EVERYTHING: Final = {"verb": ANY, "group": ANY, "version": ANY, "resource": ANY}


async def _review(client: ListCreate, identity: ReviewedIdentity, attributes: dict[str, str]) -> _Answer:
    spec: dict[str, Any] = {"resourceAttributes": attributes}
    if identity.user:
        spec["user"] = identity.user
    if identity.groups:
        spec["groups"] = list(identity.groups)
    body = {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": spec}
    try:
        answer = mapping_of(await client.create(SUBJECT_ACCESS_REVIEWS.collection(), body), "status")
    except Forbidden as error:
        raise MissingGrant(missing_grant("create", SUBJECT_ACCESS_REVIEWS, error)) from error
    allowed = answer.get("allowed")
    if not isinstance(allowed, bool):
        raise UnexpectedAnswer("a SubjectAccessReview was answered with neither yes nor no", status=201)
    if not allowed and answer.get("evaluationError"):
        # After a failed authorizer, the API server asks the others and answers "no" if they do. RBAC reports a missing
        # role in ``reason``, as Node does: neither answers "no" with an error (plugin/pkg/auth/authorizer).
        detail = without_credentials(text_of(answer, "evaluationError"))[:_MAXIMUM_EXPLANATION_CHARACTERS]
        raise AuthorizerFailed(
            f"an authorizer of the API server failed, and may say yes when it answers again: {printable(detail)}"
        )
    return _Answer(allowed, printable(text_of(answer, "reason")[:_MAXIMUM_EXPLANATION_CHARACTERS]))


class _Bounded:
    """Bounds what is held of a collection; the current page is not counted."""

    def __init__(self, limit_bytes: int, resource: Resource) -> None:
        self._remaining = limit_bytes
        self._cause = f"the cluster's {resource.plural} take more than {limit_bytes // 1024} KiB"

    def add(self, size: int) -> None:
        """Raises CannotBeProven beyond the bound."""
        self._remaining -= size
        if self._remaining < 0:
            raise CannotBeProven("TooManyGrants", self._cause)


async def _read_all(
    client: ListCreate,
    resource: Resource,
    limit: int,
    hold: Callable[[Sequence[Mapping[str, Any]]], None],
    path: str = "",
    params: Parameters | None = None,
) -> None:
    """Pass each page of a collection to ``hold`` as it arrives; ``path`` overrides the path of all namespaces."""
    count = 0
    try:
        async with contextlib.aclosing(client.list_pages(path or resource.collection(), params)) as pages:
            async for page in pages:
                items = page.get("items") or []
                if not isinstance(items, list) or not all(isinstance(item, Mapping) for item in items):
                    raise UnexpectedAnswer(f"a list of {resource.plural} holds something else", status=200)
                count += len(items)
                if count > limit:
                    raise CannotBeProven("TooManyGrants", f"the cluster has more than {limit} {resource.plural}")
                hold(items)
                del items, page  # free their memory: the next page may take long
    except Forbidden as error:
        raise MissingGrant(missing_grant("list", resource, error)) from error


def missing_grant(verb: str, resource: Resource, error: ApiError) -> str:
    """A message that names the missing permission."""
    group = f" of {resource.group}" if resource.group else ""
    return f"the controller may not {verb} {resource.plural}{group} in the workload cluster: grant it ({error})"


def _groups_of_token(secret: Mapping[str, Any]) -> frozenset[str]:
    """``auth-extra-groups`` of a token's Secret, plus the group of all tokens."""
    encoded = text_of(mapping_of(secret, "data"), "auth-extra-groups")
    if len(encoded) > _MAXIMUM_GROUPS_CHARACTERS:
        raise CannotBeProven("TooManyGroups", "a bootstrap token has more groups than are read")
    try:
        names = base64.b64decode(encoded, validate=True).decode("ascii").split(",")
    except (binascii.Error, ValueError):
        return frozenset({BOOTSTRAPPERS_GROUP})  # such a token does not authenticate
    found = {name.strip() for name in names}
    valid = {name for name in found if _TOKEN_GROUP.fullmatch(name)}
    if len(valid) > _MAXIMUM_GROUPS_OF_TOKEN:
        raise CannotBeProven("TooManyGroups", "a bootstrap token has more groups than are read")
    return frozenset({BOOTSTRAPPERS_GROUP, *valid})
