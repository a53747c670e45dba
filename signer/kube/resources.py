"""Paths of the resources that the controller uses (Kubernetes API concepts, "Resource URIs")."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

MAXIMUM_SEGMENT_CHARACTERS = 253
"""Longest Kubernetes object name (DNS subdomain, RFC 1123; apimachinery ``validation.DNS1123SubdomainMaxLength``)."""


def segment(value: str) -> str:
    """``value`` as one path segment, percent-encoded.

    Names come from hostile objects, and no name may direct a call to another object. Raises ValueError for names that
    Kubernetes itself refuses (``IsValidPathSegmentName``: ``.``, ``..``, ``/``, ``%``), and for empty, too long or
    unprintable ones.
    """
    if not value or value in {".", ".."}:
        raise ValueError("an object name must not be empty or a dot segment")
    if len(value) > MAXIMUM_SEGMENT_CHARACTERS:
        raise ValueError(f"an object name has at most {MAXIMUM_SEGMENT_CHARACTERS} characters")
    if "/" in value or "%" in value or "\\" in value or not value.isprintable():
        raise ValueError("an object name must not contain '/', '%', '\\' or unprintable characters")
    return quote(value, safe=":")


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource of one API version, and the paths of its collections and objects."""

    group: str
    """API group; empty for the core group."""
    version: str
    plural: str
    namespaced: bool

    @property
    def api_version(self) -> str:
        """``apiVersion`` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def _root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def collection(self, namespace: str | None = None) -> str:
        """Path of the collection in one namespace, or in all namespaces (list and watch only) without ``namespace``.

        Raises ValueError for a namespace of a cluster-scoped resource, or one that is no path segment.
        """
        if namespace is None:
            return f"{self._root}/{self.plural}"
        if not self.namespaced:
            raise ValueError(f"{self.plural} are cluster-scoped")
        return f"{self._root}/namespaces/{segment(namespace)}/{self.plural}"

    def object(self, name: str, namespace: str | None = None, subresource: str | None = None) -> str:
        """Path of one object or of one of its subresources (``status``, ``approval``).

        Raises ValueError for a namespaced resource without a namespace, or a name that is no path segment.
        """
        if self.namespaced and namespace is None:
            raise ValueError(f"{self.plural} are namespaced")
        path = f"{self.collection(namespace)}/{segment(name)}"
        return path if subresource is None else f"{path}/{segment(subresource)}"


_CLUSTER_API = "cluster.x-k8s.io"
_BOOTSTRAP = "bootstrap.cluster.x-k8s.io"
_CONTROL_PLANE = "controlplane.cluster.x-k8s.io"
_ATTESTATION = "attestation.cluster.x-k8s.io"
_ACCESS = "access.cluster.x-k8s.io"

CERTIFICATE_SIGNING_REQUESTS = Resource("certificates.k8s.io", "v1", "certificatesigningrequests", namespaced=False)
SECRETS = Resource("", "v1", "secrets", namespaced=True)
CONFIG_MAPS = Resource("", "v1", "configmaps", namespaced=True)
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
SERVICE_ACCOUNTS = Resource("", "v1", "serviceaccounts", namespaced=True)
SERVICES = Resource("", "v1", "services", namespaced=True)
SERVICE_CIDRS = tuple(
    Resource("networking.k8s.io", version, "servicecidrs", namespaced=False) for version in ("v1", "v1beta1")
)
"""v1 since Kubernetes 1.33; v1beta1 since 1.31, where a cluster switches it on."""
PODS = Resource("", "v1", "pods", namespaced=True)
EVENTS = Resource("", "v1", "events", namespaced=True)
DEPLOYMENTS = Resource("apps", "v1", "deployments", namespaced=True)
LEASES = Resource("coordination.k8s.io", "v1", "leases", namespaced=True)
SUBJECT_ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False)
SELF_SUBJECT_ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)
SELF_SUBJECT_REVIEWS = Resource("authentication.k8s.io", "v1", "selfsubjectreviews", namespaced=False)
TOKEN_REVIEWS = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False)
CLUSTER_ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "clusterrolebindings", namespaced=False)
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles", namespaced=True)
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings", namespaced=True)
CUSTOM_RESOURCE_DEFINITIONS = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
MUTATING_WEBHOOKS = Resource("admissionregistration.k8s.io", "v1", "mutatingwebhookconfigurations", namespaced=False)
VALIDATING_WEBHOOKS = Resource(
    "admissionregistration.k8s.io", "v1", "validatingwebhookconfigurations", namespaced=False
)
API_SERVICES = Resource("apiregistration.k8s.io", "v1", "apiservices", namespaced=False)
VALIDATING_ADMISSION_POLICIES = tuple(
    Resource("admissionregistration.k8s.io", version, "validatingadmissionpolicies", namespaced=False)
    for version in ("v1", "v1beta1")
)
"""v1 since Kubernetes 1.30; v1beta1 since 1.28, where a cluster switches it on."""
VALIDATING_ADMISSION_POLICY_BINDINGS = tuple(
    Resource("admissionregistration.k8s.io", version, "validatingadmissionpolicybindings", namespaced=False)
    for version in ("v1", "v1beta1")
)
MUTATING_ADMISSION_POLICIES = tuple(
    Resource("admissionregistration.k8s.io", version, "mutatingadmissionpolicies", namespaced=False)
    for version in ("v1", "v1beta1")
)
"""v1 since Kubernetes 1.36; v1beta1 since 1.34, where a cluster switches it on."""
MUTATING_ADMISSION_POLICY_BINDINGS = tuple(
    Resource("admissionregistration.k8s.io", version, "mutatingadmissionpolicybindings", namespaced=False)
    for version in ("v1", "v1beta1")
)

CLUSTERS_V1BETA1 = Resource(_CLUSTER_API, "v1beta1", "clusters", namespaced=True)
CLUSTERS_V1BETA2 = Resource(_CLUSTER_API, "v1beta2", "clusters", namespaced=True)
MACHINES_V1BETA1 = Resource(_CLUSTER_API, "v1beta1", "machines", namespaced=True)
MACHINES_V1BETA2 = Resource(_CLUSTER_API, "v1beta2", "machines", namespaced=True)
MACHINE_POOLS_V1BETA1 = Resource(_CLUSTER_API, "v1beta1", "machinepools", namespaced=True)
MACHINE_POOLS_V1BETA2 = Resource(_CLUSTER_API, "v1beta2", "machinepools", namespaced=True)

KUBEADM_CONFIGS_V1BETA1 = Resource(_BOOTSTRAP, "v1beta1", "kubeadmconfigs", namespaced=True)
KUBEADM_CONFIGS_V1BETA2 = Resource(_BOOTSTRAP, "v1beta2", "kubeadmconfigs", namespaced=True)

KUBEADM_CONTROL_PLANES_V1BETA1 = Resource(_CONTROL_PLANE, "v1beta1", "kubeadmcontrolplanes", namespaced=True)
KUBEADM_CONTROL_PLANES_V1BETA2 = Resource(_CONTROL_PLANE, "v1beta2", "kubeadmcontrolplanes", namespaced=True)

BARE_METAL_HOSTS = Resource("metal3.io", "v1alpha1", "baremetalhosts", namespaced=True)
BYO_HOSTS = Resource("infrastructure.cluster.x-k8s.io", "v1beta1", "byohosts", namespaced=True)

NODE_ATTESTATION_POLICIES = Resource(_ATTESTATION, "v1alpha1", "nodeattestationpolicies", namespaced=True)
ATTESTED_NODES = Resource(_ATTESTATION, "v1alpha1", "attestednodes", namespaced=True)
IDENTITY_RESERVATIONS = Resource(_ATTESTATION, "v1alpha1", "identityreservations", namespaced=True)
CERTIFICATE_AUTHORITY_ROTATIONS = Resource(_ATTESTATION, "v1alpha1", "certificateauthorityrotations", namespaced=True)

ACCESS_GRANTS = Resource(_ACCESS, "v1alpha1", "accessgrants", namespaced=True)
ACCESS_APPROVALS = Resource(_ACCESS, "v1alpha1", "accessapprovals", namespaced=True)
BASTIONS = Resource(_ACCESS, "v1alpha1", "bastions", namespaced=True)
