"""Manifests of a policy and its binding.

Every field that the API server defaults is written out. What is stored then equals the manifest, unless somebody
changed it.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from signer.admission.policy import AdmissionPolicy, MatchedResource
from signer.kube.client import JsonObject
from signer.kube.resources import (
    VALIDATING_ADMISSION_POLICIES,
    VALIDATING_ADMISSION_POLICY_BINDINGS,
    Resource,
)
from signer.kube.wanted_object import OWNER, OWNER_LABEL

"""The label's value. Objects without it belong to somebody else and are never changed."""
DIGEST_ANNOTATION: Final = "attestation.cluster.x-k8s.io/digest"
"""SHA-256 of the spec that the controller wrote: a spec with another digest was changed by somebody else."""


class AdmissionVersion(enum.Enum):
    """A version of ``admissionregistration.k8s.io`` with validating admission policies; the best one first."""

    V1 = "v1"
    V1BETA1 = "v1beta1"

    @property
    def policies(self) -> Resource:
        """``validatingadmissionpolicies`` of this version."""
        return next(each for each in VALIDATING_ADMISSION_POLICIES if each.version == self.value)

    @property
    def bindings(self) -> Resource:
        """``validatingadmissionpolicybindings`` of this version."""
        return next(each for each in VALIDATING_ADMISSION_POLICY_BINDINGS if each.version == self.value)


@dataclass(frozen=True, slots=True)
class Manifest:
    """An object to install, and the resource that it is one of."""

    resource: Resource
    name: str
    body: JsonObject
    """Not to be changed."""

    @property
    def path(self) -> str:
        """Path of the object."""
        return self.resource.object(self.name)


def policy_manifest(policy: AdmissionPolicy, version: AdmissionVersion) -> Manifest:
    """The ``ValidatingAdmissionPolicy``."""
    spec: JsonObject = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [_rule(resource) for resource in policy.resources],
        },
        "validations": [
            {"expression": each.expression, "message": each.message, "reason": each.reason.value}
            for each in policy.validations
        ],
    }
    if policy.match_conditions:
        spec["matchConditions"] = [
            {"name": each.name, "expression": each.expression} for each in policy.match_conditions
        ]
    if policy.variables:
        spec["variables"] = [{"name": each.name, "expression": each.expression} for each in policy.variables]
    return _manifest(version.policies, "ValidatingAdmissionPolicy", policy.name, spec)


def binding_manifest(policy: AdmissionPolicy, version: AdmissionVersion) -> Manifest:
    """The ``ValidatingAdmissionPolicyBinding``: the policy refuses, in all namespaces."""
    spec = {"policyName": policy.name, "validationActions": ["Deny"]}
    return _manifest(version.bindings, "ValidatingAdmissionPolicyBinding", policy.name, spec)


def spec_digest(spec: Mapping[str, Any]) -> str:
    """``sha256:`` and the digest of a spec as canonical JSON."""
    text = json.dumps(spec, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _manifest(resource: Resource, kind: str, name: str, spec: JsonObject) -> Manifest:
    metadata = {
        "name": name,
        "labels": {OWNER_LABEL: OWNER},
        "annotations": {DIGEST_ANNOTATION: spec_digest(spec)},
    }
    body = {"apiVersion": resource.api_version, "kind": kind, "metadata": metadata, "spec": spec}
    return Manifest(resource, name, body)


def _rule(resource: MatchedResource) -> JsonObject:
    return {
        "apiGroups": [resource.api_group],
        "apiVersions": ["*"],
        "operations": [operation.value for operation in resource.operations],
        "resources": [resource.plural],
        "scope": "Namespaced" if resource.namespaced else "Cluster",
    }
