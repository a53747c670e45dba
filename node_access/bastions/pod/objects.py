"""The objects of one bastion, as manifests.

The Service lets the ingress alone in where the cloud's load balancer knows ``loadBalancerSourceRanges``, and the
NetworkPolicy where the cluster's network plugin enforces it; ``externalTrafficPolicy: Local`` keeps the address of the
client for the latter. sshd trusts certificates alone, whose ``source-address`` is the ingress, too.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from node_access.bastions.contract import LOGIN, Bastion, BastionReference, Network
from node_access.bastions.owned import BASTION_MARK, CLUSTER_MARK, OWNER_MARK, UID_MARK
from node_access.bastions.sshd import authorized_keys, sshd_configuration

PORT: Final = 22
CONTAINER_PORT: Final = 2222
USER_ID: Final = 65532
NO_NODE_PORTS: Final = "allocateLoadBalancerNodePorts"
"""Of a Service: on by default from Kubernetes 1.22, with a feature gate from 1.20. Other API servers drop it."""
_SERVICE_PORT: Final = {"name": "ssh", "protocol": "TCP", "port": PORT, "targetPort": CONTAINER_PORT}
_FILES: Final = "/etc/node-access"
_PASSWD: Final = f"root:x:0:0:root:/root:/sbin/nologin\n{LOGIN}:x:{USER_ID}:{USER_ID}::/nonexistent:/usr/sbin/nologin\n"


@dataclass(frozen=True, slots=True)
class PodSettings:
    """Parsed settings."""

    namespace: str
    image: str
    sshd: str
    ipv6: bool
    node_ports: bool
    egress: tuple[Network, ...]
    service_annotations: tuple[tuple[str, str], ...]
    node_selector: tuple[tuple[str, str], ...]


def name_of(uid: str) -> str:
    """The name of each object."""
    return f"bastion-{uid}"


def labels(uid: str, owner: str) -> dict[str, str]:
    """By which the objects are found."""
    return {UID_MARK: uid, OWNER_MARK: owner}


def selector(uid: str, owner: str) -> str:
    """The same, for a list."""
    return ",".join(f"{key}={value}" for key, value in labels(uid, owner).items())


def metadata(reference: BastionReference, owner: str) -> dict[str, Any]:
    """Of each object."""
    return {
        "name": name_of(reference.uid),
        "labels": labels(reference.uid, owner),
        "annotations": {
            BASTION_MARK: f"{reference.namespace}/{reference.name}",
            CLUSTER_MARK: reference.cluster,
        },
    }


def secret_data(bastion: Bastion) -> dict[str, str]:
    """The files of sshd, for a Secret: the host key is among them."""
    configuration = sshd_configuration(
        bastion,
        listen=(f"0.0.0.0:{CONTAINER_PORT}", f"[::]:{CONTAINER_PORT}"),
        host_key=f"{_FILES}/host_key",
        authorized_keys_file=f"{_FILES}/authorized_keys",
    )
    files = {
        "sshd_config": configuration.encode(),
        "authorized_keys": authorized_keys(bastion).encode(),
        "host_key": bastion.host_key.private_file(),
        "passwd": _PASSWD.encode(),
    }
    return {name: base64.b64encode(content).decode("ascii") for name, content in files.items()}


def secret(bastion: Bastion, owner: str) -> dict[str, Any]:
    """The Secret."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(bastion.reference, owner),
        "type": "Opaque",
        "data": secret_data(bastion),
    }


def network_policy_spec(bastion: Bastion, owner: str) -> dict[str, Any]:
    """From the ingress to sshd, and to each destination; nothing else, and no DNS."""
    ports: dict[int, list[str]] = {}
    for address, port in bastion.destinations:
        ports.setdefault(port, []).append(str(ipaddress.ip_network(address)))
    return {
        "podSelector": {"matchLabels": labels(bastion.reference.uid, owner)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {
                "from": [{"ipBlock": {"cidr": str(network)}} for network in bastion.ingress],
                "ports": [{"protocol": "TCP", "port": CONTAINER_PORT}],
            }
        ],
        "egress": [
            {
                "to": [{"ipBlock": {"cidr": network}} for network in networks],
                "ports": [{"protocol": "TCP", "port": port}],
            }
            for port, networks in sorted(ports.items())
        ],
    }


def network_policy(bastion: Bastion, owner: str) -> dict[str, Any]:
    """The NetworkPolicy."""
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata(bastion.reference, owner),
        "spec": network_policy_spec(bastion, owner),
    }


def service_fields(bastion: Bastion, owner: str, settings: PodSettings) -> dict[str, Any]:
    """What counts of the Service's specification; the API server adds other fields.

    ``loadBalancerSourceRanges`` do not cover node ports, so there are none, unless the load balancer needs them.
    """
    refused: dict[str, Any] = {} if settings.node_ports else {NO_NODE_PORTS: False, "ports": [_SERVICE_PORT]}
    return {
        **refused,
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        "loadBalancerSourceRanges": [str(network) for network in bastion.ingress],
        "selector": labels(bastion.reference.uid, owner),
    }


def service(bastion: Bastion, owner: str, settings: PodSettings) -> dict[str, Any]:
    """The Service."""
    own = metadata(bastion.reference, owner)
    own["annotations"] |= dict(settings.service_annotations)
    spec = {**service_fields(bastion, owner, settings), "ports": [_SERVICE_PORT]}
    if settings.ipv6:
        spec["ipFamilyPolicy"] = "PreferDualStack"
    return {"apiVersion": "v1", "kind": "Service", "metadata": own, "spec": spec}


def pod(bastion: Bastion, owner: str, settings: PodSettings, now: datetime) -> dict[str, Any]:
    """The Pod. The kubelet ends it after ``activeDeadlineSeconds``, although nobody deletes it."""
    seconds = max(1, int((bastion.ends_by_itself_at - now.astimezone(UTC)).total_seconds()))
    container = {
        "name": "sshd",
        "image": settings.image,
        "command": [settings.sshd, "-D", "-e", "-f", f"{_FILES}/sshd_config"],
        "ports": [{"name": "ssh", "containerPort": CONTAINER_PORT, "protocol": "TCP"}],
        "readinessProbe": {"tcpSocket": {"port": CONTAINER_PORT}, "periodSeconds": 2},
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "128Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "files", "mountPath": _FILES, "readOnly": True},
            {"name": "files", "mountPath": "/etc/passwd", "subPath": "passwd", "readOnly": True},
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata(bastion.reference, owner),
        "spec": {
            "activeDeadlineSeconds": seconds,
            "automountServiceAccountToken": False,
            "containers": [container],
            "enableServiceLinks": False,
            "hostNetwork": False,
            "nodeSelector": dict(settings.node_selector),
            "restartPolicy": "Always",
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER_ID,
                "runAsGroup": USER_ID,
                "fsGroup": USER_ID,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "terminationGracePeriodSeconds": 5,
            "volumes": [
                {"name": "files", "secret": {"secretName": name_of(bastion.reference.uid), "defaultMode": 0o440}}
            ],
        },
    }


def differs(present: Any, wanted: Mapping[str, Any]) -> bool:
    """Whether the fields of ``wanted`` are others in ``present``."""
    return not isinstance(present, dict) or any(present.get(name) != value for name, value in wanted.items())
