"""Nodes and Leases with the admission plugin NodeRestriction: a kubelet may change only what is its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .status import FieldError, Target, forbidden, invalid_value
from .strategy import Context, Strategy, keep

RESTRICTED_LABEL_PREFIX = "node-restriction.kubernetes.io"
LEASE_NAMESPACE = "kube-node-lease"


def _node_target(name: str) -> Target:
    return Target("", "nodes", "Node", name)


def _restricted_labels(value: dict[str, Any]) -> dict[str, str]:
    labels = value["metadata"].get("labels") or {}
    return {
        key: text
        for key, text in labels.items()
        if key.partition("/")[0] == RESTRICTED_LABEL_PREFIX
        or key.partition("/")[0].endswith("." + RESTRICTED_LABEL_PREFIX)
    }


class Nodes(Strategy):
    fields_supported = frozenset({"metadata.name", "spec.unschedulable"})

    def fields(self, value: dict[str, Any]) -> Mapping[str, str]:
        unschedulable = (value.get("spec") or {}).get("unschedulable")
        return {"metadata.name": value["metadata"]["name"], "spec.unschedulable": str(bool(unschedulable)).lower()}

    def prepare_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        keep(value, old, "spec" if subresource == "status" else "status")

    def admit_create(self, value: dict[str, Any], context: Context) -> None:
        own, name = context.user.node_name, value["metadata"]["name"]
        if not own:
            return
        if name != own:
            raise forbidden(_node_target(name), f'node "{own}" is not allowed to modify node "{name}"')
        if _restricted_labels(value):
            text = f"is not allowed to set the following labels: {', '.join(sorted(_restricted_labels(value)))}"
            raise forbidden(_node_target(name), text)

    def admit_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        own, name = context.user.node_name, old["metadata"]["name"]
        if not own:
            return
        target = _node_target(name)
        if name != own:
            raise forbidden(target, f'node "{own}" is not allowed to modify node "{name}"')
        if subresource:
            return
        if _restricted_labels(value) != _restricted_labels(old):
            raise forbidden(target, "is not allowed to modify labels of the prefix " + RESTRICTED_LABEL_PREFIX)
        if (value.get("spec") or {}).get("taints") != (old.get("spec") or {}).get("taints"):
            raise forbidden(target, f'node "{own}" is not allowed to modify taints')

    def admit_delete(self, old: dict[str, Any], context: Context) -> None:
        own, name = context.user.node_name, old["metadata"]["name"]
        if own and name != own:
            raise forbidden(_node_target(name), f'node "{own}" is not allowed to modify node "{name}"')

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        before = (old.get("spec") or {}).get("providerID")
        after = (value.get("spec") or {}).get("providerID")
        if before and after != before:
            return [invalid_value("spec.providerID", after or "", "may not be changed once set")]
        return []


class Leases(Strategy):
    unconditional_update = False
    create_on_update = True

    def _admit(self, value: dict[str, Any], context: Context) -> None:
        own = context.user.node_name
        if not own:
            return
        found = value["metadata"]
        target = Target("coordination.k8s.io", "leases", "Lease", found["name"])
        if found.get("namespace") != LEASE_NAMESPACE:
            raise forbidden(target, f'can only access leases in the "{LEASE_NAMESPACE}" system namespace')
        if found["name"] != own:
            raise forbidden(target, "can only access node lease with the same name as the requesting node")

    def admit_create(self, value: dict[str, Any], context: Context) -> None:
        self._admit(value, context)

    def admit_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        self._admit(old, context)

    def admit_delete(self, old: dict[str, Any], context: Context) -> None:
        self._admit(old, context)

    def validate_create(self, value: dict[str, Any], context: Context) -> list[FieldError]:
        spec = value.get("spec") or {}
        errors = []
        seconds = spec.get("leaseDurationSeconds")
        if seconds is not None and seconds <= 0:
            errors.append(invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
        transitions = spec.get("leaseTransitions")
        if transitions is not None and transitions < 0:
            errors.append(invalid_value("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
        return errors

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        return self.validate_create(value, context)
