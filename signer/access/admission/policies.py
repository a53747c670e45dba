"""The admission policies of access, for API servers from 1.30 (``ValidatingAdmissionPolicy``).

They prove who made a grant or an approval: the API server alone knows that. The operator installs them with the chart,
not the controller, which could otherwise switch off its own lock. The controller tries the lock
(:mod:`signer.access.creator_lock`), and issues nothing while it is open.

One check of the authorizer costs so much that an expression may have two at most
(``apiserver/pkg/cel/library/cost.go``), so each login has a validation of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from signer.access.admission import messages
from signer.admission.policy import (
    AdmissionPolicy,
    MatchedResource,
    Operation,
    RefusalReason,
    Validation,
    Variable,
)
from signer.kube.resources import ACCESS_APPROVALS, ACCESS_GRANTS, BASTIONS, Resource
from signer.model.access.bastion import FINALIZER as BASTION_FINALIZER
from signer.model.access.grant import (
    CREATED_BY_ANNOTATION,
    FINALIZER,
    HEARTBEAT_ANNOTATION,
    OPERATION_ANNOTATION,
)
from signer.model.access.targets import CONTAINER_LOGIN, DEFAULT_LOGINS

GRANTS_POLICY: Final = "node-access-grants"
APPROVALS_POLICY: Final = "node-access-approvals"
BASTIONS_POLICY: Final = "node-access-bastions"
_CREATES: Final = "request.operation == 'CREATE'"
_ON_STATUS: Final = "has(request.subResource) && request.subResource == 'status'"
_USER: Final = "request.userInfo.username"


@dataclass(frozen=True, slots=True)
class Controllers:
    """The users that are the controllers: ``system:serviceaccount:NAMESPACE:NAME``."""

    grants: str
    bastions: str


def access_policies(controllers: Controllers) -> tuple[AdmissionPolicy, ...]:
    """All policies. Names of ServiceAccounts have no character that CEL escapes."""
    return (_grants(controllers), _APPROVALS, _bastions(controllers))


def _matched(resource: Resource, *operations: Operation, status: bool = False) -> MatchedResource:
    plural = f"{resource.plural}/status" if status else resource.plural
    return MatchedResource(resource.group, plural, operations, namespaced=True)


def _forbidden(expression: str, message: str) -> Validation:
    return Validation(expression, message, RefusalReason.FORBIDDEN)


def _invalid(expression: str, message: str) -> Validation:
    return Validation(expression, message, RefusalReason.INVALID)


def _is_user(creator: str) -> str:
    """The creator is the user of the request, by name and UID."""
    uid = f"(has({creator}.uid) ? {creator}.uid : '')"
    return f"{creator}.username == {_USER} && {uid} == variables.uid"


def _annotation(name: str, holder: str) -> str:
    """Its value, empty if it is not there."""
    path = f"{holder}.metadata.annotations"
    return f"{holder} != null && has({path}) && '{name}' in {path} ? {path}['{name}'] : ''"


def _same_list(path: str) -> str:
    """Whether a list of the spec stayed as it was; a missing one is empty."""
    return f"(has(object.{path}) ? object.{path} : []) == (has(oldObject.{path}) ? oldObject.{path} : [])"


def _may(resource: Resource, verb: str) -> str:
    return (
        f"authorizer.group('{resource.group}').resource('{resource.plural}').namespace(request.namespace)"
        f".name(request.name).check('{verb}').allowed()"
    )


def _keeps_finalizer(finalizer: str, controller: str, resource: Resource) -> str:
    has_it = f"has({{0}}.metadata.finalizers) && '{finalizer}' in {{0}}.metadata.finalizers"
    return (
        f"oldObject == null || !({has_it.format('oldObject')}) || ({has_it.format('object')}) || "
        f"{_USER} == '{controller}' || {_may(resource, messages.FINALIZE)}"
    )


_CLAIM: Final = "object.spec.createdBy"
_OF_CREATOR: Final = (
    Variable("uid", "has(request.userInfo.uid) ? request.userInfo.uid : ''"),
    Variable("groups", "has(request.userInfo.groups) ? request.userInfo.groups : []"),
    Variable("claimed", f"has({_CLAIM}) ? {_CLAIM}.username : ''"),
    Variable("claimedUid", f"has({_CLAIM}) && has({_CLAIM}.uid) ? {_CLAIM}.uid : ''"),
    Variable("claimedGroups", f"has({_CLAIM}) && has({_CLAIM}.groups) ? {_CLAIM}.groups : []"),
    Variable("mirrored", _annotation(CREATED_BY_ANNOTATION, "object")),
)
_PROVES_CREATOR: Final = (
    _forbidden(f"!({_CREATES}) || variables.claimed == {_USER}", messages.NOT_YOUR_NAME),
    _forbidden(f"!({_CREATES}) || variables.claimedUid == variables.uid", messages.NOT_YOUR_UID),
    _forbidden(
        f"!({_CREATES}) || (variables.groups.all(one, one in variables.claimedGroups) && "
        "variables.claimedGroups.all(one, one in variables.groups))",
        messages.NOT_YOUR_GROUPS,
    ),
    _forbidden("variables.mirrored == '' || variables.mirrored == variables.claimed", messages.ANOTHER_ANNOTATION),
)


def _never_changes(field: str) -> Validation:
    new, old = f"object.spec.{field}", f"oldObject.spec.{field}"
    return _invalid(
        f"oldObject == null || (has({new}) == has({old}) && (!has({new}) || {new} == {old}))", messages.changed(field)
    )


def _may_use(index: int, message: str) -> Validation:
    check = (
        f"authorizer.group('{ACCESS_GRANTS.group}').resource('{messages.LOGINS}').namespace(request.namespace)"
        f".name(variables.rights[{index}]).check('{messages.USE}').allowed()"
    )
    return _forbidden(f"!({_CREATES}) || size(variables.rights) <= {index} || {check}", message)


def _grants(controllers: Controllers) -> AdmissionPolicy:
    default = ", ".join(f"'{login}'" for login in DEFAULT_LOGINS)
    was_suspended = "oldObject != null && has(oldObject.spec.suspend) && oldObject.spec.suspend"
    is_suspended = "has(object.spec.suspend) && object.spec.suspend"
    return AdmissionPolicy(
        GRANTS_POLICY,
        (
            _matched(ACCESS_GRANTS, Operation.CREATE, Operation.UPDATE),
            _matched(ACCESS_GRANTS, Operation.UPDATE, status=True),
        ),
        (),
        (
            *_OF_CREATOR,
            Variable("isController", f"{_USER} == '{controllers.grants}'"),
            Variable(
                "isCreator",
                "oldObject != null && has(oldObject.spec.createdBy) && " + _is_user("oldObject.spec.createdBy"),
            ),
            Variable("operation", _annotation(OPERATION_ANNOTATION, "object")),
            Variable("operationBefore", _annotation(OPERATION_ANNOTATION, "oldObject")),
            Variable("heartbeat", _annotation(HEARTBEAT_ANNOTATION, "object")),
            Variable("heartbeatBefore", _annotation(HEARTBEAT_ANNOTATION, "oldObject")),
            Variable(
                "rights",
                f"has(object.spec.target.container) ? ['{CONTAINER_LOGIN}'] : "
                f"(has(object.spec.logins) ? object.spec.logins : [{default}])",
            ),
        ),
        (
            _forbidden(f"!({_ON_STATUS}) || variables.isController", messages.STATUS_OF_GRANTS),
            *_PROVES_CREATOR,
            *map(_never_changes, messages.IMMUTABLE),
            _forbidden(
                f"oldObject == null || {_same_list('spec.ingress')} || variables.isCreator", messages.FOREIGN_INGRESS
            ),
            _forbidden(
                f"{_CREATES} || variables.operation == variables.operationBefore || variables.isCreator || "
                "(variables.isController && variables.operation == '')",
                messages.FOREIGN_KEEPALIVE,
            ),
            _forbidden(
                f"{_CREATES} || variables.heartbeat == variables.heartbeatBefore || variables.isCreator",
                messages.FOREIGN_HEARTBEAT,
            ),
            _forbidden(
                f"!({was_suspended}) || ({is_suspended}) || variables.isCreator || "
                f"{_may(ACCESS_GRANTS, messages.UNSUSPEND)}",
                messages.FOREIGN_UNSUSPEND,
            ),
            _forbidden(_keeps_finalizer(FINALIZER, controllers.grants, ACCESS_GRANTS), messages.NOT_FINISHED),
            *(_may_use(index, message) for index, message in enumerate(messages.LOGIN_MESSAGES)),
        ),
    )


_APPROVALS: Final = AdmissionPolicy(
    APPROVALS_POLICY,
    (_matched(ACCESS_APPROVALS, Operation.CREATE, Operation.UPDATE),),
    (),
    _OF_CREATOR,
    (*_PROVES_CREATOR, _invalid("oldObject == null || object.spec == oldObject.spec", messages.APPROVAL_CHANGED)),
)


def _bastions(controllers: Controllers) -> AdmissionPolicy:
    by_grants = f"{_USER} == '{controllers.grants}'"
    return AdmissionPolicy(
        BASTIONS_POLICY,
        (
            _matched(BASTIONS, Operation.CREATE, Operation.UPDATE),
            _matched(BASTIONS, Operation.UPDATE, status=True),
        ),
        (),
        (),
        (
            _forbidden(f"!({_ON_STATUS}) || {_USER} == '{controllers.bastions}'", messages.STATUS_OF_BASTIONS),
            _forbidden(f"!({_CREATES}) || {by_grants}", messages.BASTION_MADE),
            _forbidden(f"oldObject == null || object.spec == oldObject.spec || {by_grants}", messages.BASTION_CHANGED),
            _forbidden(
                _keeps_finalizer(BASTION_FINALIZER, controllers.bastions, BASTIONS), messages.BASTION_NOT_FINISHED
            ),
        ),
    )


__all__ = [
    "APPROVALS_POLICY",
    "BASTIONS_POLICY",
    "GRANTS_POLICY",
    "Controllers",
    "access_policies",
]
