"""The mutating admission policy, for API servers from 1.36 (``MutatingAdmissionPolicy``): it fills in the creator.

Without it, the client fills it in. Either way the validating policy has the last word.
"""

from __future__ import annotations

from typing import Final

from signer.kube.client import JsonObject
from signer.kube.resources import ACCESS_APPROVALS, ACCESS_GRANTS
from signer.model.access.grant import CREATED_BY_ANNOTATION

CREATOR_POLICY: Final = "node-access-creator"
_ANNOTATION: Final = CREATED_BY_ANNOTATION.replace("/", "~1")
"""In a JSON pointer (RFC 6901)."""
_CREATOR: Final = "Object.spec.createdBy{{username: request.userInfo.username{uid}, groups: variables.groups}}"
EXPRESSION: Final = (
    "(has(object.metadata.annotations) ? [] : [JSONPatch{op: 'add', path: '/metadata/annotations', value: {}}]) + "
    f"[JSONPatch{{op: 'add', path: '/metadata/annotations/{_ANNOTATION}', value: request.userInfo.username}}, "
    "JSONPatch{op: 'add', path: '/spec/createdBy', value: has(request.userInfo.uid) && request.userInfo.uid != '' ? "
    f"{_CREATOR.format(uid=', uid: request.userInfo.uid')} : {_CREATOR.format(uid='')}}}]"
)
VARIABLES: Final = (("groups", "has(request.userInfo.groups) ? request.userInfo.groups : []"),)


def mutation_spec() -> JsonObject:
    """``spec`` of the policy."""
    return {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "matchPolicy": "Equivalent",
            "namespaceSelector": {},
            "objectSelector": {},
            "resourceRules": [
                {
                    "apiGroups": [ACCESS_GRANTS.group],
                    "apiVersions": ["*"],
                    "operations": ["CREATE"],
                    "resources": [ACCESS_GRANTS.plural, ACCESS_APPROVALS.plural],
                    "scope": "Namespaced",
                }
            ],
        },
        "variables": [{"name": name, "expression": expression} for name, expression in VARIABLES],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": EXPRESSION}}],
    }


def mutation_binding_spec() -> JsonObject:
    """``spec`` of its binding: it applies in all namespaces."""
    return {"policyName": CREATOR_POLICY}
