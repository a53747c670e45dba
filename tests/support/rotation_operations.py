"""Requests for operations of the rotation, and what the admission policy says to each.

``python -m tests.support.record_reviews`` records the AdmissionReview of each from a real kube-apiserver.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from signer.admission.policy import RefusalReason
from signer.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NODE_ATTESTATION_POLICIES
from signer.rotation.admission_policy import (
    COMPLETE_TOO_EARLY,
    NO_WAY_BACK,
    NODE_CLIENT_TOO_EARLY,
    NOT_ALLOWED,
    NOTHING_TO_ABANDON,
    NOTHING_TO_RETRY,
    SKIP_NOT_ALLOWED,
    START_TOO_EARLY,
    UNKNOWN_OPERATION,
)
from signer.rotation.operations import OPERATION_ANNOTATION, SKIP_GATES_ANNOTATION
from tests.support.cel import Grant
from tests.support.control_plane import ControlPlane
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.support.yaml_documents import safe_load

REVIEWS: Final = Path(__file__).parents[2] / "fixtures" / "admission" / "rotation"
NAMESPACE: Final = "default"
EDITOR: Final = "editor"
"""May edit NodeAttestationPolicies, and no more."""
ROTATOR: Final = "rotator"
"""Has the verb ``rotate-ca``, too."""
_DEFINITION: Final = (
    Path(__file__).parents[2] / "signer" / "crds" / "attestation.cluster.x-k8s.io_nodeattestationpolicies.yaml"
)


@dataclass(frozen=True, slots=True)
class Case:
    """One request: an update that changes annotations, or a creation with them."""

    name: str
    change: Mapping[str, str | None]
    """Annotations by name; None removes one."""
    says: str | None = None
    """Message of the refusal; None if the request passes."""
    user: str = ROTATOR
    before: Mapping[str, str] = field(default_factory=dict)
    phase: str | None = None
    rollback_available: str | None = None
    creates: bool = False

    @property
    def object(self) -> dict[str, Any]:
        """The NodeAttestationPolicy before the update, or the created one."""
        set_ = {name: value for name, value in self.change.items() if value is not None} if self.creates else {}
        return {
            "apiVersion": NODE_ATTESTATION_POLICIES.api_version,
            "kind": "NodeAttestationPolicy",
            "metadata": {"name": self.name, "namespace": NAMESPACE, "annotations": {**self.before, **set_}},
            "spec": {"authorizedAttestors": [{"name": "tpm"}]},
        }

    @property
    def status(self) -> dict[str, Any]:
        """Its status."""
        authorities = {"phase": self.phase, "rollbackAvailable": self.rollback_available}
        present = {name: value for name, value in authorities.items() if value is not None}
        return {"credentials": {"rotation": {"certificateAuthorities": present}}} if present else {}

    @property
    def review(self) -> dict[str, Any]:
        """The recorded AdmissionReview."""
        review: dict[str, Any] = json.loads((REVIEWS / f"{self.name}.json").read_text(encoding="utf-8"))
        return review

    @property
    def grants(self) -> frozenset[Grant]:
        """What the user may do besides editing."""
        group, plural = NODE_ATTESTATION_POLICIES.group, NODE_ATTESTATION_POLICIES.plural
        return frozenset({Grant(ROTATOR, group, plural, NAMESPACE, self.name, "rotate-ca")})

    def send(self, client: RawClient) -> Any:
        """Send the request; the answer of the API server."""
        if self.creates:
            return client.post(NODE_ATTESTATION_POLICIES.collection(NAMESPACE), self.object)
        path = NODE_ATTESTATION_POLICIES.object(self.name, NAMESPACE)
        return client.patch(path, {"metadata": {"annotations": dict(self.change)}})


def _asks(operation: str) -> dict[str, str | None]:
    return {OPERATION_ANNOTATION: operation}


CASES: Final = (
    Case("start", _asks("start-ca-rotation")),
    Case("start-alias", _asks("rotate-ca-start")),
    Case("start-without-workers", _asks("start-ca-rotation-without-workers-rollout"), phase="Completed"),
    Case("start-without-workers-alias", _asks("rotate-ca-start-without-workers-rollout")),
    Case("start-while-prepared", _asks("start-ca-rotation"), START_TOO_EARLY, phase="Prepared"),
    Case("start-alias-while-preparing", _asks("rotate-ca-start"), START_TOO_EARLY, phase="Preparing"),
    Case("start-in-a-phase-to-come", _asks("start-ca-rotation"), START_TOO_EARLY, phase="Unheard"),
    Case("start-after-a-rollback", _asks("start-ca-rotation"), phase="RolledBack"),
    Case("start-by-editor", _asks("start-ca-rotation"), NOT_ALLOWED, EDITOR),
    Case("start-at-creation", _asks("start-ca-rotation"), creates=True),
    Case("start-at-creation-by-editor", _asks("start-ca-rotation"), NOT_ALLOWED, EDITOR, creates=True),
    Case("complete", _asks("complete-ca-rotation"), phase="Prepared"),
    Case("complete-alias", _asks("rotate-ca-complete"), phase="Prepared"),
    Case("complete-while-preparing", _asks("complete-ca-rotation"), COMPLETE_TOO_EARLY, phase="Preparing"),
    Case("complete-before-start", _asks("rotate-ca-complete"), COMPLETE_TOO_EARLY),
    Case("complete-at-creation", _asks("complete-ca-rotation"), COMPLETE_TOO_EARLY, creates=True),
    Case("complete-by-editor", _asks("complete-ca-rotation"), NOT_ALLOWED, EDITOR, phase="Prepared"),
    Case("roll-back", _asks("rollback-ca-rotation"), phase="Prepared", rollback_available="Full"),
    Case("roll-back-clients", _asks("rollback-ca-rotation"), phase="Completing", rollback_available="ClientsOnly"),
    Case(
        "roll-back-too-late", _asks("rollback-ca-rotation"), NO_WAY_BACK, phase="Completing", rollback_available="None"
    ),
    Case("roll-back-of-nothing", _asks("rollback-ca-rotation"), NO_WAY_BACK),
    Case("retry", _asks("retry-ca-rotation"), phase="Completing"),
    Case("retry-of-nothing", _asks("retry-ca-rotation"), NOTHING_TO_RETRY),
    Case("retry-after-the-end", _asks("retry-ca-rotation"), NOTHING_TO_RETRY, phase="Completed"),
    Case("retry-after-a-rollback", _asks("retry-ca-rotation"), NOTHING_TO_RETRY, phase="RolledBack"),
    Case("abandon", _asks("abandon-ca-rotation"), phase="Completing"),
    Case("abandon-of-nothing", _asks("abandon-ca-rotation"), NOTHING_TO_ABANDON),
    Case("abandon-after-the-end", _asks("abandon-ca-rotation"), NOTHING_TO_ABANDON, phase="Abandoned"),
    Case("abandon-by-editor", _asks("abandon-ca-rotation"), NOT_ALLOWED, EDITOR, phase="Completing"),
    Case("start-after-an-abandonment", _asks("start-ca-rotation"), phase="Abandoned"),
    Case("node-client", _asks("rotate-node-client-authority")),
    Case("node-client-after-the-end", _asks("rotate-node-client-authority"), phase="Completed"),
    Case(
        "node-client-while-preparing",
        _asks("rotate-node-client-authority"),
        NODE_CLIENT_TOO_EARLY,
        phase="Preparing",
    ),
    Case("node-client-by-editor", _asks("rotate-node-client-authority"), NOT_ALLOWED, EDITOR),
    Case("ssh-start", _asks("start-ssh-ca-rotation"), phase="Preparing"),
    Case("ssh-start-alias", _asks("rotate-ssh-ca-start")),
    Case("ssh-keypair", _asks("rotate-ssh-keypair")),
    Case("ssh-complete", _asks("complete-ssh-ca-rotation")),
    Case("ssh-complete-alias", _asks("rotate-ssh-ca-complete")),
    Case("ssh-roll-back", _asks("rollback-ssh-ca-rotation")),
    Case("ssh-retry", _asks("retry-ssh-ca-rotation")),
    Case("ssh-revoke-user", _asks("revoke-ssh-user-ca")),
    Case("ssh-revoke-host", _asks("revoke-ssh-host-ca")),
    Case("ssh-keypair-by-editor", _asks("rotate-ssh-keypair"), NOT_ALLOWED, EDITOR),
    Case("ssh-revoke-user-by-editor", _asks("revoke-ssh-user-ca"), NOT_ALLOWED, EDITOR),
    Case("unknown", _asks("rotate-everything"), UNKNOWN_OPERATION),
    Case("empty", _asks(""), UNKNOWN_OPERATION),
    Case("unknown-by-editor", _asks("Start-CA-Rotation"), UNKNOWN_OPERATION, EDITOR),
    Case(
        "other-operation",
        _asks("complete-ca-rotation"),
        COMPLETE_TOO_EARLY,
        before={OPERATION_ANNOTATION: "start-ca-rotation"},
    ),
    Case(
        "unchanged-operation",
        {"example.org/note": "later"},
        user=EDITOR,
        before={OPERATION_ANNOTATION: "start-ca-rotation"},
        phase="Preparing",
    ),
    Case("unchanged-unknown", {"example.org/note": "later"}, user=EDITOR, before={OPERATION_ANNOTATION: "old"}),
    Case("removed", {OPERATION_ANNOTATION: None}, user=EDITOR, before={OPERATION_ANNOTATION: "start-ca-rotation"}),
    Case("other-annotation", {"example.org/note": "now"}, user=EDITOR),
    Case("skip-gates", {SKIP_GATES_ANNOTATION: "NodesTrust"}),
    Case("skip-gates-by-editor", {SKIP_GATES_ANNOTATION: "NodesTrust"}, SKIP_NOT_ALLOWED, EDITOR),
    Case(
        "skip-more-gates-by-editor",
        {SKIP_GATES_ANNOTATION: "NodesTrust,OldRefused"},
        SKIP_NOT_ALLOWED,
        EDITOR,
        before={SKIP_GATES_ANNOTATION: "NodesTrust"},
    ),
    Case(
        "unchanged-skip-gates",
        {"example.org/note": "later"},
        user=EDITOR,
        before={SKIP_GATES_ANNOTATION: "NodesTrust"},
    ),
    Case(
        "skip-gates-removed", {SKIP_GATES_ANNOTATION: None}, user=EDITOR, before={SKIP_GATES_ANNOTATION: "NodesTrust"}
    ),
)
REASONS: Final = {
    NOT_ALLOWED: RefusalReason.FORBIDDEN,
    SKIP_NOT_ALLOWED: RefusalReason.FORBIDDEN,
}
"""Of the messages whose reason is not ``Invalid``."""


def prepare(control_plane: ControlPlane, admin: RawClient) -> None:
    """Create the users' roles and the objects of all cases, before anything looks at requests."""
    definition = safe_load(_DEFINITION.read_text(encoding="utf-8"))
    for version in definition["spec"]["versions"]:
        # A later version of the controller may know phases that this schema refuses.
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
        rotation = status["properties"]["credentials"]["properties"]["rotation"]
        rotation["properties"]["certificateAuthorities"]["properties"]["phase"].pop("enum")
    control_plane.install_crd(definition)
    group, plural = NODE_ATTESTATION_POLICIES.group, NODE_ATTESTATION_POLICIES.plural
    for user, verbs in ((EDITOR, ["get", "create", "patch"]), (ROTATOR, ["get", "create", "patch", "rotate-ca"])):
        grant(admin, user, [{"apiGroups": [group], "resources": [plural], "verbs": verbs}])
    for case in CASES:
        if case.creates:
            continue
        admin.post(NODE_ATTESTATION_POLICIES.collection(NAMESPACE), case.object).expect(201)
        path = NODE_ATTESTATION_POLICIES.object(case.name, NAMESPACE, "status")
        change = {"status": copy.deepcopy(case.status)}

        def kept(path: str = path, change: dict[str, Any] = change, case: Case = case) -> bool:
            """Whether the API server knows the definition with the stand-in already."""
            return bool(admin.patch(path, change).expect(200).get("status", {}) == case.status)

        wait_until(kept, f"the status of {case.name} is stored")


