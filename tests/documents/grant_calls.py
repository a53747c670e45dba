"""Every rule of the controller's roles in the management cluster, with the calls that need it, for the documents.

``test_grant_calls`` compares the rules with ``deploy/rbac/management.yaml``, and looks for each call in the code.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tests.documents.markdown import ROOT
from tests.support.yaml_documents import safe_load_all

FILE: Final = ROOT / "deploy/rbac/management.yaml"
PREFIX: Final = "node-attestation-"


class Rule(NamedTuple):
    """One rule of a role: the smallest unit that can be left out."""

    role: str
    """Without the prefix. ``controller`` is a ClusterRole, and a Role in the controller's own namespace."""
    kind: str
    group: str
    resource: str
    names: str = ""
    """The names that it is limited to."""


class Call(NamedTuple):
    """A function or class that makes calls with these verbs."""

    verbs: str
    """With spaces between them."""
    module: str
    name: str


_BASE, _OWN = ("controller", "ClusterRole"), ("controller", "Role")
_CAPI, _OURS = "cluster.x-k8s.io", "attestation.cluster.x-k8s.io"
_INFRA, _RBAC_KEY = "infrastructure.cluster.x-k8s.io", "node-attestation-controller-key"
_CACHES: Final = Call("list watch", "signer/store/caches.py", "Caches")
_LIVE: Final = "signer/store/live_reads.py"
_LOOKUPS: Final = "signer/decision/lookups.py"
_LEADER: Final = "signer/controller/replicas/leadership.py"

