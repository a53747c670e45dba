"""Orders an operation on a rotation: writes the policy's annotation, and waits for the controller's answer."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias

from signer.cli.parsers.rotate import ANSWERED_WITHIN_SECONDS
from signer.cli.rotate_reading import read_policy, read_rotation
from signer.kube.calls import Get, Patch
from signer.kube.client import JsonObject
from signer.kube.errors import Conflict, Invalid
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.rotation.node_client.shown import NODE_CLIENT_CONDITION, retiring_in
from signer.rotation.operations import OPERATION_ANNOTATION, SKIP_GATES_ANNOTATION, Gate, Operation
from signer.rotation.phases import Phase, RollbackAvailable
from signer.rotation.view import RotationView, View, rejection, rotation_view
from signer.ssh.condition_types import SSH_OPERATION_REJECTED

_REASON_WITHIN_SECONDS: Final = 5.0
"""The controller takes the annotation away before it writes the condition with the reason."""
_LOOK_SECONDS: Final = 0.3
_MOST_CONFLICTS: Final = 5
_CONDITIONS: Final = "`rotate … status` shows it"


class ReadAndPatch(Get, Patch, Protocol):
    """The calls of an order."""


class NotOrdered(Exception):
    """Nothing was ordered; the message says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for."""

    operation: Operation
    gates: frozenset[Gate] = frozenset()


class Answer(enum.Enum):
    """The controller's answer; the value is for scripts."""

    ACCEPTED = "Accepted"
    REJECTED = "Rejected"
    NONE = "NoAnswer"
    NOT_AWAITED = "NotAwaited"


@dataclass(frozen=True, slots=True)
class OrderAnswer:
    """An order with its answer."""

    cluster: ClusterKey
    operation: Operation
    answer: Answer
    message: str


Confirm: TypeAlias = Callable[[View, Asked], bool]


async def place(
    management: ReadAndPatch, key: ClusterKey, asked: Asked, *, confirm: Confirm, waits: bool
) -> OrderAnswer:
    """Order it, once ``confirm`` has agreed to what it was shown, and wait for the answer if ``waits``.

    Raises:
        NotOrdered: ``confirm`` did not agree, another order waits, or the rotation has gone on meanwhile.
        NoPolicy, ApiError: see :func:`~signer.cli.rotate_reading.read_policy`.
    """
    policy, rotation = await read_policy(management, key), await read_rotation(management, key)
    before = rotation_view(key, policy, rotation)
    if before.pending_order:
        raise NotOrdered(
            f"annotation {OPERATION_ANNOTATION} already holds {before.pending_order}, which no controller has taken"
        )
    if not confirm(before, asked):
        raise NotOrdered("nothing was ordered")
    try:
        await _annotate(management, key, asked, policy, before)
    except Invalid as error:  # the admission policy
        return OrderAnswer(key, asked.operation, Answer.REJECTED, f"rejected: {printable(error.message)}")
    if not waits:
        message = f"{asked.operation.value} is ordered; {_CONDITIONS}"
        return OrderAnswer(key, asked.operation, Answer.NOT_AWAITED, message)
    if asked.operation is Operation.ROTATE_NODE_CLIENT:
        return await _answer_of_node_client(management, key, before)
    if asked.operation.is_on_ssh:
        return await _answer_of_ssh(management, key, asked.operation, policy)
    return await _answer(management, key, asked.operation, rotation)


async def _annotate(management: ReadAndPatch, key: ClusterKey, asked: Asked, policy: JsonObject, before: View) -> None:
    """Write the annotations on exactly the version that was shown, or on a later one in which the rotation is the same:
    the controller writes the policy's status often.
    """
    gates = ",".join(sorted(gate.value for gate in asked.gates))
    annotations = {OPERATION_ANNOTATION: asked.operation.value, SKIP_GATES_ANNOTATION: gates or None}
    path = NODE_ATTESTATION_POLICIES.object(key.name, key.namespace)
    for _ in range(_MOST_CONFLICTS):
        version = mapping_of(policy, "metadata").get("resourceVersion")
        try:
            await management.patch(path, {"metadata": {"resourceVersion": version, "annotations": annotations}})
        except Conflict:
            policy = await read_policy(management, key)
            now = rotation_view(key, policy, await read_rotation(management, key))
            if _place(now) != _place(before):
                raise NotOrdered("nothing was ordered: the rotation has gone on meanwhile; look again") from None
            continue
        return
    raise NotOrdered("nothing was ordered: the policy changes all the time")