def grant(admin: RawClient, user: str, rules: list[dict[str, Any]]) -> None:
    """Give a user a ClusterRole of its own."""
    name = f"rotation-{user}"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": user}],
    }
    admin.post(CLUSTER_ROLES.collection(), role).expect(201)
    admin.post(CLUSTER_ROLE_BINDINGS.collection(), binding).expect(201)
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    for rule in rules:
        for verb in rule["verbs"]:
            asked = {"group": rule["apiGroups"][0], "resource": rule["resources"][0], "verb": verb}
            if rule.get("resourceNames"):
                asked["name"] = rule["resourceNames"][0]
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": user, "resourceAttributes": {**asked, "namespace": NAMESPACE}},
            }

            def allowed(review: dict[str, Any] = review) -> bool:
                return bool(admin.post(path, review).expect(201)["status"]["allowed"])

            wait_until(allowed, f"{user} may {verb}")


def tidy(control_plane: ControlPlane, admin: RawClient) -> None:
    """Delete what ``prepare`` and the cases created."""
    for case in CASES:
        admin.delete(NODE_ATTESTATION_POLICIES.object(case.name, NAMESPACE))
    for found in admin.get(CLUSTER_ROLES.collection()).expect(200)["items"]:
        name = found["metadata"]["name"]
        if name.startswith("rotation-"):
            admin.delete(CLUSTER_ROLE_BINDINGS.object(name))
            admin.delete(CLUSTER_ROLES.object(name))
    control_plane.install_crds([_DEFINITION])
