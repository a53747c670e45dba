"""Finds the pod that an address means, and proves that the grant's workload owns it.

The workload cluster answers in the person's name. Its API server may be hostile: what it says decides which of its own
pods are entered, and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from attestors.wire.ssh.container_names import Container, ContainerAddress, Numbered, Pod, Workload, WorkloadKind
from signer.kube.calls import Query
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Forbidden, NotFound
from signer.kube.resources import PODS, Resource
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of

MAXIMUM_PODS: Final = 500
"""Of one workload that are looked at; the oldest of more than these are not found by number."""
MAXIMUM_SWEPT: Final = 64
"""Containers of one grant in which a gateway looks for what an earlier one has left."""
_RESOURCES: Final = {
    WorkloadKind.DAEMON_SET: Resource("apps", "v1", "daemonsets", namespaced=True),
    WorkloadKind.DEPLOYMENT: Resource("apps", "v1", "deployments", namespaced=True),
    WorkloadKind.JOB: Resource("batch", "v1", "jobs", namespaced=True),
    WorkloadKind.STATEFUL_SET: Resource("apps", "v1", "statefulsets", namespaced=True),
}
_REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", namespaced=True)
_STATUSES: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")


class NotResolved(Exception):
    """There is no such running container. The person may read the message."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
        self.message = printable(message)


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container that runs, in the pod of that UID."""

    namespace: str
    pod: str
    uid: str
    container: str
    shares_host_network: bool
    """Its ports are the node's."""

    def __str__(self) -> str:
        return f"container {self.container} of pod {self.namespace}/{self.pod}"


class Resolver(Protocol):
    """Finds the container that an address means."""

    async def all_of(self, api: Query, target: Container) -> Sequence[RunningContainer]:
        """The running containers that a grant for ``target`` opens; of a large workload, some.

        Raises:
            NotResolved: the pod or the workload is not there.
            ApiError: the workload cluster does not answer.
        """
        ...

    async def resolve(self, api: Query, target: Container, address: ContainerAddress) -> RunningContainer:
        """The container. ``target`` is what the grant opens, and may open the address.

        Raises:
            NotResolved: there is no such running container.
            ApiError: the workload cluster does not answer.
        """
        ...


class KubernetesResolver:
    """Resolves pods, and pods of Deployments, StatefulSets, DaemonSets and Jobs."""

    async def all_of(self, api: Query, target: Container) -> Sequence[RunningContainer]:
        """See Resolver."""
        if not isinstance(target.of, Workload):
            return (_running(await _get(api, PODS, target.namespace, target.of.name, "pod"), target),)
        owners = await _owners(api, target.namespace, target.of)
        found = []
        for pod in await _list(api, PODS, target.namespace, owners.selector):
            if _owner(pod) in owners.uids:
                with contextlib.suppress(NotResolved):
                    found.append(_running(pod, target))
        return found[:MAXIMUM_SWEPT]

    async def resolve(self, api: Query, target: Container, address: ContainerAddress) -> RunningContainer:
        """See Resolver."""
        pod = await self._pod(api, target, address)
        return _running(pod, target)

    async def _pod(self, api: Query, target: Container, address: ContainerAddress) -> JsonObject:
        namespace = target.namespace
        match address.of:
            case Pod(name):
                pod = await _get(api, PODS, namespace, name, "pod")
                if isinstance(target.of, Workload):
                    owners = await _owners(api, namespace, target.of)
                    _require_owned(pod, owners, target.of)
                return pod
            case Workload() as workload:
                return await _numbered(api, namespace, Numbered(workload, 0), is_any=True)
            case numbered:
                return await _numbered(api, namespace, numbered, is_any=False)


async def _numbered(api: Query, namespace: str, of: Numbered, *, is_any: bool) -> JsonObject:
    workload = of.workload
    if workload.kind is WorkloadKind.STATEFUL_SET and not is_any:
        pod = await _get(api, PODS, namespace, f"{workload.name}-{of.number}", "pod")
        _require_owned(pod, await _owners(api, namespace, workload), workload)
        return pod
    owners = await _owners(api, namespace, workload)
    listed = await _list(api, PODS, namespace, owners.selector)
    pods = [one for one in listed if _owner(one) in owners.uids and _is_ready(one)]
    pods.sort(key=_age)
    if of.number < len(pods):
        return pods[of.number]
    what = f"{workload.kind.value} {namespace}/{workload.name}"
    if not pods:
        raise NotResolved(f"{what} has no ready pod")
    raise NotResolved(f"{what} has {len(pods)} ready pods: the last number is {len(pods) - 1}")


@dataclass(frozen=True, slots=True)
class _Owners:
    uids: frozenset[str]
    selector: str


