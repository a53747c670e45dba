"""The rules of :mod:`signer.access.admission.policies` as a function, for API servers before 1.30.

It also says what CEL rules of the definitions say from 1.25 on, because older API servers have none of them: it parses
the spec.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from signer.access.admission import messages
from signer.access.admission.policies import Controllers
from signer.access.admission.review import AccessRequest, Allowed, Judgement, Kind, NoObject, Refused, User
from signer.admission.policy import Operation, RefusalReason
from signer.kube.client import JsonObject
from signer.kube.resources import ACCESS_GRANTS, BASTIONS
from signer.model.access import InvalidAccessObject, parse_access_approval, parse_access_grant
from signer.model.access.bastion import FINALIZER as BASTION_FINALIZER
from signer.model.access.grant import (
    CREATED_BY_ANNOTATION,
    FINALIZER,
    HEARTBEAT_ANNOTATION,
    OPERATION_ANNOTATION,
)
from signer.model.access.targets import CONTAINER_LOGIN, DEFAULT_LOGINS
from signer.model.fields import items_of, mapping_of, text_of

_FORBIDDEN: Final = RefusalReason.FORBIDDEN
_INVALID: Final = RefusalReason.INVALID
_NOT_YET: Final[Mapping[str, str]] = {"uid": "not-yet", "creationTimestamp": "2000-01-01T00:00:00Z", "name": "not-yet"}
"""What the API server may set after admission."""


@dataclass(frozen=True, slots=True)
class Right:
    """A right that the user of a request may need; a SubjectAccessReview answers."""

    plural: str
    name: str
    verb: str


@dataclass(frozen=True, slots=True)
class Need:
    """A right without which the request is refused."""

    right: Right
    message: str
    """Of the refusal."""


@dataclass(frozen=True, slots=True)
class NeedsRights:
    """The request passes if its user has each of these rights, all in the request's namespace."""

    needs: tuple[Need, ...]


def judge(request: AccessRequest, controllers: Controllers) -> Judgement | NeedsRights:
    """Whether the request may be carried out, as far as the request itself tells.

    Rights are needed only where nothing else refuses the request, so that as few requests as possible ask about rights.
    """
    rules = {Kind.GRANT: _of_grant, Kind.APPROVAL: _of_approval, Kind.BASTION: _of_bastion}[request.kind]
    for refusal in rules(request, controllers):
        return refusal
    needs = tuple(_needs(request, controllers))
    return NeedsRights(needs) if needs else Allowed()


def creator_patch(request: AccessRequest) -> tuple[JsonObject, ...]:
    """The JSON Patch that makes the user the creator, as the mutating policy does; empty but at creation."""
    if request.operation is not Operation.CREATE or request.kind is Kind.BASTION:
        return ()
    annotations = dict(mapping_of(mapping_of(request.new, "metadata"), "annotations"))
    creator: JsonObject = {"username": request.user.username, "groups": sorted(request.user.groups)}
    if request.user.uid:
        creator["uid"] = request.user.uid
    return (
        {
            "op": "add",
            "path": "/metadata/annotations",
            "value": {**annotations, CREATED_BY_ANNOTATION: request.user.username},
        },
        {"op": "add", "path": "/spec/createdBy", "value": creator},
    )


def _of_grant(request: AccessRequest, controllers: Controllers) -> Iterator[Refused]:
    is_controller = request.user.username == controllers.grants
    if request.is_on_status:
        if not is_controller:
            yield Refused(messages.STATUS_OF_GRANTS, _FORBIDDEN)
        return
    yield from _creator_is_user(request)
    yield from _immutable(request)
    is_creates, is_creator = request.operation is Operation.CREATE, _is_creator(request)
    if not is_creates and _list(request.new, "ingress") != _list(_old(request), "ingress") and not is_creator:
        yield Refused(messages.FOREIGN_INGRESS, _FORBIDDEN)
    operation = _annotation(request.new, OPERATION_ANNOTATION)
    is_kept = operation == _annotation(_old(request), OPERATION_ANNOTATION)
    if not (is_creates or is_kept or is_creator or (is_controller and not operation)):
        yield Refused(messages.FOREIGN_KEEPALIVE, _FORBIDDEN)
    before, after = (_annotation(of, HEARTBEAT_ANNOTATION) for of in (_old(request), request.new))
    if not (is_creates or before == after or is_creator):
        yield Refused(messages.FOREIGN_HEARTBEAT, _FORBIDDEN)
    yield from _well_formed(request)


def _of_approval(request: AccessRequest, _: Controllers) -> Iterator[Refused]:
    yield from _creator_is_user(request)
    if not isinstance(request.old, NoObject) and _spec(request.new) != _spec(request.old):
        yield Refused(messages.APPROVAL_CHANGED, _INVALID)
    yield from _well_formed(request)