def _place(view: View) -> tuple[object, ...]:
    """What a person has decided by."""
    if isinstance(view, RotationView):
        return view.rotation_id, view.phase, view.step, view.rollback_available, view.pending_order
    return (view.fault, view.pending_order)


async def _answer(management: Get, key: ClusterKey, operation: Operation, rotation_before: JsonObject) -> OrderAnswer:
    policy = await _look_until(
        lambda: read_policy(management, key), lambda policy: not _waits(policy, operation), ANSWERED_WITHIN_SECONDS
    )
    if _waits(policy, operation):
        return _not_taken(key, operation)
    # The record is written before the annotation is taken away.
    rotation = await read_rotation(management, key)
    if _carried_out(rotation) != _carried_out(rotation_before):
        return OrderAnswer(key, operation, Answer.ACCEPTED, f"{operation.value} is accepted; {_CONDITIONS}")
    return await _rejection(management, key, operation)


async def _answer_of_node_client(management: Get, key: ClusterKey, before: View) -> OrderAnswer:
    """Its state is in Secrets, which the person may not be able to read. The condition shows it."""
    operation = Operation.ROTATE_NODE_CLIENT
    policy = await _look_until(
        lambda: read_policy(management, key), lambda policy: not _waits(policy, operation), ANSWERED_WITHIN_SECONDS
    )
    if _waits(policy, operation):
        return _not_taken(key, operation)

    former_reason = _reason_in(before, operation)  # of an earlier order

    def accepted(policy: JsonObject) -> bool:
        now = _retiring(rotation_view(key, policy, {}))
        return now not in ("", _retiring(before))

    policy = await _look_until(
        lambda: read_policy(management, key),
        lambda policy: accepted(policy) or _reason(key, policy, operation) not in ("", former_reason),
        ANSWERED_WITHIN_SECONDS,  # for the same reason as before, too: that looks like no answer
    )
    if accepted(policy):
        message = f"{operation.value} is accepted; condition {NODE_CLIENT_CONDITION} shows it"
        return OrderAnswer(key, operation, Answer.ACCEPTED, message)
    return await _rejection(management, key, operation)


async def _answer_of_ssh(management: Get, key: ClusterKey, operation: Operation, before: JsonObject) -> OrderAnswer:
    """The state is in Secrets. The policy's status shows which order was carried out last."""
    former_orders, former_reason = _ssh_orders(before), _ssh_reason(before, operation)

    def answered(policy: JsonObject) -> bool:
        if _waits(policy, operation):
            return False
        return _ssh_orders(policy) != former_orders or _ssh_reason(policy, operation) not in ("", former_reason)

    policy = await _look_until(lambda: read_policy(management, key), answered, ANSWERED_WITHIN_SECONDS)
    if _waits(policy, operation):
        return _not_taken(key, operation)
    if _ssh_orders(policy) != former_orders:
        message = f"{operation.value} is accepted; `rotate … ssh status` shows it"
        return OrderAnswer(key, operation, Answer.ACCEPTED, message)
    if why := _ssh_reason(policy, operation):  # or the same reason as that of an order before
        return OrderAnswer(key, operation, Answer.REJECTED, f"{operation.value} is rejected: {why}")
    unclear = f"the controller has taken {operation.value}, and says neither yes nor no; `rotate … ssh status` shows it"
    return OrderAnswer(key, operation, Answer.NONE, unclear)


def _ssh_orders(policy: JsonObject) -> tuple[str, ...]:
    """The orders that each authority has carried out last."""
    rotation = mapping_of(mapping_of(mapping_of(policy, "status"), "ssh"), "rotation")
    return tuple(text_of(mapping_of(rotation, name), "order") for name in ("user", "host"))


def _ssh_reason(policy: JsonObject, operation: Operation) -> str:
    """Why the order was rejected; empty if the condition does not say so."""
    for one in items_of(mapping_of(policy, "status"), "conditions"):
        if isinstance(one, Mapping) and text_of(one, "type") == SSH_OPERATION_REJECTED:
            asked, _, why = text_of(one, "message").partition(": ")
            return why if asked == operation.value else ""
    return ""


