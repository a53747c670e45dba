"""Auto-approval: RBAC grants by which kube-controller-manager approves kubelet CSRs without attestation.

kube-controller-manager approves a CSR to ``kubernetes.io/kube-apiserver-client-kubelet`` if its requester may create
``certificatesigningrequests/nodeclient`` (first certificate) or ``…/selfnodeclient`` (renewal). It checks that with a
SubjectAccessReview (``pkg/controller/certificates/approver/sarapprove.go``). The objects come from workload API
servers, which may be hostile: an unreadable object never counts as harmless.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.fields import MAXIMUM_NAME_CHARACTERS

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
RBAC_API_VERSION: Final = f"{RBAC_GROUP}/v1"
CERTIFICATES_GROUP: Final = "certificates.k8s.io"
REQUESTS: Final = "certificatesigningrequests"
CREATE: Final = "create"
ANY: Final = "*"

RESTORING_ANNOTATION: Final = "attestation.cluster.x-k8s.io/restoring"
"""Set briefly on a binding whose deletion is being cancelled. It is never saved or restored."""

MAXIMUM_SAVED_BINDING_BYTES: Final = 16 * 1024
"""Maximum size of a saved binding as JSON. A larger binding is not removed."""


class ApprovalSubresource(enum.Enum):
    """A subresource of certificatesigningrequests on which ``create`` means automatic approval."""

    NODECLIENT = "nodeclient"
    """First certificate, requested with a bootstrap token for any node name."""
    SELFNODECLIENT = "selfnodeclient"
    """Renewal by a node, without attestation."""

    @property
    def resource(self) -> str:
        """The resource as RBAC rules write it."""
        return f"{REQUESTS}/{self.value}"


BOTH_SUBRESOURCES: Final = frozenset(ApprovalSubresource)


class UnreadableGrant(ValueError):
    """A role or binding cannot be read, so its grants are unknown."""


class RoleScope(enum.Enum):
    """Whether a ClusterRole grants more than auto-approval."""

    ONLY_APPROVAL = "OnlyApproval"
    MORE = "More"
    AGGREGATED = "Aggregated"
    """Its rules come from other roles and may change with them."""
    UNREADABLE = "Unreadable"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """One rule of a role (``rbac/v1`` PolicyRule; matching as ``plugin/pkg/auth/authorizer/rbac``)."""

    verbs: frozenset[str]
    api_groups: frozenset[str]
    resources: frozenset[str]
    resource_names: frozenset[str]
    non_resource_urls: frozenset[str]

    @property
    def subresources(self) -> frozenset[ApprovalSubresource]:
        """The kinds of auto-approval that the rule grants.

        The access review names no object. So a rule with resource names grants nothing, unless the empty name is one.
        """
        if self.verbs.isdisjoint({CREATE, ANY}) or self.api_groups.isdisjoint({CERTIFICATES_GROUP, ANY}):
            return frozenset()
        if self.resource_names and "" not in self.resource_names:
            return frozenset()
        # RBAC does not support "certificatesigningrequests/*". It counts as a grant, in case a later version does.
        return frozenset(
            subresource
            for subresource in ApprovalSubresource
            if not self.resources.isdisjoint({ANY, f"{REQUESTS}/*", subresource.resource, f"*/{subresource.value}"})
        )

    @property
    def grants_only_approval(self) -> bool:
        """Whether the rule grants nothing else. Any wildcard counts as something else, except in the verbs."""
        return (
            not self.non_resource_urls
            and self.api_groups <= {CERTIFICATES_GROUP}
            and self.resources <= {subresource.resource for subresource in ApprovalSubresource}
        )


@dataclass(frozen=True, slots=True)
class ClusterRole:
    """The auto-approval that a ClusterRole grants."""

    name: str
    subresources: frozenset[ApprovalSubresource]
    scope: RoleScope


@dataclass(frozen=True, slots=True)
class Subject:
    """A subject of a binding."""

    kind: str
    """``User``, ``Group`` or ``ServiceAccount``. Another kind gets no grant, but is reviewed all the same."""
    api_group: str
    name: str
    namespace: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class ClusterRoleBinding:
    """A ClusterRoleBinding, with everything that is needed to restore it."""

    name: str
    uid: str
    resource_version: str
    role_name: str
    subjects: tuple[Subject, ...]
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    annotations: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def is_addressable(self) -> bool:
        """Whether its name and its role's name can be used in a URL path. RBAC allows names of nearly any form."""
        return _is_addressable(self.name) and _is_addressable(self.role_name)


@dataclass(frozen=True, slots=True)
class ClusterIdentity:
    """A workload cluster: its name, and the two marks (UID and CA) that tell it from a later one of that name.

    Neither mark lasts for the cluster's life. ``clusterctl move`` and a restore recreate the Cluster with another UID
    and the same CA. A rotation gives the same Cluster another CA.
    """

    key: ClusterKey
    uid: str
    """UID of the Cluster in this management cluster."""
    ca_cert_hash: str
    """SHA-256 of the cluster CA's SubjectPublicKeyInfo, as kubeadm's discovery hash."""

    def __post_init__(self) -> None:
        if not self.ca_cert_hash or not self.uid or not self.key.namespace or not self.key.name:
            raise ValueError("a cluster is identified by namespace, name, UID and the hash of its CA")

    def __str__(self) -> str:
        return str(self.key)