def _of_bastion(request: AccessRequest, controllers: Controllers) -> Iterator[Refused]:
    if request.is_on_status:
        if request.user.username != controllers.bastions:
            yield Refused(messages.STATUS_OF_BASTIONS, _FORBIDDEN)
        return
    if request.user.username != controllers.grants:
        if isinstance(request.old, NoObject):
            yield Refused(messages.BASTION_MADE, _FORBIDDEN)
        elif _spec(request.new) != _spec(request.old):
            yield Refused(messages.BASTION_CHANGED, _FORBIDDEN)


def _needs(request: AccessRequest, controllers: Controllers) -> Iterator[Need]:
    """In the order of the policies."""
    if request.is_on_status or request.kind is Kind.APPROVAL:
        return
    if _takes_suspension_back(request) and not _is_creator(request):
        yield Need(Right(ACCESS_GRANTS.plural, request.name, messages.UNSUSPEND), messages.FOREIGN_UNSUSPEND)
    if request.kind is Kind.GRANT:
        finalizer, plural, controller, message = (
            FINALIZER,
            ACCESS_GRANTS.plural,
            controllers.grants,
            messages.NOT_FINISHED,
        )
    else:
        finalizer, plural = BASTION_FINALIZER, BASTIONS.plural
        controller, message = controllers.bastions, messages.BASTION_NOT_FINISHED
    if _drops(request, finalizer) and request.user.username != controller:
        yield Need(Right(plural, request.name, messages.FINALIZE), message)
    if request.kind is Kind.GRANT and request.operation is Operation.CREATE:
        for login, message in zip(_logins(request), messages.LOGIN_MESSAGES, strict=False):
            yield Need(Right(messages.LOGINS, login, messages.USE), message)


def _creator_is_user(request: AccessRequest) -> Iterator[Refused]:
    claimed = mapping_of(_spec(request.new), "createdBy")
    if request.operation is Operation.CREATE:
        if text_of(claimed, "username") != request.user.username:
            yield Refused(messages.NOT_YOUR_NAME, _FORBIDDEN)
        if text_of(claimed, "uid") != request.user.uid:
            yield Refused(messages.NOT_YOUR_UID, _FORBIDDEN)
        if {one for one in items_of(claimed, "groups") if isinstance(one, str)} != request.user.groups:
            yield Refused(messages.NOT_YOUR_GROUPS, _FORBIDDEN)
    mirrored = _annotation(request.new, CREATED_BY_ANNOTATION)
    if mirrored and mirrored != text_of(claimed, "username"):
        yield Refused(messages.ANOTHER_ANNOTATION, _FORBIDDEN)


def _immutable(request: AccessRequest) -> Iterator[Refused]:
    if isinstance(request.old, NoObject):
        return
    new, old = _spec(request.new), _spec(request.old)
    for field in messages.IMMUTABLE:
        if new.get(field) != old.get(field):
            yield Refused(messages.changed(field), _INVALID)


def _well_formed(request: AccessRequest) -> Iterator[Refused]:
    """What CEL rules of the definitions say elsewhere. An object that stays as it was may always go."""
    if not isinstance(request.old, NoObject) and _spec(request.new) == _spec(request.old):
        return
    metadata = {**_NOT_YET, **mapping_of(request.new, "metadata"), "namespace": request.namespace}
    parse = parse_access_grant if request.kind is Kind.GRANT else parse_access_approval
    try:
        parse({**request.new, "metadata": metadata})
    except InvalidAccessObject as error:
        yield Refused(str(error), _INVALID)


def _is_creator(request: AccessRequest) -> bool:
    """Whether the user made the object that is changed."""
    creator = mapping_of(_spec(_old(request)), "createdBy")
    stated = User(text_of(creator, "username"), text_of(creator, "uid"), request.user.groups)
    return bool(stated.username) and stated == request.user


def _takes_suspension_back(request: AccessRequest) -> bool:
    was, is_now = (_spec(of).get("suspend") is True for of in (_old(request), request.new))
    return request.kind is Kind.GRANT and was and not is_now


def _drops(request: AccessRequest, finalizer: str) -> bool:
    before, after = (items_of(mapping_of(of, "metadata"), "finalizers") for of in (_old(request), request.new))
    return finalizer in before and finalizer not in after


def _logins(request: AccessRequest) -> tuple[str, ...]:
    spec = _spec(request.new)
    if mapping_of(spec, "target").get("container") is not None:
        return (CONTAINER_LOGIN,)
    stated = spec.get("logins")
    return tuple(one for one in stated if isinstance(one, str)) if isinstance(stated, list) else DEFAULT_LOGINS


def _old(request: AccessRequest) -> Mapping[str, Any]:
    return {} if isinstance(request.old, NoObject) else request.old


def _spec(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    return mapping_of(manifest, "spec")


def _list(manifest: Mapping[str, Any], field: str) -> list[Any]:
    return items_of(_spec(manifest), field)


def _annotation(manifest: Mapping[str, Any], name: str) -> str:
    return text_of(mapping_of(mapping_of(manifest, "metadata"), "annotations"), name)
