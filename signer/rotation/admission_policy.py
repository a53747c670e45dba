"""The admission policy of the rotation: who may ask for an operation on a NodeAttestationPolicy, and when.

Operations are annotations, and RBAC cannot tell annotations apart: everybody who may edit a NodeAttestationPolicy could
start a rotation. So the policy asks for a verb of its own, ``rotate-ca`` on nodeattestationpolicies. The phase comes
from the status, which may be late: the controller checks all of it again.

An annotation that an update leaves as it was, or removes, needs nothing. A CustomResourceDefinition's own CEL rules
cannot see annotations. They are not used here for that reason.
"""

from __future__ import annotations

from typing import Final

from signer.admission.policy import (
    AdmissionPolicy,
    DryRunVerb,
    MatchCondition,
    MatchedResource,
    Proof,
    RefusalReason,
    Validation,
    Variable,
)
from signer.admission.policy import Operation as Request
from signer.rotation.operations import NAMES, OPERATION_ANNOTATION, SKIP_GATES_ANNOTATION, Operation
from signer.rotation.phases import Phase

_GROUP: Final = "attestation.cluster.x-k8s.io"
_PLURAL: Final = "nodeattestationpolicies"

ROTATE_VERB: Final = "rotate-ca"
"""RBAC verb on nodeattestationpolicies. No request has it; only this policy asks for it. The controller cannot: an
annotation does not say who wrote it."""

START: Final = tuple(name for name, operation in NAMES.items() if operation.is_start)
"""GEP-18's names, and Gardener's of today."""
COMPLETE: Final = tuple(name for name, operation in NAMES.items() if operation is Operation.COMPLETE)
ROLL_BACK: Final = (Operation.ROLLBACK.value,)
RETRY: Final = (Operation.RETRY.value,)
ABANDON: Final = (Operation.ABANDON.value,)
ROTATE_NODE_CLIENT: Final = (Operation.ROTATE_NODE_CLIENT.value,)
ON_SSH: Final = tuple(name for name, operation in NAMES.items() if operation.is_on_ssh)
"""Which of them is possible when, the controller alone answers."""
OPERATIONS: Final = (*START, *COMPLETE, *ROLL_BACK, *RETRY, *ABANDON, *ROTATE_NODE_CLIENT, *ON_SSH)

_DOCUMENTED: Final = "start-ca-rotation, start-ca-rotation-without-workers-rollout, complete-ca-rotation, " + (
    "rollback-ca-rotation, retry-ca-rotation, abandon-ca-rotation, rotate-node-client-authority, "
    "start-ssh-ca-rotation, complete-ssh-ca-rotation, rollback-ssh-ca-rotation, retry-ssh-ca-rotation, "
    "revoke-ssh-user-ca or revoke-ssh-host-ca"
)
UNKNOWN_OPERATION: Final = f"unknown operation: set {OPERATION_ANNOTATION} to {_DOCUMENTED}"
_ASK: Final = f"needs the RBAC verb {ROTATE_VERB} on this nodeattestationpolicy: ask an administrator for it"
NOT_ALLOWED: Final = f"{OPERATION_ANNOTATION} {_ASK}"
SKIP_NOT_ALLOWED: Final = f"{SKIP_GATES_ANNOTATION} {_ASK}"
START_TOO_EARLY: Final = "a rotation is under way: complete it or roll it back before you start another"
COMPLETE_TOO_EARLY: Final = (
    "there is nothing to complete: wait until status.credentials.rotation.certificateAuthorities.phase is Prepared"
)
NO_WAY_BACK: Final = (
    "there is no way back: a rotation can be rolled back while "
    "status.credentials.rotation.certificateAuthorities.rollbackAvailable is Full or ClientsOnly"
)
NODE_CLIENT_TOO_EARLY: Final = "a rotation is under way: complete it or roll it back first"
NOTHING_TO_RETRY: Final = "there is nothing to retry: no rotation is under way"
NOTHING_TO_ABANDON: Final = "there is nothing to abandon: no rotation is under way"


def _list(texts: tuple[str, ...]) -> str:
    """A CEL list of texts; none of them has a character that CEL escapes."""
    return "[" + ", ".join(f"'{text}'" for text in texts) + "]"


def _is_set(holder: str, annotation: str) -> str:
    return f"has({holder}.metadata.annotations) && '{annotation}' in {holder}.metadata.annotations"