def parse_cluster_role(manifest: Mapping[str, Any]) -> ClusterRole:
    """Read a ClusterRole. One with unreadable rules counts as granting both kinds of auto-approval, and more.

    Raises:
        UnreadableGrant: it has no name, so that any binding may be of it.
    """
    name = _name_of(manifest, "ClusterRole")
    try:
        rules = [_rule(rule) for rule in _list(manifest, "rules")]
    except UnreadableGrant:
        return ClusterRole(name, BOTH_SUBRESOURCES, RoleScope.UNREADABLE)
    subresources = frozenset(subresource for rule in rules for subresource in rule.subresources)
    if manifest.get("aggregationRule") is not None:
        return ClusterRole(name, subresources, RoleScope.AGGREGATED)
    only = all(rule.grants_only_approval for rule in rules)
    return ClusterRole(name, subresources, RoleScope.ONLY_APPROVAL if only else RoleScope.MORE)


def parse_cluster_role_binding(manifest: Mapping[str, Any]) -> ClusterRoleBinding:
    """Read a ClusterRoleBinding.

    Raises:
        UnreadableGrant: a field that decides about its grant is missing or malformed.
    """
    name = _name_of(manifest, "ClusterRoleBinding")
    try:
        metadata, reference = _object(manifest, "metadata"), _object(manifest, "roleRef")
        if _text(reference, "kind") != "ClusterRole":
            raise UnreadableGrant("roleRef.kind is not ClusterRole")
        return ClusterRoleBinding(
            name=name,
            uid=_text(metadata, "uid"),
            resource_version=_text(metadata, "resourceVersion"),
            role_name=_text(reference, "name"),
            subjects=tuple(_subject(subject) for subject in _list(manifest, "subjects")),
            labels=_texts(metadata, "labels"),
            annotations=_texts(metadata, "annotations"),
        )
    except UnreadableGrant as error:
        raise UnreadableGrant(f"ClusterRoleBinding {shown(name)} cannot be read: {error}") from error


def binding_body(binding: ClusterRoleBinding) -> dict[str, Any]:
    """The manifest with which to recreate the binding. The API server sets uid and resourceVersion."""
    metadata: dict[str, Any] = {"name": binding.name}
    for key, texts in (("labels", binding.labels), ("annotations", binding.annotations)):
        given = {name: text for name, text in texts.items() if name != RESTORING_ANNOTATION}
        if given:
            metadata[key] = given
    return {
        "apiVersion": RBAC_API_VERSION,
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": binding.role_name},
        "subjects": [_subject_body(subject) for subject in binding.subjects],
    }


def saved_size(binding: ClusterRoleBinding) -> int:
    """Size of the saved binding in bytes."""
    return len(json.dumps([binding_body(binding), binding.uid, binding.resource_version]))


def shown(name: str) -> str:
    """The name for a message, truncated and escaped."""
    return printable(name[:MAXIMUM_NAME_CHARACTERS])[:MAXIMUM_NAME_CHARACTERS]


def _is_addressable(name: str) -> bool:
    """Kubernetes' own rule for names in paths (``IsValidPathSegmentName``), and stricter limits of our own."""
    return (
        len(name) <= MAXIMUM_NAME_CHARACTERS
        and name.isprintable()
        and name not in {".", ".."}
        and not set("/%\\") & set(name)
    )


def _subject_body(subject: Subject) -> dict[str, str]:
    body = {"kind": subject.kind, "name": subject.name}
    if subject.api_group:
        body["apiGroup"] = subject.api_group
    if subject.namespace:
        body["namespace"] = subject.namespace
    return body


def _rule(rule: Any) -> PolicyRule:
    if not isinstance(rule, Mapping):
        raise UnreadableGrant("a rule is not an object")
    verbs, groups, resources, names, urls = (
        frozenset(_strings(rule, key))
        for key in ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
    )
    return PolicyRule(verbs, groups, resources, names, urls)


def _subject(subject: Any) -> Subject:
    if not isinstance(subject, Mapping):
        raise UnreadableGrant("a subject is not an object")
    api_group, namespace = (_optional_text(subject, key) for key in ("apiGroup", "namespace"))
    return Subject(_text(subject, "kind"), api_group, _text(subject, "name"), namespace)


def _name_of(manifest: Mapping[str, Any], kind: str) -> str:
    try:
        return _text(_object(manifest, "metadata"), "name")
    except UnreadableGrant as error:
        raise UnreadableGrant(f"a {kind} cannot be read: {error}") from error


def _object(parent: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = parent.get(key)
    if not isinstance(value, Mapping):
        raise UnreadableGrant(f"{key} is not an object")
    return value


def _list(parent: Mapping[str, Any], key: str) -> list[Any]:
    value = parent.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise UnreadableGrant(f"{key} is not a list")
    return value


def _strings(parent: Mapping[str, Any], key: str) -> list[str]:
    values = _list(parent, key)
    if not all(isinstance(value, str) for value in values):
        raise UnreadableGrant(f"{key} is not a list of strings")
    return values


def _texts(parent: Mapping[str, Any], key: str) -> Mapping[str, str]:
    value = parent.get(key)
    if value is None:
        return MappingProxyType({})
    if not isinstance(value, Mapping) or not all(isinstance(text, str) for text in value.values()):
        raise UnreadableGrant(f"{key} is not a map of strings")
    return MappingProxyType({str(name): text for name, text in value.items()})


def _text(parent: Mapping[str, Any], key: str) -> str:
    value = parent.get(key)
    if not isinstance(value, str) or not value:
        raise UnreadableGrant(f"{key} is not a string, or is empty")
    return value


def _optional_text(parent: Mapping[str, Any], key: str) -> str:
    value = parent.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UnreadableGrant(f"{key} is not a string")
    return value
