"""The operations on a rotation: annotation ``attestation.cluster.x-k8s.io/operation`` of a NodeAttestationPolicy.

The names are those of GEP-0018, and Gardener's of today as aliases (``pkg/apis/core/v1beta1/constants``). Ours are that
on the node-client authority alone, and those on the SSH authorities, which :mod:`signer.ssh` carries out.

GEP-0018 counts on an annotation that raises the generation. Annotations do not, so the record remembers the operation
by the policy's UID and the time at which the annotation was written. That is in ``metadata.managedFields``; a write of
the policy's status changes the resourceVersion, and not this time.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from attestors.wire.names import ANNOTATION_PREFIX
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.seal import joined
from signer.rotation.phases import Phase, RollbackAvailable

OPERATION_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/operation"
SKIP_GATES_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/skip-gates"
MAXIMUM_SHOWN_CHARACTERS: Final = 64


class Operation(enum.Enum):
    """What a person may order."""

    START = "start-ca-rotation"
    START_WITHOUT_WORKERS_ROLLOUT = "start-ca-rotation-without-workers-rollout"
    COMPLETE = "complete-ca-rotation"
    ROLLBACK = "rollback-ca-rotation"
    RETRY = "retry-ca-rotation"
    ABANDON = "abandon-ca-rotation"
    ROTATE_NODE_CLIENT = "rotate-node-client-authority"
    """Of the node-client authority alone: no rotation of the CAs, and none may be under way."""
    START_SSH = "start-ssh-ca-rotation"
    COMPLETE_SSH = "complete-ssh-ca-rotation"
    ROLLBACK_SSH = "rollback-ssh-ca-rotation"
    RETRY_SSH = "retry-ssh-ca-rotation"
    """Go on without waiting for the gates that it names."""
    REVOKE_SSH_USER = "revoke-ssh-user-ca"
    """A thief has the user authority: another one signs, and no other is trusted, at once."""
    REVOKE_SSH_HOST = "revoke-ssh-host-ca"

    @property
    def is_start(self) -> bool:
        """Whether it begins a rotation."""
        return self in (Operation.START, Operation.START_WITHOUT_WORKERS_ROLLOUT)

    @property
    def is_on_ssh(self) -> bool:
        """Whether it is on the SSH authorities."""
        return self in SSH_OPERATIONS


SSH_OPERATIONS: Final = frozenset(
    {
        Operation.START_SSH,
        Operation.COMPLETE_SSH,
        Operation.ROLLBACK_SSH,
        Operation.RETRY_SSH,
        Operation.REVOKE_SSH_USER,
        Operation.REVOKE_SSH_HOST,
    }
)
"""They need no rotation of the CAs, and go on beside one."""

ALIASES: Final[Mapping[str, Operation]] = {
    "rotate-ca-start": Operation.START,
    "rotate-ca-start-without-workers-rollout": Operation.START_WITHOUT_WORKERS_ROLLOUT,
    "rotate-ca-complete": Operation.COMPLETE,
    "rotate-ssh-ca-start": Operation.START_SSH,
    "rotate-ssh-keypair": Operation.START_SSH,
    "rotate-ssh-ca-complete": Operation.COMPLETE_SSH,
}
"""``rotate-ssh-keypair`` is Gardener's, and of GEP-0015: it means the keys by which people log in to nodes."""
NAMES: Final[Mapping[str, Operation]] = {**{one.value: one for one in Operation}, **ALIASES}
"""Every accepted value of the annotation."""


@dataclass(frozen=True, slots=True)
class Order:
    """One operation that somebody wrote on the policy."""

    operation: Operation
    identifier: str
    """Of this writing of the annotation: the same order is never carried out twice."""
    skip_gates: tuple[str, ...] = ()
    """The gates that the same version of the policy names, for the record."""


@dataclass(frozen=True, slots=True)
class UnknownOperation:
    """The annotation has a value that is no operation."""

    value: str
    """As text that can be shown."""


@dataclass(frozen=True, slots=True)
class NoOrder:
    """The policy has no such annotation."""


ReadOrder: TypeAlias = Order | UnknownOperation | NoOrder