def _value(holder: str, annotation: str) -> str:
    return f"{holder}.metadata.annotations['{annotation}']"


def _is_asked(annotation: str) -> str:
    """The annotation is there, and was not there before with that value. A creation has no ``oldObject``."""
    before = f"oldObject != null && {_is_set('oldObject', annotation)}"
    same = f"{_value('oldObject', annotation)} == {_value('object', annotation)}"
    return f"{_is_set('object', annotation)} && !({before} && {same})"


def _status(field: str) -> str:
    """A field of ``status.credentials.rotation.certificateAuthorities``, empty if it is not there.

    Of the old object: the API server ignores the status in a request for the object.
    """
    path = "oldObject"
    found = ["oldObject != null"]
    for part in ("status", "credentials", "rotation", "certificateAuthorities", field):
        path = f"{path}.{part}"
        found.append(f"has({path})")
    return f"{' && '.join(found)} ? {path} : ''"


def _only_if(operations: tuple[str, ...], condition: str) -> str:
    return f"!(variables.operation in {_list(operations)}) || {condition}"


_OVER: Final = ("", *(phase.value for phase in Phase if phase.is_over))
_UNDER_WAY: Final = f"!(variables.phase in {_list(_OVER)})"

OPERATIONS_POLICY: Final = AdmissionPolicy(
    name="node-attestation-rotation",
    resources=(
        MatchedResource(
            _GROUP,
            _PLURAL,
            (Request.CREATE, Request.UPDATE),
            namespaced=True,
        ),
    ),
    match_conditions=(
        MatchCondition(
            "asks-for-an-operation",
            f"({_is_asked(OPERATION_ANNOTATION)}) || ({_is_asked(SKIP_GATES_ANNOTATION)})",
        ),
    ),
    variables=(
        Variable("asksForOperation", _is_asked(OPERATION_ANNOTATION)),
        Variable("asksToSkip", _is_asked(SKIP_GATES_ANNOTATION)),
        Variable("operation", f"variables.asksForOperation ? {_value('object', OPERATION_ANNOTATION)} : ''"),
        Variable("phase", _status("phase")),
        Variable("rollbackAvailable", _status("rollbackAvailable")),
        Variable(
            "mayRotate",
            f"authorizer.group('{_GROUP}').resource('{_PLURAL}')"
            f".namespace(object.metadata.namespace).name(object.metadata.name).check('{ROTATE_VERB}').allowed()",
        ),
    ),
    validations=(
        Validation(
            f"!variables.asksForOperation || variables.operation in {_list(OPERATIONS)}",
            UNKNOWN_OPERATION,
            RefusalReason.INVALID,
        ),
        Validation("!variables.asksForOperation || variables.mayRotate", NOT_ALLOWED, RefusalReason.FORBIDDEN),
        Validation("!variables.asksToSkip || variables.mayRotate", SKIP_NOT_ALLOWED, RefusalReason.FORBIDDEN),
        Validation(_only_if(START, f"!({_UNDER_WAY})"), START_TOO_EARLY, RefusalReason.INVALID),
        Validation(_only_if(COMPLETE, "variables.phase == 'Prepared'"), COMPLETE_TOO_EARLY, RefusalReason.INVALID),
        Validation(
            _only_if(ROLL_BACK, "variables.rollbackAvailable in ['Full', 'ClientsOnly']"),
            NO_WAY_BACK,
            RefusalReason.INVALID,
        ),
        Validation(_only_if(RETRY, _UNDER_WAY), NOTHING_TO_RETRY, RefusalReason.INVALID),
        Validation(_only_if(ABANDON, _UNDER_WAY), NOTHING_TO_ABANDON, RefusalReason.INVALID),
        Validation(_only_if(ROTATE_NODE_CLIENT, f"!({_UNDER_WAY})"), NODE_CLIENT_TOO_EARLY, RefusalReason.INVALID),
    ),
)
"""Installed while rotation is switched on."""

_PROOF_OPERATION: Final = "proof-of-the-admission-policy"
"""No operation, and never stored."""


OPERATIONS_PROOF: Final = Proof(
    DryRunVerb.PATCH,
    refused={"metadata": {"annotations": {OPERATION_ANNOTATION: _PROOF_OPERATION}}},
    message=UNKNOWN_OPERATION,
    accepted={"metadata": {"annotations": {OPERATION_ANNOTATION: None}}},
)
"""With any NodeAttestationPolicy that exists: the controller may patch such objects, and not create them."""
