"""The networks of a cluster's Services, as far as the workload cluster reports them.

No node may have a serving certificate for an address of a Service: with that of Service ``default/kubernetes`` it could
impersonate the API server to every Pod. A machine can make its platform report such an address: with IPVS, kube-proxy
binds the addresses of all Services on each node, and vSphere reports every address of a guest.

The Cluster's ``spec.clusterNetwork.services`` states the networks. Many Clusters state none. kubeadm's default for
them, 10.96.0.0/12, is no fact: K3s and RKE2 have another, and managed control planes choose their own. So

- an address in a stated network is denied: it can never be right;
- an address in a network that the workload cluster reports, and the Cluster does not state, waits: a denial is final,
  and an object of the workload cluster can be wrong;
- if the Cluster states none, an address is free only after the API server has reported the networks of its IP version.
  Until then the real network is unknown, and any address may be in it, inside 10.96.0.0/12 or outside.

A report only ever adds networks to those that the Cluster states. Where the Cluster states none, the report is the API
server's word about its own Services. A false one gives certificates only of that server's own CA, and only to nodes of
its own cluster. Who controls the API server has no need of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any, Final, TypeAlias

from signer.model.fields import items_of, mapping_of, text_of

IPNetwork: TypeAlias = IPv4Network | IPv6Network

MAXIMUM_REPORTED: Final = 64
LARGEST_SERVICE_NETWORKS: Final = {4: 12, 6: 64}
"""The shortest prefix length of a service network, by IP version. kube-apiserver rejects a larger network
(``validateMaxCIDRRange``, ``cmd/kube-apiserver/app/options/validation.go``: 12 and 108; 64 with feature gate
``MultiCIDRServiceAllocator``). So the network of a known address is in the one of this length around it."""

_IP_VERSIONS: Final = frozenset({4, 6})


@dataclass(frozen=True, slots=True)
class ReportedServices:
    """What the workload cluster has reported. By default, nothing."""

    networks: tuple[IPNetwork, ...] = ()
    """Networks that have, or may have, addresses of Services."""
    known_versions: frozenset[int] = frozenset()
    """The IP versions of which no Service has an address outside ``networks``."""


NOT_REPORTED: Final = ReportedServices()


@dataclass(slots=True)
class ServicesReport:
    """The last report of one workload cluster. The controller replaces it while decisions read it."""

    reported: ReportedServices = NOT_REPORTED


def network_of(text: str, *, strict: bool = True) -> IPNetwork:
    """The network that ``text`` is. ``strict``: it begins with the network's first address.

    Raises:
        ValueError: it is none, or has a zone, in which :mod:`ipaddress` takes any text of any length.
    """
    if "%" in text:
        raise ValueError("a network has no zone")
    return ip_network(text, strict=strict)


def reported_by_service_cidrs(manifests: Iterable[Mapping[str, Any]]) -> ReportedServices:
    """Read every ServiceCIDR (``networking.k8s.io``, served by default since Kubernetes 1.33), which say everything.

    An API server that uses them always has one. So without a readable one, or with too many, nothing is known.
    """
    texts = [text for one in manifests for text in items_of(mapping_of(one, "spec"), "cidrs")]
    try:
        networks = tuple(network_of(text) for text in texts[:MAXIMUM_REPORTED] if isinstance(text, str))
    except ValueError:
        return NOT_REPORTED
    is_all = 0 < len(networks) == len(texts)
    return ReportedServices(tuple(dict.fromkeys(networks)), _IP_VERSIONS if is_all else frozenset())


def reported_by_kubernetes_service(manifest: Mapping[str, Any]) -> ReportedServices:
    """Read Service ``default/kubernetes``, which every API server creates with an address of its primary network.

    A cluster with two service networks has a second one of the other IP version, of which this Service says nothing.
    """
    spec = mapping_of(manifest, "spec")
    networks: list[IPNetwork] = []
    for text in (*items_of(spec, "clusterIPs")[:2], text_of(spec, "clusterIP")):
        try:
            address = ip_address(text if isinstance(text, str) else "")
            networks.append(network_of(f"{address}/{LARGEST_SERVICE_NETWORKS[address.version]}", strict=False))
        except ValueError:
            continue  # none yet, or "None"
    return ReportedServices(tuple(dict.fromkeys(networks)), frozenset(one.version for one in networks))
