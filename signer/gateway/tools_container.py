"""The tools container: an ephemeral container beside one whose image has no shell, or no server of SFTP. Pure.

It runs in the process namespace of its target, as the same user, and never with more than the target has. A pod keeps
it in its spec until the pod is gone. Its name shows the grant. Others may write ``pods/ephemeralcontainers``, too, so
a container of that name counts only if it is exactly the one that the gateway makes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from signer.gateway.commands import SESSION_VARIABLE, SessionMark
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.tools_image import ToolsImage

NAME_PREFIX: Final = "node-access-"
LIFETIME_SECONDS: Final = 24 * 3600
"""Then the container ends by itself, and the next connection adds another one."""
MAXIMUM_OF_GRANT: Final = 8
"""In one pod. A grant lives for a week at most."""
MAXIMUM_OF_POD: Final = 16
TARGET_ROOT: Final = "/proc/1/root"
"""The target's files, as a process of its process namespace sees them (proc(5))."""
_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_DIGEST_CHARACTERS: Final = 8
_MAXIMUM_ID: Final = 2**31 - 1
_HOPELESS: Final = frozenset(
    {"ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError"}
)
"""Reasons of the kubelet (``pkg/kubelet/images/types.go``, ``kuberuntime``) that do not pass within a minute."""
_APPARMOR_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"


class NoToolsContainer(Exception):
    """There can be none. The person may read the message."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))
        self.message = printable(message)


@dataclass(frozen=True, slots=True)
class Runs:
    """The container of that name runs, and is ours."""

    name: str


@dataclass(frozen=True, slots=True)
class Starts:
    """The container of that name is in the pod's spec, is ours, and does not run yet."""

    name: str


@dataclass(frozen=True, slots=True)
class Missing:
    """The container has yet to be added."""

    container: Mapping[str, Any] = field(repr=False)


ToolsState: TypeAlias = Runs | Starts | Missing


def tools_state(pod: Mapping[str, Any], target: str, grant_uid: str, image: ToolsImage) -> ToolsState:
    """Which tools container a grant has in the pod, or which one to add. ``target`` is a container that runs.

    Raises:
        NoToolsContainer: the pod or the target is of a kind for which there is none, its user is not known, a bound is
            reached, somebody else made a container of that name, or it cannot start.
    """
    body = _body(pod, target, grant_uid, image)
    stated = [one for one in items_of(mapping_of(pod, "spec"), "ephemeralContainers") if isinstance(one, Mapping)]
    for number in range(1, MAXIMUM_OF_GRANT + 1):
        wanted = {**body, "name": _name(grant_uid, body, number)}
        found = [one for one in stated if one.get("name") == wanted["name"]]
        if not found:
            if sum(1 for one in stated if text_of(one, "name").startswith(NAME_PREFIX)) >= MAXIMUM_OF_POD:
                raise NoToolsContainer(f"the pod has {MAXIMUM_OF_POD} tools containers already; replace the pod")
            return Missing(wanted)
        require_ours(found[0], wanted)
        state = _state(pod, wanted["name"])
        if isinstance(state.get("running"), Mapping):
            return Runs(wanted["name"])
        if not isinstance(state.get("terminated"), Mapping):
            reason = text_of(mapping_of(state, "waiting"), "reason")
            if reason in _HOPELESS:
                raise NoToolsContainer(f"the tools container {wanted['name']} does not start: {reason}")
            return Starts(wanted["name"])
    raise NoToolsContainer(f"the grant has had {MAXIMUM_OF_GRANT} tools containers in this pod; replace the pod")