async def _owners(api: Query, namespace: str, workload: Workload) -> _Owners:
    """The objects that own the workload's pods."""
    found = await _get(api, _RESOURCES[workload.kind], namespace, workload.name, workload.kind.value)
    uid, selector = _uid(found), _selector(mapping_of(mapping_of(found, "spec"), "selector"))
    if workload.kind is not WorkloadKind.DEPLOYMENT:
        return _Owners(frozenset({uid}), selector)
    sets = await _list(api, _REPLICA_SETS, namespace, selector)
    return _Owners(frozenset(_uid(one) for one in sets if _owner(one) == uid), selector)


async def _get(api: Query, resource: Resource, namespace: str, name: str, what: str) -> JsonObject:
    try:
        return await api.get(resource.object(name, namespace))
    except NotFound:
        raise NotResolved(f"there is no {what} {namespace}/{name}") from None
    except Forbidden as error:
        raise NotResolved(f"you may not see {what} {namespace}/{name}: {_text(error)}") from None


async def _list(api: Query, resource: Resource, namespace: str, selector: str) -> Sequence[JsonObject]:
    try:
        answer = await api.get(resource.collection(namespace), {"labelSelector": selector, "limit": str(MAXIMUM_PODS)})
    except Forbidden as error:
        raise NotResolved(f"you may not list {resource.plural} of namespace {namespace}: {_text(error)}") from None
    return [one for one in items_of(answer, "items")[:MAXIMUM_PODS] if isinstance(one, dict)]


def _selector(selector: Mapping[str, Any]) -> str:
    """As kubectl writes it (apimachinery ``metav1.LabelSelectorAsSelector``)."""
    parts = [f"{key}={value}" for key, value in sorted(mapping_of(selector, "matchLabels").items())]
    for one in items_of(selector, "matchExpressions"):
        key, operator = text_of(one, "key"), text_of(one, "operator")
        values = ",".join(value for value in items_of(one, "values") if isinstance(value, str))
        match operator:
            case "In" | "NotIn":
                parts.append(f"{key} {operator.lower()} ({values})")
            case "Exists":
                parts.append(key)
            case "DoesNotExist":
                parts.append(f"!{key}")
            case _:
                raise NotResolved("the workload's selector has an operator that is not known here")
    if not parts:
        raise NotResolved("the workload selects no pods")
    return ",".join(parts)


def _require_owned(pod: JsonObject, owners: _Owners, workload: Workload) -> None:
    if _owner(pod) not in owners.uids:
        name = text_of(mapping_of(pod, "metadata"), "name")
        raise NotResolved(f"pod {name} is not one of {workload.kind.value} {workload.name}, which the grant is for")


def _running(pod: JsonObject, target: Container) -> RunningContainer:
    metadata, spec, status = (mapping_of(pod, name) for name in ("metadata", "spec", "status"))
    name, uid = text_of(metadata, "name"), text_of(metadata, "uid")
    found = RunningContainer(target.namespace, name, uid, target.container, spec.get("hostNetwork") is True)
    if not name or not uid or text_of(metadata, "namespace") != target.namespace:
        raise NotResolved("the API server answered with another object than the pod")
    for stated in (one for kind in _STATUSES for one in items_of(status, kind) if isinstance(one, Mapping)):
        if text_of(stated, "name") == target.container:
            state = mapping_of(stated, "state")
            if isinstance(state.get("running"), Mapping):
                return found
            raise NotResolved(f"{found} does not run: {_why(state)}")
    raise NotResolved(f"{found} has not started, or there is no such container")


def _why(state: Mapping[str, Any]) -> str:
    for name in ("waiting", "terminated"):
        reason = text_of(mapping_of(state, name), "reason")
        if reason:
            return reason
    return "its state is unknown"


def _is_ready(pod: JsonObject) -> bool:
    if "deletionTimestamp" in mapping_of(pod, "metadata"):
        return False
    conditions = [one for one in items_of(mapping_of(pod, "status"), "conditions") if isinstance(one, Mapping)]
    return any(text_of(one, "type") == "Ready" and text_of(one, "status") == "True" for one in conditions)


def _age(pod: JsonObject) -> tuple[str, str]:
    metadata = mapping_of(pod, "metadata")
    return text_of(metadata, "creationTimestamp"), text_of(metadata, "name")


def _uid(item: JsonObject) -> str:
    uid = text_of(mapping_of(item, "metadata"), "uid")
    if not uid:
        raise NotResolved("the API server answered with an object without a UID")
    return uid


def _owner(item: JsonObject) -> str:
    """UID of the object that controls this one; empty if none does."""
    references = [one for one in items_of(mapping_of(item, "metadata"), "ownerReferences") if isinstance(one, Mapping)]
    return next((text_of(one, "uid") for one in references if one.get("controller") is True), "")


def _text(error: ApiError) -> str:
    return printable(str(error))


__all__ = ["MAXIMUM_PODS", "KubernetesResolver", "NotResolved", "Resolver", "RunningContainer"]
