"""The manifests of a policy."""

from __future__ import annotations

import dataclasses

import pytest

from signer.admission.manifests import AdmissionVersion, binding_manifest, policy_manifest, spec_digest
from tests.unit.signer.admission.policies import MESSAGE, POLICY


@pytest.mark.parametrize("version", AdmissionVersion)
def test_a_policy(version: AdmissionVersion) -> None:
    manifest = policy_manifest(POLICY, version)
    spec = {
        "failurePolicy": "Fail",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [
                {
                    "apiGroups": ["example.org"],
                    "apiVersions": ["*"],
                    "operations": ["CREATE", "UPDATE"],
                    "resources": ["things"],
                    "scope": "Namespaced",
                }
            ],
        },
        "matchConditions": [{"name": "has-colour", "expression": "has(object.colour)"}],
        "variables": [{"name": "isBlue", "expression": "object.colour == 'blue'"}],
        "validations": [
            {"expression": "!variables.isBlue", "message": MESSAGE, "reason": "Invalid"},
            {"expression": "object.colour != ''", "message": "name a colour", "reason": "Forbidden"},
        ],
    }
    assert manifest.body == {
        "apiVersion": f"admissionregistration.k8s.io/{version.value}",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {
            "name": "colours",
            "labels": {"app.kubernetes.io/managed-by": "node-attestation-controller"},
            "annotations": {"attestation.cluster.x-k8s.io/digest": spec_digest(spec)},
        },
        "spec": spec,
    }
    assert manifest.path == (f"/apis/admissionregistration.k8s.io/{version.value}/validatingadmissionpolicies/colours")


@pytest.mark.parametrize("version", AdmissionVersion)
def test_a_binding(version: AdmissionVersion) -> None:
    manifest = binding_manifest(POLICY, version)
    assert manifest.body["kind"] == "ValidatingAdmissionPolicyBinding"
    assert manifest.body["apiVersion"] == f"admissionregistration.k8s.io/{version.value}"
    assert manifest.body["spec"] == {"policyName": "colours", "validationActions": ["Deny"]}
    assert manifest.path == (
        f"/apis/admissionregistration.k8s.io/{version.value}/validatingadmissionpolicybindings/colours"
    )


def test_what_a_policy_does_not_have_is_left_out() -> None:
    bare = dataclasses.replace(
        POLICY,
        match_conditions=(),
        variables=(),
        resources=(dataclasses.replace(POLICY.resources[0], namespaced=False),),
    )
    spec = policy_manifest(bare, AdmissionVersion.V1).body["spec"]
    assert not {"matchConditions", "variables"} & set(spec)
    assert spec["matchConstraints"]["resourceRules"][0]["scope"] == "Cluster"


def test_a_digest_is_of_the_content() -> None:
    assert spec_digest({"a": 1, "b": [1]}) == spec_digest({"b": [1], "a": 1})
    assert spec_digest({"a": 1}) != spec_digest({"a": 2})
    assert spec_digest({"a": "\ud800"}).startswith("sha256:")