CALLS: Final[dict[Rule, tuple[Call, ...]]] = {
    Rule(*_BASE, _CAPI, "clusters"): (
        _CACHES,
        Call("get", "signer/controller/cluster/control_plane_names.py", "ControlPlaneNames"),
        Call("get", "signer/store/garbage_collection.py", "GarbageCollector"),
        Call("get", "signer/controller/auto_approval/restoration.py", "Restoration"),
    ),
    Rule(*_BASE, _CAPI, "machines"): (
        _CACHES,
        Call("get", _LIVE, "LiveReads"),
        Call("get", "signer/controller/status/machine_condition.py", "MachineConditions"),
    ),
    Rule(*_BASE, _CAPI, "machinepools"): (_CACHES, Call("get", _LIVE, "LiveReads")),
    Rule(*_BASE, _OURS, "nodeattestationpolicies"): (
        _CACHES,
        Call("get", "signer/controller/auto_approval/restoration.py", "Restoration"),
        Call("get", "signer/controller/status/policy_owner.py", "PolicyOwner"),
    ),
    Rule(*_BASE, _OURS, "nodeattestationpolicies/status"): (
        Call("patch", "signer/controller/status/policy_status.py", "PolicyStatus"),
    ),
    Rule(*_BASE, _OURS, "attestednodes"): (
        _CACHES,
        Call("create get update", "signer/store/records.py", "Records"),
        Call("get", _LIVE, "LiveReads"),
        Call("delete", "signer/store/garbage_collection.py", "GarbageCollector"),
    ),
    Rule(*_BASE, "", "events"): (Call("create", "signer/controller/telemetry/recorder.py", "Recorder"),),
    Rule(*_OWN, _OURS, "identityreservations"): (
        _CACHES,
        Call("create get patch delete", "signer/store/reservations.py", "Reservations"),
    ),
    Rule(*_OWN, "", "secrets", _RBAC_KEY): (Call("get", "signer/store/controller_key.py", "ControllerKey"),),
    Rule(*_OWN, "", "configmaps"): (
        Call("create get list patch delete", "signer/store/removed_bindings.py", "RemovedBindings"),
        Call("create get patch", "signer/store/audit_heads.py", "AuditHeads"),
    ),
    Rule(*_OWN, "coordination.k8s.io", "leases"): (Call("create", _LEADER, "Leadership"),),
    Rule(*_OWN, "coordination.k8s.io", "leases", "node-attestation-controller"): (
        Call("get update", _LEADER, "Leadership"),
        Call("get", "signer/controller/replicas/other_leader.py", "OtherLeader"),
    ),
    Rule("secrets", "ClusterRole", "", "secrets"): (
        Call("get", "signer/decision/authority_source.py", "AuthoritySource"),
        Call("get", "signer/controller/workload_access.py", "workload_connection"),
        Call("get", _LOOKUPS, "Lookups"),
    ),
    Rule("controller-key-creation", "Role", "", "secrets"): (
        Call("create", "signer/store/controller_key.py", "ControllerKey"),
    ),
    Rule("policy-owner", "ClusterRole", _OURS, "nodeattestationpolicies"): (
        Call("patch", "signer/controller/status/policy_owner.py", "PolicyOwner"),
    ),
    Rule("bootstrap-tokens", "ClusterRole", "bootstrap.cluster.x-k8s.io", "kubeadmconfigs"): (
        Call("list watch", "signer/store/bootstrap_tokens.py", "BootstrapTokens"),
        Call("list", "signer/store/bootstrap_configs.py", "LiveConfigs"),
    ),
    Rule("machine-condition", "ClusterRole", _CAPI, "machines/status"): (
        Call("patch", "signer/controller/status/machine_condition.py", "MachineConditions"),
    ),
    Rule("control-plane-names", "ClusterRole", "controlplane.cluster.x-k8s.io", "kubeadmcontrolplanes"): (
        Call("get", "signer/controller/cluster/control_plane_names.py", "ControlPlaneNames"),
    ),
    Rule("infrastructure-status", "ClusterRole", _INFRA, "*/status"): (
        Call("get patch", "signer/controller/status/infrastructure_status.py", "InfrastructureStatus"),
    ),
    Rule("infrastructure-machines", "ClusterRole", _INFRA, "*"): (Call("get", _LOOKUPS, "Lookups"),),
    Rule("bare-metal-hosts", "ClusterRole", "metal3.io", "baremetalhosts"): (Call("get", _LOOKUPS, "Lookups"),),
    Rule("byo-hosts", "ClusterRole", _INFRA, "byohosts"): (Call("list", _LOOKUPS, "Lookups"),),
    Rule("infrastructure-definitions", "ClusterRole", "apiextensions.k8s.io", "customresourcedefinitions"): (
        Call("get", "signer/controller/status/infrastructure_status.py", "InfrastructureStatus"),
        Call("get", _LOOKUPS, "Lookups"),
    ),
    Rule("inventories", "ClusterRole", "", "configmaps"): (Call("get", _LOOKUPS, "Lookups"),),
    Rule("diagnostics", "ClusterRole", "authentication.k8s.io", "tokenreviews"): (
        Call("create", "signer/controller/diagnostics/scrape_access.py", "ScrapeAccess"),
    ),
    Rule("diagnostics", "ClusterRole", "authorization.k8s.io", "subjectaccessreviews"): (
        Call("create", "signer/controller/diagnostics/scrape_access.py", "ScrapeAccess"),
    ),
}


def granted_rules() -> dict[Rule, set[str]]:
    """The rules in the file, with their verbs."""
    found: dict[Rule, set[str]] = {}
    for document in safe_load_all(FILE.read_text(encoding="utf-8")):
        for rule in document.get("rules", ()):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    role = document["metadata"]["name"].removeprefix(PREFIX)
                    names = ", ".join(rule.get("resourceNames", ()))
                    found.setdefault(Rule(role, document["kind"], group, resource, names), set()).update(rule["verbs"])
    return found


def rows() -> list[tuple[str, str, str, str]]:
    """Role, resource, verbs and calls, for the table."""
    return [
        (
            f"`{PREFIX}{rule.role}`" + (" (Role)" if rule.kind == "Role" else ""),
            _resource(rule),
            ", ".join(call.verbs.split()),
            f"[`{call.name}`](../{call.module})",
        )
        for rule, calls in CALLS.items()
        for call in calls
    ]


def _resource(rule: Rule) -> str:
    group = f" of `{rule.group}`" if rule.group else ""
    names = f": `{rule.names}`" if rule.names else ""
    return f"`{rule.resource}`{group}{names}"
