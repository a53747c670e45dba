"""The bastions of one namespace."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from node_access.bastions.contract import (
    Bastion,
    BastionReference,
    Broken,
    CallFailed,
    Deadline,
    Deleted,
    Endpoint,
    Ensured,
    Gone,
    Kubernetes,
    NotPermitted,
    ObjectExists,
    ObjectNotFound,
    OwnedResources,
    Pending,
    Ready,
    Scope,
    Surroundings,
    host_keys,
)
from node_access.bastions.owned import BASTION_MARK, CLUSTER_MARK, LONG_AGO, OWNER_MARK, UID_MARK, Found, owned
from node_access.bastions.pod.objects import (
    NO_NODE_PORTS,
    PORT,
    PodSettings,
    differs,
    network_policy,
    network_policy_spec,
    pod,
    secret,
    secret_data,
    selector,
    service,
    service_fields,
)

_SOON: Final = timedelta(seconds=2)
_LATER: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of object."""

    root: str
    plural: str
    name: str

    def collection(self, namespace: str) -> str:
        """The path of its objects."""
        return f"{self.root}/namespaces/{namespace}/{self.plural}"


NETWORK_POLICIES: Final = Kind("/apis/networking.k8s.io/v1", "networkpolicies", "network policy")
SECRETS: Final = Kind("/api/v1", "secrets", "secret")
PODS: Final = Kind("/api/v1", "pods", "pod")
SERVICES: Final = Kind("/api/v1", "services", "service")
IN_ORDER: Final = (NETWORK_POLICIES, SECRETS, PODS, SERVICES)
"""Made in this order, so that no Pod runs without its policy, and deleted in the reverse one."""
_NODE_PORTS_MESSAGE: Final = (
    "the API server gives each Service of type LoadBalancer ports on the nodes, which loadBalancerSourceRanges do not "
    "cover: use Kubernetes 1.22 or newer, or set nodePorts where the network plugin enforces NetworkPolicies"
)