def _retiring(view: View) -> str:
    return next((retiring_in(one.message) for one in view.conditions if one.type == NODE_CLIENT_CONDITION), "")


def _not_taken(key: ClusterKey, operation: Operation) -> OrderAnswer:
    return OrderAnswer(
        key,
        operation,
        Answer.NONE,
        f"{operation.value} is ordered, and after {ANSWERED_WITHIN_SECONDS:.0f} seconds no controller has taken "
        "it: does it run, with --rotate-authorities for this namespace, and is the workload cluster reachable? "
        f"The order stays until a controller takes it, or you remove annotation {OPERATION_ANNOTATION}",
    )


def _reason(key: ClusterKey, policy: JsonObject, operation: Operation) -> str:
    """Why the order was rejected; empty if the condition does not say so."""
    return _reason_in(rotation_view(key, policy, {}), operation)


def _reason_in(view: View, operation: Operation) -> str:
    asked, _, why = rejection(view.conditions).partition(": ")
    return why if asked == operation.value else ""


async def _rejection(management: Get, key: ClusterKey, operation: Operation) -> OrderAnswer:
    """The reason, as soon as the controller has written it in the condition."""
    policy = await _look_until(
        lambda: read_policy(management, key),
        lambda policy: bool(_reason(key, policy, operation)),
        _REASON_WITHIN_SECONDS,
    )
    if why := _reason(key, policy, operation):
        return OrderAnswer(key, operation, Answer.REJECTED, f"{operation.value} is rejected: {why}")
    unclear = f"the controller has taken {operation.value}, and says neither yes nor no; {_CONDITIONS}"
    return OrderAnswer(key, operation, Answer.NONE, unclear)


async def _look_until(read: Any, is_enough: Callable[[JsonObject], bool], seconds: float) -> JsonObject:
    """The first policy that is enough, or the last one that was read in that time."""
    clock = asyncio.get_running_loop()
    end = clock.time() + seconds
    while True:
        found: JsonObject = await read()
        if is_enough(found) or clock.time() >= end:
            return found
        await asyncio.sleep(_LOOK_SECONDS)


def _waits(policy: Mapping[str, Any], operation: Operation) -> bool:
    annotations = mapping_of(mapping_of(policy, "metadata"), "annotations")
    return text_of(annotations, OPERATION_ANNOTATION) == operation.value


def _carried_out(rotation: Mapping[str, Any]) -> str:
    """The order that was carried out last, whether it can be verified or not."""
    return text_of(mapping_of(rotation, "spec"), "operation")


# What happens

