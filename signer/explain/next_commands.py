"""Read-only commands to run next, for each reason. Commands that change something belong to the remedy."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeAlias

from signer.model.cluster import MACHINE_KIND, ClusterKey, MachineView
from signer.model.decision import printable
from signer.model.reasons import Reason
from signer.store.controller_key import SECRET_NAME


@dataclass(frozen=True, slots=True)
class Named:
    """The objects that a command may name."""

    cluster: ClusterKey
    controller_namespace: str
    csr: str
    machine: MachineView | None
    """The claimed Machine, if exactly one matches."""


Commands: TypeAlias = Callable[[Named], list[str]]
_WORKLOAD: Final = "kubectl --kubeconfig WORKLOAD-KUBECONFIG"


def next_commands(reason: str, named: Named) -> tuple[str, ...]:
    """Commands that help with ``reason``; names in them are quoted for a shell."""
    return tuple(_BY_REASON.get(reason, _request)(named))


def _get(what: str, namespace: str, *arguments: str) -> str:
    return " ".join(["kubectl", what, "--namespace", _quoted(namespace), *(_quoted(one) for one in arguments)])


def _quoted(name: str) -> str:
    return shlex.quote(printable(name))


def _request(named: Named) -> list[str]:
    return [f"{_WORKLOAD} get csr {_quoted(named.csr)} -o yaml"]


def describe_machine(cluster: ClusterKey, machine: MachineView) -> str:
    """The command that shows a Machine, or the MachinePool of an instance, with its conditions and Events."""
    kind = "machine" if machine.kind == MACHINE_KIND else "machinepool"
    return _get(f"describe {kind}", cluster.namespace, machine.name)


def list_machines(cluster: ClusterKey) -> str:
    """The command that lists the cluster's Machines and MachinePools."""
    label = f"cluster.x-k8s.io/cluster-name={cluster.name}"
    return _get("get machines,machinepools", cluster.namespace, "--selector", label, "--output", "wide")


def _machine(named: Named) -> list[str]:
    return _machines(named) if named.machine is None else [describe_machine(named.cluster, named.machine)]


def _machines(named: Named) -> list[str]:
    return [list_machines(named.cluster)]


def _policy(named: Named) -> list[str]:
    return [_get("describe nodeattestationpolicy", named.cluster.namespace, named.cluster.name)]


def _cluster(named: Named) -> list[str]:
    return [_get("describe cluster", named.cluster.namespace, named.cluster.name)]


def _holders(named: Named) -> list[str]:
    return [
        *_machine(named),
        _get("get attestednodes", named.cluster.namespace),
        _get("get identityreservations", named.controller_namespace, "--output", "yaml"),
    ]


def _records(named: Named) -> list[str]:
    return [*_machine(named), _get("get attestednodes", named.cluster.namespace)]


def _authority(named: Named) -> list[str]:
    return [_get("get secret", named.cluster.namespace, f"{named.cluster.name}-ca"), *_policy(named)]


def _controller_key(named: Named) -> list[str]:
    return [_get("get secret", named.controller_namespace, SECRET_NAME)]


def _tokens(named: Named) -> list[str]:
    return [_get("get kubeadmconfigs", named.cluster.namespace), *_policy(named)]


def _approved(named: Named) -> list[str]:
    return [*_request(named), _get("get attestednodes", named.cluster.namespace)]


_BY_REASON: Final[Mapping[str, Commands]] = MappingProxyType(
    {
        Reason.ATTESTED: _approved,
        Reason.ASSERTED: _approved,
        Reason.ATTESTOR_NOT_AUTHORIZED: _policy,
        Reason.RENEWAL_NOT_SUPPORTED: _policy,
        Reason.SERVING_NOT_SUPPORTED: _policy,
        Reason.FOREIGN_CREDENTIAL: _records,
        Reason.CLUSTER_MISMATCH: _authority,
        Reason.PROVIDER_ID_MISMATCH: _machine,
        Reason.NODE_NAME_MISMATCH: lambda named: [*_machine(named), *_policy(named)],
        Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES: _machine,
        Reason.IDENTITY_CONFLICT: _holders,
        Reason.SUPERSEDED: _records,
        Reason.MACHINE_DELETING: _machine,
        Reason.CLUSTER_DELETING: _cluster,
        Reason.BOOTSTRAP_TOKEN_MISMATCH: _tokens,
        Reason.BOOTSTRAP_TOKEN_UNTRACEABLE: _tokens,
        Reason.MACHINE_NOT_FOUND: _machines,
        Reason.MACHINE_AMBIGUOUS: _machines,
        Reason.PROVIDER_ID_DISAGREES: _machines,
        Reason.PROVIDER_ID_TAKEN: _machines,
        Reason.MACHINE_ADDRESSES_UNKNOWN: _machine,
        Reason.SERVICE_NETWORKS_UNKNOWN: _cluster,
        Reason.CONTROL_PLANE_NAMES_UNKNOWN: _cluster,
        Reason.MACHINE_NOT_READY: _machine,
        Reason.MACHINE_PAUSED: _machine,
        Reason.CLUSTER_PAUSED: _cluster,
        Reason.NODE_REF_DISAGREES: lambda named: [*_machine(named), f"{_WORKLOAD} get nodes --output wide"],
        Reason.NODE_NAME_BLOCKED: _records,
        Reason.NODE_NOT_ATTESTED: _records,
        Reason.RESERVATION_PENDING: _holders,
        Reason.POLICY_INVALID: lambda named: [
            _get("get nodeattestationpolicies", named.cluster.namespace, "--output", "wide")
        ],
        Reason.ATTESTOR_UNAVAILABLE: _policy,
        Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE: _authority,
        Reason.CERTIFICATE_AUTHORITY_CHANGING: _authority,
        Reason.CERTIFICATE_AUTHORITY_SHARED: _authority,
        Reason.CERTIFICATE_AUTHORITY_NOT_TRUSTED: _authority,
        Reason.CERTIFICATE_AUTHORITY_NOT_PROVEN: _policy,
        Reason.CONTROLLER_KEY_UNAVAILABLE: _controller_key,
    }
)