class PodBastions:
    """See :class:`~node_access.bastions.contract.BastionResources`."""

    def __init__(self, settings: PodSettings, surroundings: Surroundings, kubernetes: Kubernetes) -> None:
        self._settings = settings
        self._surroundings = surroundings
        self._kubernetes = kubernetes

    def ensure(self, bastion: Bastion, deadline: Deadline) -> Ensured:
        """Make what is missing, and change what differs."""
        if self._surroundings.now() >= bastion.not_after:
            return Broken("the end of the bastion has passed", final=True)
        try:
            if not self._settings.ipv6 and any(network.version == 6 for network in bastion.ingress):
                # What is open for a former ingress closes first.
                left = self.delete(bastion.reference, deadline)
                reason = "the ingress has IPv6 networks, and the operator's settings say no ipv6"
                return Broken(reason, final=True) if isinstance(left, Gone) else left
            return self._ensure(bastion, deadline)
        except NotPermitted as error:
            return Broken(str(error))

    def _ensure(self, bastion: Bastion, deadline: Deadline) -> Ensured:
        owner, now = self._surroundings.scope.owner, self._surroundings.now()
        policy_spec, service_spec = network_policy_spec(bastion, owner), service_fields(bastion, owner, self._settings)
        wanted: Sequence[tuple[Kind, dict[str, Any], dict[str, Any]]] = (
            (NETWORK_POLICIES, network_policy(bastion, owner), {"spec": policy_spec}),
            (SECRETS, secret(bastion, owner), {"data": secret_data(bastion)}),
            (PODS, pod(bastion, owner, self._settings, now), {}),
            (SERVICES, service(bastion, owner, self._settings), {"spec": service_spec}),
        )
        present: dict[str, dict[str, Any]] = {}
        for kind, manifest, fields in wanted:
            own = self._own(kind, bastion.reference, deadline)
            if not own:
                if kind is SERVICES and self._drops_the_choice(manifest, deadline):
                    return Broken(_NODE_PORTS_MESSAGE, final=True)
                try:
                    self._kubernetes.create(kind.collection(self._settings.namespace), manifest, deadline)
                except ObjectExists:
                    if not self._own(kind, bastion.reference, deadline):
                        return Broken(f"a {kind.name} of somebody else is called {manifest['metadata']['name']}")
                return Pending(f"the {kind.name} is made", _SOON)
            (found, *others) = own
            if others or _is_deleted(found):
                return Pending(f"another {kind.name} with the Bastion's UID is in the way", _SOON)
            if kind is SERVICES and not self._settings.node_ports and NO_NODE_PORTS not in found["spec"]:
                self._delete(kind, found, deadline)
                return Pending("the service has ports on nodes, and goes", _SOON)
            change = _change(found, fields)
            if change:
                self._kubernetes.patch(self._path(kind, found), change, deadline)
                return Pending(f"the {kind.name} has changed", _SOON)
            present[kind.plural] = found
        return self._state(bastion, present[PODS.plural], present[SERVICES.plural], deadline)

    def _drops_the_choice(self, manifest: Mapping[str, Any], deadline: Deadline) -> bool:
        """Whether the API server would give the Service node ports although it is told not to."""
        if self._settings.node_ports:
            return False
        collection = SERVICES.collection(self._settings.namespace)
        try:
            stored = self._kubernetes.would_create(collection, manifest, deadline)
        except ObjectExists:
            return False  # the caller finds out whose it is
        return stored["spec"].get(NO_NODE_PORTS) is not False

    def _state(
        self, bastion: Bastion, pod_object: Mapping[str, Any], service_object: Mapping[str, Any], deadline: Deadline
    ) -> Ensured:
        status = pod_object.get("status") or {}
        if status.get("phase") in ("Failed", "Succeeded"):
            self._delete(PODS, pod_object, deadline)
            return Pending("the pod has ended, and is made again", _SOON)
        conditions = {one.get("type"): one.get("status") for one in status.get("conditions") or ()}
        if conditions.get("Ready") != "True":
            return Pending("the pod is not ready", _SOON)
        addresses = ((service_object.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        for endpoint in _endpoints(addresses, bastion):
            return Ready(endpoint, host_keys(bastion), self._settings.egress)
        return Pending("the load balancer has no address yet", _SOON)

    def delete(self, reference: BastionReference, deadline: Deadline) -> Deleted:
        """The Service first, so that nobody comes in; then all others."""
        left: list[str] = []
        try:
            for kind in reversed(IN_ORDER):
                for found in self._own(kind, reference, deadline):
                    left.append(f"{kind.name} {found['metadata']['name']}")
                    if not _is_deleted(found):
                        self._delete(kind, found, deadline)
        except NotPermitted as error:
            return Pending(f"the controller may not delete: {error}", _LATER)
        except CallFailed as error:
            return Pending(str(error), _SOON)
        return Pending(f"deleted are {', '.join(left)}", timedelta(seconds=1)) if left else Gone()

    def list(self, scope: Scope, deadline: Deadline) -> tuple[OwnedResources, ...]:
        """By the owner's label."""
        found: dict[str, list[Found]] = {}
        for kind in IN_ORDER:
            path = kind.collection(self._settings.namespace)
            for one in self._kubernetes.list(path, f"{OWNER_MARK}={scope.owner}", deadline):
                own = one["metadata"]
                uid = str((own.get("labels") or {}).get(UID_MARK, ""))
                found.setdefault(uid, []).append(_found(kind, own))
        now = self._surroundings.now()
        return tuple(one for uid, resources in sorted(found.items()) for one in owned(uid, resources, now))

    def _own(self, kind: Kind, reference: BastionReference, deadline: Deadline) -> tuple[dict[str, Any], ...]:
        labels = selector(reference.uid, self._surroundings.scope.owner)
        return self._kubernetes.list(kind.collection(self._settings.namespace), labels, deadline)

    def _delete(self, kind: Kind, found: Mapping[str, Any], deadline: Deadline) -> None:
        try:
            self._kubernetes.delete(self._path(kind, found), str(found["metadata"]["uid"]), deadline)
        except ObjectNotFound:
            return

    def _path(self, kind: Kind, found: Mapping[str, Any]) -> str:
        return f"{kind.collection(self._settings.namespace)}/{found['metadata']['name']}"


def _change(found: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The merge patch that gives the fields their values; empty if they have them. A list is replaced as a whole."""
    change: dict[str, Any] = {}
    for section, wanted in fields.items():
        present = found.get(section)
        if not differs(present, wanted):
            continue
        change[section] = {
            name: _replacing(present.get(name) if isinstance(present, dict) else None, value)
            for name, value in wanted.items()
        }
    return change


def _replacing(present: Any, wanted: Any) -> Any:
    """A merge patch keeps fields that it does not name: name those that are too many, to remove them."""
    if isinstance(present, dict) and isinstance(wanted, dict):
        surplus = dict.fromkeys(present.keys() - wanted.keys())
        return {**surplus, **{name: _replacing(present.get(name), value) for name, value in wanted.items()}}
    return wanted


def _is_deleted(found: Mapping[str, Any]) -> bool:
    return "deletionTimestamp" in found["metadata"]


def _endpoints(addresses: Sequence[Mapping[str, Any]], bastion: Bastion) -> Iterator[Endpoint]:
    """Those that people of the ingress reach, the best first. What cannot be read is left out."""
    families = {network.version for network in bastion.ingress}
    for one in addresses:
        with contextlib.suppress(KeyError, ValueError, TypeError):  # InvalidBastion is a ValueError
            address = ipaddress.ip_address(one["ip"]) if one.get("ip") else None
            if address is None:
                yield Endpoint(PORT, None, one["hostname"].lower())
            elif address.version in families:
                yield Endpoint(PORT, address)


def _found(kind: Kind, metadata: Mapping[str, Any]) -> Found:
    annotations = metadata.get("annotations") or {}
    bastion, cluster = (str(annotations.get(mark, "")) for mark in (BASTION_MARK, CLUSTER_MARK))
    return Found(f"{kind.name} {metadata['name']}", bastion, cluster, _time(metadata.get("creationTimestamp")))


def _time(text: Any) -> datetime:
    try:
        return datetime.fromisoformat(str(text).replace("Z", "+00:00"))
    except ValueError:
        return LONG_AGO
