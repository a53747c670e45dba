"""An API server as the cloud of the provider ``pod``. Nothing runs the Pods: the fake says that they are ready."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

from attestors.wire.ssh.options import parse_network
from node_access.bastions.contract import (
    Bastion,
    BastionProvider,
    CallFailed,
    Deadline,
    IPAddress,
    Kubernetes,
    Network,
    NotPermitted,
    Scope,
    SettingsDocuments,
    Surroundings,
)
from node_access.bastions.owned import BASTION_MARK, CLUSTER_MARK, OWNER_MARK, UID_MARK
from node_access.bastions.pod.objects import name_of
from node_access.bastions.pod.provider import provider
from node_access.bastions.pod.resources import IN_ORDER, NETWORK_POLICIES, PODS, SECRETS, SERVICES, PodBastions
from node_access.bastions.suite import OWNER, Fault, Killed

NAMESPACE: Final = "bastions"
Answer = TypeVar("Answer")
NETWORK_POLICY_DEFINITION: Final[dict[str, Any]] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "networkpolicies.networking.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "networking.k8s.io",
        "names": {"kind": "NetworkPolicy", "plural": "networkpolicies", "singular": "networkpolicy"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}
"""For an embedded API, which has no NetworkPolicies of its own."""


class FaultyKubernetes:
    """See :class:`node_access.bastions.contract.Kubernetes`: the real one, with a fault in one call."""

    def __init__(self, real: Kubernetes) -> None:
        self._real = real
        self._fault: tuple[Fault, int] | None = None
        self.failed = False

    def inject(self, fault: Fault, call: int) -> None:
        self._fault, self.failed = (fault, call), False

    def get(self, path: str, deadline: Deadline) -> dict[str, Any]:
        return self._call(lambda: self._real.get(path, deadline))

    def list(self, path: str, label_selector: str, deadline: Deadline) -> tuple[dict[str, Any], ...]:
        return self._call(lambda: self._real.list(path, label_selector, deadline))

    def create(self, path: str, body: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        return self._call(lambda: self._real.create(path, body, deadline))

    def would_create(self, path: str, body: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        return self._call(lambda: self._real.would_create(path, body, deadline))

    def patch(self, path: str, patch: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        return self._call(lambda: self._real.patch(path, patch, deadline))

    def delete(self, path: str, uid: str, deadline: Deadline) -> None:
        self._call(lambda: self._real.delete(path, uid, deadline))

    def _call(self, call: Callable[[], Answer]) -> Answer:
        if self._fault is None:
            return call()
        fault, left = self._fault
        if left:
            self._fault = fault, left - 1
            return call()
        self._fault, self.failed = None, True
        if fault is Fault.NOT_REACHED:
            raise CallFailed("not reached")
        if fault is Fault.NOT_PERMITTED:
            raise NotPermitted("forbidden by the test")
        call()
        if fault is Fault.KILLED:
            raise Killed
        raise CallFailed("the answer is lost")


class PodCloud:
    """See :class:`node_access.bastions.suite.FakeCloud`."""

    faults = frozenset(Fault)
    kinds: tuple[str, ...] = tuple(kind.name for kind in IN_ORDER)
    rules_can_be_widened = True
    families = frozenset({4, 6})

    def __init__(self, kubernetes: Kubernetes) -> None:
        """The namespace is there already."""
        self.plain = kubernetes
        self._faulty = FaultyKubernetes(kubernetes)
        self._addresses = 10
        self.settings: Mapping[str, Any] = {
            "namespace": NAMESPACE,
            "image": "registry.example/sshd:9.2",
            "ipv6": True,
            "serviceAnnotations": {"example.com/scheme": "internet-facing"},
            "egress": ["192.0.2.0/24"],
        }
        self.without_ipv6: Mapping[str, Any] = {**self.settings, "ipv6": False}
        self.elsewhere: Sequence[Mapping[str, Any]] = [{**self.settings, "namespace": "elsewhere"}]

    @property
    def provider(self) -> BastionProvider:
        return provider

    def open(self, owner: str = OWNER) -> PodBastions:
        settings = provider.settings(SettingsDocuments(self.settings))
        return PodBastions(settings, Surroundings(Scope(owner), now=self.now), self._faulty)

    def now(self) -> datetime:
        return datetime.now(UTC)

    def inject(self, fault: Fault, call: int) -> None:
        self._faulty.inject(fault, call)

    def has_failed(self) -> bool:
        return self._faulty.failed

    def settle(self) -> None:
        for pod in self._list(PODS, ""):
            if not (pod.get("status") or {}).get("conditions"):
                ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                self.plain.patch(self._path(PODS, pod) + "/status", {"status": ready}, _deadline())
        for service in self._list(SERVICES, ""):
            if not ((service.get("status") or {}).get("loadBalancer") or {}).get("ingress"):
                self._addresses += 1
                both = [{"ip": f"203.0.113.{self._addresses}"}, {"ip": f"2001:db8:4::{self._addresses}"}]
                status = {"status": {"loadBalancer": {"ingress": both}}}
                self.plain.patch(self._path(SERVICES, service) + "/status", status, _deadline())

    def resources(self, uid: str) -> Sequence[str]:
        return [f"{kind.name} {one['metadata']['name']}" for kind in IN_ORDER for one in self._of(kind, uid)]

    def complete(self) -> int:
        return 4

    def open_to(self, uid: str) -> frozenset[Network]:
        if not self._of(SERVICES, uid):
            assert not self._of(PODS, uid)
            return frozenset()
        (service,), (policy,) = self._of(SERVICES, uid), self._of(NETWORK_POLICIES, uid)
        assert service["spec"]["type"] == "LoadBalancer"
        assert service["spec"]["allocateLoadBalancerNodePorts"] is False
        assert "nodePort" not in service["spec"]["ports"][0]
        (rule,) = policy["spec"]["ingress"]
        assert [one["port"] for one in rule["ports"]] == [2222]
        ranges = frozenset(map(parse_network, service["spec"]["loadBalancerSourceRanges"]))
        assert ranges == {parse_network(one["ipBlock"]["cidr"]) for one in rule["from"]}
        return ranges

    def destinations(self, uid: str) -> frozenset[tuple[IPAddress, int]]:
        (policy,), (secret,) = self._of(NETWORK_POLICIES, uid), self._of(SECRETS, uid)
        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert policy["spec"]["podSelector"]["matchLabels"][UID_MARK] == uid
        found = {
            (parse_network(one["ipBlock"]["cidr"]), port["port"])
            for rule in policy["spec"]["egress"]
            for one in rule["to"]
            for port in rule["ports"]
        }
        assert all(network.num_addresses == 1 for network, _ in found)
        assert set(secret["data"]) == {"sshd_config", "authorized_keys", "host_key", "passwd"}
        return frozenset((network.network_address, port) for network, port in found)

    def widen(self, uid: str) -> None:
        (service,) = self._of(SERVICES, uid)
        (policy,) = self._of(NETWORK_POLICIES, uid)
        (port,) = service["spec"]["ports"]
        ports = {"allocateLoadBalancerNodePorts": True, "ports": [{**port, "nodePort": 30222}]}
        wide = {"spec": {"loadBalancerSourceRanges": ["203.0.113.0/24"], **ports}}
        self.plain.patch(self._path(SERVICES, service), wide, _deadline())
        everything: dict[str, Any] = {"spec": {"ingress": [{}], "egress": [{}]}}
        self.plain.patch(self._path(NETWORK_POLICIES, policy), everything, _deadline())

    def lose(self, uid: str, kind: str) -> None:
        (chosen,) = (one for one in IN_ORDER if one.name == kind)
        for one in self._of(chosen, uid):
            self.plain.delete(self._path(chosen, one), one["metadata"]["uid"], _deadline())

    def add_foreign(self, bastion: Bastion) -> Callable[[], bool]:
        names = bastion.reference
        annotations = {BASTION_MARK: f"{names.namespace}/{names.name}", CLUSTER_MARK: names.cluster}
        tagged: list[dict[str, str]] = [{}, {UID_MARK: names.uid}, {UID_MARK: names.uid, OWNER_MARK: "another"}]
        paths = []
        for number, labels in enumerate(tagged):
            name = f"{name_of(names.uid)}-{number}"
            metadata = {"name": name, "labels": labels, "annotations": annotations}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
            self.plain.create(SECRETS.collection(NAMESPACE), body, _deadline())
            paths.append(f"{SECRETS.collection(NAMESPACE)}/{name}")
        before = [self.plain.get(path, _deadline()) for path in paths]
        return lambda: [self.plain.get(path, _deadline()) for path in paths] == before

    def ends_at(self, uid: str) -> datetime:
        """``activeDeadlineSeconds`` counts from the start of the Pod, which comes after it is made, within seconds."""
        (pod,) = self._of(PODS, uid)
        made = datetime.fromisoformat(re.sub("Z$", "+00:00", pod["metadata"]["creationTimestamp"]))
        return made + timedelta(seconds=pod["spec"]["activeDeadlineSeconds"])

    def clear(self) -> None:
        """Delete every object, for the next test."""
        for kind in IN_ORDER:
            for one in self._list(kind, ""):
                if one["metadata"]["name"].startswith("bastion-"):
                    with contextlib.suppress(CallFailed):
                        self.plain.delete(self._path(kind, one), one["metadata"]["uid"], _deadline())

    def _of(self, kind: Any, uid: str) -> tuple[dict[str, Any], ...]:
        return tuple(self._list(kind, f"{UID_MARK}={uid},{OWNER_MARK}={OWNER}"))

    def _list(self, kind: Any, selector: str) -> Sequence[dict[str, Any]]:
        return self.plain.list(kind.collection(NAMESPACE), selector, _deadline())

    def _path(self, kind: Any, found: Mapping[str, Any]) -> str:
        return f"{kind.collection(NAMESPACE)}/{found['metadata']['name']}"


def _deadline() -> Deadline:
    return Deadline.after(60)