_WHAT: Final[Mapping[Operation, str]] = MappingProxyType(
    {
        Operation.START: "The controller makes a new CA, has the control plane replaced once so that it trusts both, "
        "and has the nodes' agents restart their kubelets in turn. It stops before anything presents the new CA.",
        Operation.START_WITHOUT_WORKERS_ROLLOUT: "The controller makes a new CA, and has the control plane replaced "
        "once so that it trusts both. It restarts no kubelet: you replace or restart the worker nodes. It stops before "
        "anything presents the new CA.",
        Operation.COMPLETE: "The controller replaces the old CA by the new one, has the control plane replaced twice, "
        "and then deletes the old CA's key. Every certificate and kubeconfig of the old CA stops working: exchange "
        "those of people, CI systems and add-ons first.",
        Operation.RETRY: "The controller goes on where the rotation has stopped.",
        Operation.ABANDON: "The controller leaves both CAs where they are, for good, and takes no further step. Secret "
        "<cluster>-ca decides which CA signs. Another rotation starts only once nothing uses the other CA.",
        Operation.ROTATE_NODE_CLIENT: "The controller makes another node-client authority. Once every API server "
        "accepts it, nodes with certificates of the former one renew them at once. Then the API servers are to refuse "
        "the former one, and its key is deleted. You bring client-ca.crt of the Cluster's trust Secret to every API "
        "server, twice. No server certificate changes.",
        Operation.START_SSH: "The controller makes a new user authority and a new host authority, and has nodes trust "
        "both. Once every node does, the new user authority signs. Then you give clients the new host authority.",
        Operation.COMPLETE_SSH: "The new host authority signs, and each node's certificate is renewed. The old user "
        "authority is dropped once its last certificate has ended, the old host authority once no node needs it. "
        "Clients that do not know the new host authority then refuse the hosts.",
        Operation.ROLLBACK_SSH: "The controller has the old SSH authorities sign again, and drops the new ones once no "
        "certificate of theirs is in use.",
        Operation.RETRY_SSH: "The controller goes on without waiting for the gates that you name.",
        Operation.REVOKE_SSH_USER: "The controller deletes the user authority's keys, and has a new one sign. Every "
        "certificate of the former one is refused by each node that has learned of it, and that ends no session that "
        "runs. Until a node has, log in to it by a break-glass authority.",
        Operation.REVOKE_SSH_HOST: "The controller deletes the host authority's keys, and has a new one sign. Clients "
        "must be given the new one, and must forget the former one.",
    }
)
_ROLLBACK: Final[Mapping[RollbackAvailable, str]] = MappingProxyType(
    {
        RollbackAvailable.FULL: "The controller has the old CA sign everything again, and deletes the new CA's key.",
        RollbackAvailable.CLIENTS_ONLY: "The controller has the old CA sign the nodes' client certificates again. The "
        "API servers keep those of the new CA. Then it waits for `retry`.",
        RollbackAvailable.NONE: "Nothing can be taken back now: the controller will reject it.",
    }
)
_GATES: Final[Mapping[Gate, str]] = MappingProxyType(
    {
        Gate.OVERLAP: "the time in which both CAs are trusted is cut short: clients that have not been given the new "
        "CA are locked out",
        Gate.TRUST_AGE: "clients that have not read the new CA yet fail when the API servers present it",
        Gate.UNREACHABLE_NODES: "nodes that have not attested since may have to be replaced",
        Gate.MACHINES: "Machines that have not joined yet fail to join, and must be replaced",
    }
)


def what_happens(view: View, asked: Asked) -> Iterator[str]:
    """What the operation does, and what can be taken back: lines to read before the answer."""
    yield f"Cluster {view.cluster}: {asked.operation.value}"
    rollback = view.rollback_available if isinstance(view, RotationView) else RollbackAvailable.NONE
    yield _ROLLBACK[rollback] if asked.operation is Operation.ROLLBACK else _WHAT[asked.operation]
    for gate in sorted(asked.gates, key=lambda one: one.value):
        yield f"Skips {gate.value}: {_GATES[gate]}."
    elsewhere = asked.operation is Operation.ROTATE_NODE_CLIENT or asked.operation.is_on_ssh
    on_rotation = not asked.operation.is_start and not elsewhere
    if isinstance(view, RotationView) and on_rotation:
        yield f"The rotation is {view.phase.value}, step {view.step.value}."
    yield _taken_back(view, asked.operation)


def _taken_back(view: View, operation: Operation) -> str:
    match operation:
        case Operation.START | Operation.START_WITHOUT_WORKERS_ROLLOUT:
            return "All of it can be rolled back until you complete it."
        case Operation.COMPLETE:
            return (
                "All of it can be rolled back until the first API server presents the new CA; after that only clients, "
                "or all where the old CA has no path length limit; nothing once the old CA is retired. `status` shows "
                "which."
            )
        case Operation.ROTATE_NODE_CLIENT:
            return "It cannot be taken back. Until the new one signs, the cluster's CA does."
        case Operation.START_SSH:
            return "All of it can be rolled back until the old authorities are dropped, which you order by complete."
        case Operation.COMPLETE_SSH:
            return "Each authority can be rolled back until its old one is dropped. `ssh status` shows which."
        case Operation.RETRY_SSH | Operation.REVOKE_SSH_USER | Operation.REVOKE_SSH_HOST:
            return "It cannot be taken back."
        case Operation.ROLLBACK | Operation.ROLLBACK_SSH:
            return "A rollback cannot be taken back; another rotation can be started after it."
        case Operation.ABANDON:
            return "This cannot be taken back. Prefer a rollback, where `status` says that one is possible."
        case _:
            held = isinstance(view, RotationView) and view.held
            return f"It stays in phase {Phase.COMPLETING.value}." if held else "It changes nothing else."
