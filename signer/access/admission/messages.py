"""What people read when a request is refused. The policies and the webhook say the same."""

from __future__ import annotations

from typing import Final

from signer.model.access.grant import CREATED_BY_ANNOTATION, HEARTBEAT_ANNOTATION, OPERATION_ANNOTATION
from signer.model.access.metadata import API_GROUP
from signer.model.access.targets import MAXIMUM_LOGINS

USE: Final = "use"
"""RBAC verb on the virtual resource ``logins``."""
UNSUSPEND: Final = "unsuspend"
"""RBAC verb on ``accessgrants``."""
FINALIZE: Final = "finalize"
"""RBAC verb on ``accessgrants`` and ``bastions``, for the day when a controller is gone for good."""
LOGINS: Final = "logins"
"""The virtual resource: no such objects exist."""

_AS_PRINTED: Final = "as kubectl auth whoami prints it"
NOT_YOUR_NAME: Final = f"spec.createdBy.username must be your own name, {_AS_PRINTED}"
NOT_YOUR_UID: Final = f"spec.createdBy.uid must be your own UID, {_AS_PRINTED}"
NOT_YOUR_GROUPS: Final = "spec.createdBy.groups must be your own groups, as kubectl auth whoami prints them"
ANOTHER_ANNOTATION: Final = f"annotation {CREATED_BY_ANNOTATION} must be spec.createdBy.username"
FOREIGN_INGRESS: Final = "only the creator may change spec.ingress"
FOREIGN_KEEPALIVE: Final = f"only the creator may set annotation {OPERATION_ANNOTATION}; only the controller removes it"
FOREIGN_HEARTBEAT: Final = f"only the creator may change annotation {HEARTBEAT_ANNOTATION}"
FOREIGN_UNSUSPEND: Final = (
    f"spec.suspend: only the creator, or who has the RBAC verb {UNSUSPEND} on this accessgrant, may take it back"
)
_IN_AN_EMERGENCY: Final = f"in an emergency, who has the RBAC verb {FINALIZE}"
NOT_FINISHED: Final = f"only the controller removes its finalizer, when nothing is left; {_IN_AN_EMERGENCY}"
STATUS_OF_GRANTS: Final = "only the controller of grants writes the status of accessgrants"
APPROVAL_CHANGED: Final = "an approval never changes: make a new one"
BASTION_MADE: Final = "only the controller of grants makes bastions: make an accessgrant"
BASTION_CHANGED: Final = "only the controller of grants changes the spec of bastions"
BASTION_NOT_FINISHED: Final = (
    f"only the controller of bastions removes its finalizer, when nothing is left; {_IN_AN_EMERGENCY}"
)
STATUS_OF_BASTIONS: Final = "only the controller of bastions writes the status of bastions"

IMMUTABLE: Final = (
    "clusterRef",
    "target",
    "logins",
    "sshPublicKey",
    "bastion",
    "duration",
    "permissions",
    "reason",
    "ticket",
    "createdBy",
)
"""Fields of a grant's spec that are never changed, added or removed."""


def changed(field: str) -> str:
    """A field of :data:`IMMUTABLE` changed."""
    return f"spec.{field} never changes: make a new accessgrant"


def may_not_use(index: int) -> str:
    """The creator lacks the right to a login. A message of a policy cannot name the login."""
    of = f"spec.logins[{index}] (root, if you name none; container, for a container)"
    return f"{of}: you need the RBAC verb {USE} on {LOGINS}.{API_GROUP} of that name"


LOGIN_MESSAGES: Final = tuple(may_not_use(index) for index in range(MAXIMUM_LOGINS))
