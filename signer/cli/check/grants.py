"""Asks the management cluster's API server whether a controller's roles are granted."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, assert_never

from signer.cli.check.findings import Finding, fine, needs_attention, not_checked
from signer.cli.check.roles import NeededRole, Scope
from signer.configuration import AccessPermission, Configuration, RotationSettings, SSHPermission
from signer.kube.calls import Create
from signer.kube.errors import ApiError, UnexpectedAnswer
from signer.kube.resources import SELF_SUBJECT_ACCESS_REVIEWS, SUBJECT_ACCESS_REVIEWS
from signer.model.fields import mapping_of

_AT_ONCE: Final = 8
_EVERY_NAMESPACE: Final = ""


@dataclass(frozen=True, slots=True)
class ThisUser:
    """The user of the kubeconfig or of the Pod."""

    def __str__(self) -> str:
        return "this user"


@dataclass(frozen=True, slots=True)
class ServiceAccount:
    """A ServiceAccount; asking for it needs create on subjectaccessreviews."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"ServiceAccount {self.namespace}/{self.name}"


Subject: TypeAlias = ThisUser | ServiceAccount


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource, as an access review asks for it."""

    verb: str
    group: str
    resource: str
    name: str
    namespace: str
    """"" for all namespaces, and for resources of the cluster."""

    def __str__(self) -> str:
        of = f" of {self.group}" if self.group else ""
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {self.resource}{of}{named}"

    def attributes(self) -> dict[str, str]:
        """``resourceAttributes`` of the review."""
        resource, _, subresource = self.resource.partition("/")
        return {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "name": self.name,
            "namespace": self.namespace,
        }


async def grants_findings(
    client: Create,
    roles: Sequence[NeededRole],
    configuration: Configuration,
    served: Collection[str],
    lease_name: str,
    subject: Subject,
) -> tuple[Finding, ...]:
    """Check each role; ``served`` are the namespaces of Clusters with a policy."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def missing(right: Right) -> tuple[Right, ...]:
        async with slots:
            return () if await is_allowed(client, right, subject) else (right,)

    found: list[Finding] = []
    for role in roles:
        check = f"grants: {role.name}, {role.scope.value}"
        namespaces = _namespaces(role, configuration, served)
        if not namespaces:
            found.append(not_checked(check, "no namespace that this configuration serves has a policy yet"))
            continue
        rights = [right for namespace in namespaces for right in _rights(role, namespace, lease_name)]
        try:
            lacking = [right for some in await asyncio.gather(*map(missing, rights)) for right in some]
        except ApiError as error:
            found.append(not_checked(check, f"the API server does not review the rights of {subject}: {error}"))
            continue
        if not lacking:
            found.append(fine(check, f"{subject} has it{_where(namespaces)}"))
        found += [
            needs_attention(
                f"{check}{_where([namespace])}",
                f"{subject} may not {'; '.join(str(right) for right in lacking if right.namespace == namespace)}",
                f"apply {role.name} of deploy/rbac/{role.file}, or bind it there",
            )
            for namespace in dict.fromkeys(right.namespace for right in lacking)
        ]
    return tuple(found)


def _where(namespaces: Sequence[str]) -> str:
    named = [namespace for namespace in namespaces if namespace]
    return f" in {', '.join(named)}" if named else ""


def _namespaces(role: NeededRole, configuration: Configuration, served: Collection[str]) -> list[str]:
    match role.scope:
        case Scope.WATCHED:
            return [configuration.watch_namespace or _EVERY_NAMESPACE]
        case Scope.CLUSTER:
            return [_EVERY_NAMESPACE]
        case Scope.OWN:
            return [configuration.namespace]
        case Scope.GATEWAY:
            access = configuration.access
            return [access.gateway_namespace] if isinstance(access, AccessPermission) else []
        case Scope.SERVED:
            return sorted(namespace for namespace in served if _is_switched_on(role, configuration, namespace))
        case never:
            assert_never(never)


def _is_switched_on(role: NeededRole, configuration: Configuration, namespace: str) -> bool:
    match role.file:
        case "rotation.yaml":
            switch: object = configuration.rotation
        case "ssh.yaml":
            switch = configuration.ssh
        case "access.yaml":
            switch = configuration.access
        case _:
            return True
    return isinstance(switch, RotationSettings | SSHPermission | AccessPermission) and switch.allows(namespace)


def _rights(role: NeededRole, namespace: str, lease_name: str) -> list[Right]:
    """An operator may grant named resources in place of ``*``, so those are not asked for."""
    return [
        Right(verb, rule.group, resource, lease_name if name and resource == "leases" else name, namespace)
        for rule in role.rules
        for resource in rule.resources
        if "*" not in resource
        for name in rule.names or ("",)
        for verb in rule.verbs
    ]


async def is_allowed(client: Create, right: Right, subject: Subject) -> bool:
    """Ask the API server's authorizers.

    Raises:
        ApiError: the API server does not say.
    """
    spec: dict[str, Any] = {"resourceAttributes": right.attributes()}
    kind, resource = "SelfSubjectAccessReview", SELF_SUBJECT_ACCESS_REVIEWS
    if isinstance(subject, ServiceAccount):
        kind, resource = "SubjectAccessReview", SUBJECT_ACCESS_REVIEWS
        spec["user"] = f"system:serviceaccount:{subject.namespace}:{subject.name}"
        spec["groups"] = [
            "system:serviceaccounts",
            f"system:serviceaccounts:{subject.namespace}",
            "system:authenticated",
        ]
    body = {"apiVersion": resource.api_version, "kind": kind, "spec": spec}
    allowed = mapping_of(await client.create(resource.collection(), body), "status").get("allowed")
    if not isinstance(allowed, bool):
        raise UnexpectedAnswer(f"a {kind} was answered with neither yes nor no", status=201)
    return allowed
