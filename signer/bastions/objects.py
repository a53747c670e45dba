"""Bastion objects: from the model to the contract, and an answer of a provider to the object's status. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_line
from node_access.bastions.contract import (
    Bastion,
    BastionReference,
    Broken,
    Deleted,
    Endpoint,
    Ensured,
    Gone,
    InvalidBastion,
    Pending,
    Ready,
    Target,
    one_line,
)
from signer.bastions.host_keys import HostKeySecret
from signer.kube.client import JsonObject
from signer.model import access
from signer.model.access.bastion import READY, BastionReason
from signer.model.fields import format_time, items_of, mapping_of, text_of


@dataclass(frozen=True, slots=True)
class NotReady:
    """Clients must not connect: the status shows no address, host keys or egress."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the status is to say."""

    status: str
    """``True``, ``False`` or ``Unknown``."""
    reason: BastionReason
    message: str
    operation: str
    """``Reconcile`` or ``Delete``."""
    state: str
    """``Processing``, ``Succeeded``, ``Error`` (tried again) or ``Failed`` (not)."""
    shown: Ready | NotReady = NotReady()


def to_contract(bastion: access.Bastion, secret: HostKeySecret) -> Bastion:
    """The bastion that a provider is asked for.

    Raises:
        InvalidBastion: the contract does not allow it, such as a target of loopback.
    """
    metadata = bastion.metadata
    try:
        authorities = tuple(map(parse_key_line, bastion.user_authorities))
    except SSHRefused as error:
        raise InvalidBastion(f"user authorities: {error.message}") from error
    return Bastion(
        reference=BastionReference(metadata.uid, metadata.namespace, metadata.name, bastion.cluster.name),
        ingress=bastion.ingress,
        user_authorities=authorities,
        principal=bastion.principal,
        targets=tuple(Target(target.addresses, target.port) for target in bastion.targets),
        not_after=bastion.not_after,
        host_key=secret.key_of(metadata.uid),
    )


def ensured(answer: Ensured, note: str = "") -> Report:
    """What an answer of ``ensure`` means for the status. ``note`` is a sentence about a bastion that is ready."""
    match answer:
        case Ready():
            message = one_line(f"The bastion is ready. {note}")
            return Report("True", BastionReason.SUCCEEDED, message, "Reconcile", "Succeeded", answer)
        case Pending(reason):
            return Report(
                "False", BastionReason.FAILED, f"Not ready yet: {one_line(reason)}", "Reconcile", "Processing"
            )
        case Broken(reason, final):
            return Report("False", BastionReason.FAILED, one_line(reason), "Reconcile", "Failed" if final else "Error")


def deleted(answer: Deleted) -> Report:
    """What an answer of ``delete`` means for the status."""
    match answer:
        case Gone():
            return Report("False", BastionReason.DELETING, "Nothing of the bastion exists.", "Delete", "Succeeded")
        case Pending(reason):
            return Report(
                "False", BastionReason.DELETING, f"Not deleted yet: {one_line(reason)}", "Delete", "Processing"
            )


def failed(message: str, operation: str, *, final: bool = False) -> Report:
    """A fault, in words that hold no secret."""
    reason = BastionReason.DELETING if operation == "Delete" else BastionReason.FAILED
    return Report("False", reason, one_line(message), operation, "Failed" if final else "Error")


def refused(reason: BastionReason, message: str, operation: str = "Reconcile") -> Report:
    """The operator must act; the message says how. It is tried again when the configuration changes."""
    return Report("False", reason, one_line(message), operation, "Failed")


def withdrawn(reason: BastionReason, message: str, removed: Pending | Report) -> Report:
    """The operator does not allow the bastion any more, and something of it exists still."""
    left = removed.reason if isinstance(removed, Pending) else removed.message
    state = "Processing" if isinstance(removed, Pending) else removed.state
    return Report("False", reason, one_line(f"{message}. Not removed yet: {left}"), "Delete", state)


def ended() -> Report:
    """``spec.notAfter`` has passed, and nothing of the bastion exists."""
    return Report(
        "False", BastionReason.FAILED, "The bastion has ended: spec.notAfter has passed.", "Delete", "Succeeded"
    )


def status_patch(manifest: Mapping[str, Any], report: Report, now: datetime) -> JsonObject:
    """The merge patch for the subresource ``status``; empty if nothing but the time would change."""
    metadata, present = mapping_of(manifest, "metadata"), mapping_of(manifest, "status")
    generation = metadata.get("generation")
    wanted: JsonObject = {
        "observedGeneration": generation if type(generation) is int else 0,
        **_shown(report.shown),
        "conditions": _conditions(present, report, now),
        "lastOperation": {
            "type": report.operation,
            "state": report.state,
            "description": report.message,
            "lastUpdateTime": format_time(now),
        },
    }
    if _without_times(wanted) == _without_times({name: present.get(name) for name in wanted}):
        return {}
    return {"metadata": {"resourceVersion": text_of(metadata, "resourceVersion")}, "status": wanted}


def _shown(shown: Ready | NotReady) -> JsonObject:
    if isinstance(shown, NotReady):
        return {"ingress": None, "hostKeys": None, "egress": None}
    return {
        "ingress": _endpoint(shown.endpoint),
        "hostKeys": [key_line(key) for key in shown.host_keys],
        "egress": [str(network) for network in shown.egress],
    }


def _endpoint(endpoint: Endpoint) -> JsonObject:
    return {
        # Explicit nulls: a merge patch keeps what it does not name.
        "ip": None if endpoint.ip is None else str(endpoint.ip),
        "hostname": endpoint.hostname or None,
        "port": endpoint.port,
    }


def _conditions(present: Mapping[str, Any], report: Report, now: datetime) -> list[JsonObject]:
    listed = [one for one in items_of(present, "conditions") if isinstance(one, dict)]
    before: Mapping[str, Any] = next((one for one in listed if one.get("type") == READY), {})
    same = before.get("status") == report.status
    since = text_of(before, "lastTransitionTime") if same else ""
    condition: JsonObject = {
        "type": READY,
        "status": report.status,
        "reason": report.reason.value,
        "message": report.message,
        "lastTransitionTime": since or format_time(now),
    }
    return [*(one for one in listed if one.get("type") != READY), condition]


def _without_times(status: Mapping[str, Any]) -> JsonObject:
    operation = {key: value for key, value in mapping_of(status, "lastOperation").items() if key != "lastUpdateTime"}
    ingress = status.get("ingress")
    ingress = {key: value for key, value in ingress.items() if value is not None} if isinstance(ingress, dict) else None
    conditions = [
        {key: value for key, value in one.items() if key != "lastTransitionTime"}
        for one in items_of(status, "conditions")
        if isinstance(one, dict)
    ]
    host_keys, egress = (status.get(name) or None for name in ("hostKeys", "egress"))
    generation = status.get("observedGeneration")
    return {
        "generation": generation,
        "ingress": ingress,
        "hostKeys": host_keys,
        "egress": egress,
        "conditions": conditions,
        "operation": operation,
    }