def require_ours(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """The container is the wanted one, and nothing was added to it or taken from it.

    Raises:
        NoToolsContainer: somebody else made it, or changed it.
    """
    stored = dict(found)
    if stored.get("resources") == {}:
        del stored["resources"]
    if stored.get("imagePullPolicy") == "Always":  # by admission plugin AlwaysPullImages
        stored["imagePullPolicy"] = wanted["imagePullPolicy"]
    if stored != dict(wanted):
        raise NoToolsContainer(
            f"container {wanted['name']} of the pod is not as the gateway makes it: somebody else made it, or an "
            "admission webhook of the workload cluster changes it; replace the pod, or exempt the container"
        )


def _name(grant_uid: str, body: Mapping[str, Any], number: int) -> str:
    """A DNS label. The digest covers what the operator can change, so that a new image gets a new container."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return f"{NAME_PREFIX}{grant_uid}-{digest[:_DIGEST_CHARACTERS]}-{number}"


def _body(pod: Mapping[str, Any], target: str, grant_uid: str, image: ToolsImage) -> dict[str, Any]:
    if _UID.fullmatch(grant_uid) is None:
        raise NoToolsContainer("the UID of the access grant can be no part of a name")
    return {
        "image": image.name,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", str(LIFETIME_SECONDS)],
        "env": [{"name": SESSION_VARIABLE, "value": f"{SessionMark.of_grant(grant_uid).value}tools"}],
        "securityContext": _security_context(pod, target),
        "targetContainerName": target,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }


def _security_context(pod: Mapping[str, Any], target: str) -> dict[str, Any]:
    """No more than the target has: its user and group, its profiles, no way to more, and a root file system of its own
    that nobody writes. Root keeps the target's capabilities: without each of them, the kernel does not show it the
    target's files (``ptrace_may_access``). Other users have none in effect, and get none.
    """
    spec, container = mapping_of(pod, "spec"), _target(pod, target)
    of_pod, own = mapping_of(spec, "securityContext"), mapping_of(container, "securityContext")
    _require_kind(pod, own, target)
    user, group = _identity(pod, target, own, of_pod)
    capabilities = mapping_of(own, "capabilities") if user == 0 else {"drop": ["ALL"]}
    context: dict[str, Any] = {
        "runAsUser": user,
        "runAsGroup": group,
        "runAsNonRoot": user != 0,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "seccompProfile": _seccomp(own, of_pod),
    }
    if capabilities:
        context["capabilities"] = dict(capabilities)
    for name in ("seLinuxOptions", "appArmorProfile"):
        profile = mapping_of(own, name)
        if profile:
            context[name] = dict(profile)
    return context


def _target(pod: Mapping[str, Any], target: str) -> Mapping[str, Any]:
    spec = mapping_of(pod, "spec")
    stated = (*items_of(spec, "containers"), *items_of(spec, "initContainers"))
    found = [one for one in stated if isinstance(one, Mapping) and one.get("name") == target]
    if len(found) != 1:
        raise NoToolsContainer(f"{target} is no container of the pod's own, so it gets no tools container")
    return found[0]


def _require_kind(pod: Mapping[str, Any], own: Mapping[str, Any], target: str) -> None:
    spec = mapping_of(pod, "spec")
    for name in ("hostPID", "shareProcessNamespace"):
        if spec.get(name, False) is not False:
            raise NoToolsContainer(
                f"the pod has {name}, so a tools container would see other processes than {target}'s"
            )
    if own.get("privileged", False) is not False:
        raise NoToolsContainer(f"container {target} is privileged: the gateway adds no privileged container")
    if text_of(mapping_of(spec, "os"), "name") == "windows" or own.get("windowsOptions"):
        raise NoToolsContainer("there are no tools containers on Windows")
    annotated = mapping_of(mapping_of(pod, "metadata"), "annotations").get(f"{_APPARMOR_ANNOTATION}{target}")
    if annotated not in (None, "runtime/default") and not own.get("appArmorProfile"):
        raise NoToolsContainer(f"container {target} names its AppArmor profile by an annotation; set appArmorProfile")


def _identity(
    pod: Mapping[str, Any], target: str, own: Mapping[str, Any], of_pod: Mapping[str, Any]
) -> tuple[int, int]:
    """User and group by which the target's first process runs, from its spec, else as the kubelet reports them (from
    Kubernetes 1.31 on). The image's own choice is in neither.
    """
    reported = mapping_of(mapping_of(_status(pod, "containerStatuses", target), "user"), "linux")
    found = []
    for field_name, report in (("runAsUser", "uid"), ("runAsGroup", "gid")):
        stated = own.get(field_name, of_pod.get(field_name, reported.get(report)))
        if type(stated) is not int or not 0 <= stated <= _MAXIMUM_ID:
            raise NoToolsContainer(
                f"the pod does not say as which user container {target} runs: set runAsUser and runAsGroup in its "
                "securityContext, so that a tools container gets no other"
            )
        found.append(stated)
    return found[0], found[1]


def _seccomp(own: Mapping[str, Any], of_pod: Mapping[str, Any]) -> dict[str, Any]:
    """The target's profile; the runtime's default where the target has none."""
    for stated in (mapping_of(own, "seccompProfile"), mapping_of(of_pod, "seccompProfile")):
        if stated:
            return {"type": "RuntimeDefault"} if stated.get("type") == "Unconfined" else dict(stated)
    return {"type": "RuntimeDefault"}


def _state(pod: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return mapping_of(_status(pod, "ephemeralContainerStatuses", name), "state")


def _status(pod: Mapping[str, Any], kind: str, name: str) -> Mapping[str, Any]:
    stated = [one for one in items_of(mapping_of(pod, "status"), kind) if isinstance(one, Mapping)]
    return next((one for one in stated if one.get("name") == name), {})


__all__ = [
    "LIFETIME_SECONDS",
    "MAXIMUM_OF_GRANT",
    "MAXIMUM_OF_POD",
    "NAME_PREFIX",
    "TARGET_ROOT",
    "Missing",
    "NoToolsContainer",
    "Runs",
    "Starts",
    "ToolsState",
    "require_ours",
    "tools_state",
]