class Gate(enum.Enum):
    """A gate that an operator may skip in an emergency; the record keeps that for ever."""

    OVERLAP = "overlap"
    """The time in which both CAs are trusted, before the old one is dropped."""
    TRUST_AGE = "trust-age"
    """The time that clients have to read the new CA, before an API server presents it."""
    UNREACHABLE_NODES = "unreachable-nodes"
    """Nodes that have not attested since the new CA exists."""
    MACHINES = "machines"
    """Machines that have not joined yet, and pin the old CA."""


_GATES: Final = {gate.value: gate for gate in Gate}


class UnknownGate(ValueError):
    """The annotation names something that is no gate; the message lists those that are."""


def read_order(policy: Mapping[str, Any]) -> ReadOrder:
    """The order on a NodeAttestationPolicy from the API server."""
    metadata = mapping_of(policy, "metadata")
    annotations = mapping_of(metadata, "annotations")
    value = text_of(annotations, OPERATION_ANNOTATION)
    if not value:
        return NoOrder()
    operation = NAMES.get(value)
    if operation is None:
        return UnknownOperation(printable(value[:MAXIMUM_SHOWN_CHARACTERS]))
    identifier = f"{text_of(metadata, 'uid')}/{_written(metadata)}"
    skipped = text_of(annotations, SKIP_GATES_ANNOTATION).split(",")
    return Order(operation, identifier, tuple(filter(None, (one.strip() for one in skipped))))


def _written(metadata: Mapping[str, Any]) -> str:
    """What tells this writing of the annotation from others: its writer, time and value, or else the version."""
    parts = []
    for one in items_of(metadata, "managedFields"):
        entry = one if isinstance(one, Mapping) else {}
        owned = mapping_of(mapping_of(mapping_of(entry, "fieldsV1"), "f:metadata"), "f:annotations")
        if f"f:{OPERATION_ANNOTATION}" in owned:
            parts += [text_of(entry, "manager"), text_of(entry, "operation"), text_of(entry, "time")]
    if not parts:
        return text_of(metadata, "resourceVersion")
    parts.append(text_of(mapping_of(metadata, "annotations"), OPERATION_ANNOTATION))
    return hashlib.sha256(joined(*parts).encode("utf-8", "surrogatepass")).hexdigest()


def read_gates(names: tuple[str, ...]) -> frozenset[Gate]:
    """The gates of those names.

    Raises:
        UnknownGate: one is none.
    """
    unknown = [name for name in names if name not in _GATES]
    if unknown:
        shown = printable(unknown[0][:MAXIMUM_SHOWN_CHARACTERS])
        raise UnknownGate(f"{shown!r} is no gate that can be skipped: those are {', '.join(_GATES)}")
    return frozenset(_GATES[name] for name in names)


@dataclass(frozen=True, slots=True)
class NeverRotated:
    """No rotation was ever started."""


class OperationRejected(Exception):
    """The operation is not possible now; the message says why, and what is."""


def require_possible(
    operation: Operation, phase: Phase | NeverRotated, rollback: RollbackAvailable, *, stalled: bool
) -> None:
    """The operation may be ordered in that phase. The facts that it needs besides are asked when it is carried out.

    Raises:
        OperationRejected: it may not.
    """
    shown = "no rotation was started" if isinstance(phase, NeverRotated) else f"the rotation is {phase.value}"
    over = isinstance(phase, NeverRotated) or phase.is_over
    match operation:
        case Operation.START | Operation.START_WITHOUT_WORKERS_ROLLOUT:
            if not over:
                raise OperationRejected(f"{shown}: complete it or roll it back before you start another one")
        case Operation.COMPLETE:
            if phase is not Phase.PREPARED:
                raise OperationRejected(f"{shown}: a rotation is completed once it is {Phase.PREPARED.value}")
        case Operation.ROLLBACK:
            if over or rollback is RollbackAvailable.NONE:
                raise OperationRejected(
                    f"{shown}: nothing can be rolled back"
                    + ("" if over else "; to replace the new CA, complete this rotation and start another one")
                )
        case Operation.RETRY:
            if not stalled:
                raise OperationRejected(f"{shown}, and not stalled: there is nothing to retry")
        case Operation.ABANDON:
            if over:
                raise OperationRejected(f"{shown}: there is nothing to abandon")
        case Operation.ROTATE_NODE_CLIENT:
            raise OperationRejected(f"{shown}: this operation is on the node-client authority")
        case _:
            assert operation.is_on_ssh
            raise OperationRejected(f"{shown}: this operation is on the SSH authorities")
