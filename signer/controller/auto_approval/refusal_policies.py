"""The admission policies by which a workload cluster's API server itself refuses requests under mode Enforce.

Bootstrap tokens and nodes have a policy each, because nodes are refused later. A policy refuses the creation of a
request to a built-in client signer, and its approval by kube-controller-manager: a request from before the policy may
wait for a day. An administrator may still approve one by hand. Requests to other signers, such as
``kubernetes.io/kubelet-serving`` and those of attestors, are not looked at.

The proof cannot be a bootstrap token. So an annotation names one more group that the policies take the requester to be
in. That can only make them refuse more.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding

from attestors.wire.names import (
    ANNOTATION_PREFIX,
    BOOTSTRAP_USER_PREFIX,
    BOOTSTRAPPERS_GROUP,
    NODE_USER_PREFIX,
    NODES_GROUP,
    BuiltinSigner,
)
from signer.admission.policy import (
    AdmissionPolicy,
    DryRunVerb,
    MatchCondition,
    MatchedResource,
    Operation,
    Proof,
    RefusalReason,
    Validation,
    Variable,
)
from signer.kube.client import JsonObject
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.auto_approval import CERTIFICATES_GROUP, REQUESTS

PROOF_GROUP_ANNOTATION: Final = f"{ANNOTATION_PREFIX}/proof-group"
"""On a request: one more group that the policies take its requester to be in."""
CLIENT_SIGNERS: Final = (BuiltinSigner.KUBELET_CLIENT.value, "kubernetes.io/kube-apiserver-client")
APPROVERS: Final = ("system:serviceaccount:kube-system:certificate-controller", "system:kube-controller-manager")
"""kube-controller-manager's user with and without ``--use-service-account-credentials``
(``cmd/kube-controller-manager/app/certificates.go``)."""
_REMEDY: Final = "install kubelet-authenticator on the node, which requests its certificate with attestation"
_PROOF_NAME: Final = "node-attestation-proof"


def _policy(name: str, who: str, group: str, user_prefix: str) -> AdmissionPolicy:
    signers = ", ".join(f"'{one}'" for one in CLIENT_SIGNERS)
    approvers = ", ".join(f"'{one}'" for one in APPROVERS)
    annotated = f"has(object.metadata.annotations) && '{PROOF_GROUP_ANNOTATION}' in object.metadata.annotations"
    named = f"[object.metadata.annotations['{PROOF_GROUP_ANNOTATION}']]"
    of_request, of_object = "request.userInfo", "object.spec"
    return AdmissionPolicy(
        name=name,
        resources=(
            MatchedResource(CERTIFICATES_GROUP, REQUESTS, (Operation.CREATE,), namespaced=False),
            MatchedResource(CERTIFICATES_GROUP, f"{REQUESTS}/approval", (Operation.UPDATE,), namespaced=False),
        ),
        match_conditions=(MatchCondition("built-in-client-signer", f"object.spec.signerName in [{signers}]"),),
        variables=(
            Variable("isApproval", "request.operation == 'UPDATE'"),
            Variable(
                "requester",
                f"variables.isApproval ? (has({of_object}.username) ? {of_object}.username : '') : "
                f"(has({of_request}.username) ? {of_request}.username : '')",
            ),
            Variable(
                "groups",
                f"variables.isApproval ? (has({of_object}.groups) ? {of_object}.groups : []) : "
                f"(has({of_request}.groups) ? {of_request}.groups : [])",
            ),
            Variable("proofGroups", f"{annotated} ? {named} : []"),
            Variable(
                "isRefused",
                f"variables.requester.startsWith('{user_prefix}') || '{group}' in variables.groups || "
                f"'{group}' in variables.proofGroups",
            ),
            Variable("isByAPerson", f"variables.isApproval && !(request.userInfo.username in [{approvers}])"),
        ),
        validations=(
            Validation(
                "!variables.isRefused || variables.isByAPerson",
                f"mode Enforce refuses {who} at the built-in client signers: {_REMEDY}",
                RefusalReason.FORBIDDEN,
            ),
        ),
    )


@dataclass(frozen=True, slots=True)
class RefusalPolicy:
    """One of the two policies."""

    policy: AdmissionPolicy
    group: str
    who: str
    """For messages."""

    @property
    def proof(self) -> Proof:
        """Of the policy, with :data:`PROOF_PATH`: the same request as a member of the group, and as none."""
        (message,) = self.policy.messages
        return Proof(DryRunVerb.CREATE, _request({PROOF_GROUP_ANNOTATION: self.group}), message, _request({}))


TOKENS: Final = RefusalPolicy(
    _policy("node-attestation-bootstrap-tokens", "bootstrap tokens", BOOTSTRAPPERS_GROUP, BOOTSTRAP_USER_PREFIX),
    BOOTSTRAPPERS_GROUP,
    "bootstrap tokens",
)
NODES: Final = RefusalPolicy(
    _policy("node-attestation-nodes", "nodes", NODES_GROUP, NODE_USER_PREFIX), NODES_GROUP, "nodes"
)
PROOF_PATH: Final = CERTIFICATE_SIGNING_REQUESTS.collection()


def _request(annotations: dict[str, str]) -> JsonObject:
    # generateName: whoever may create requests could take any fixed name, and the proof would fail.
    metadata: dict[str, Any] = {"generateName": f"{_PROOF_NAME}-"}
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": CERTIFICATE_SIGNING_REQUESTS.api_version,
        "kind": "CertificateSigningRequest",
        "metadata": metadata,
        "spec": {
            "request": _proof_request(),
            "signerName": BuiltinSigner.KUBELET_CLIENT.value,
            "usages": ["digital signature", "client auth"],
        },
    }


@cache
def _proof_request() -> str:
    """A request of a key that is not kept, in base64. It is never stored, and nobody approves it."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, _PROOF_NAME)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = request.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return base64.b64encode(signed.public_bytes(Encoding.PEM)).decode("ascii")


__all__ = ["APPROVERS", "CLIENT_SIGNERS", "NODES", "PROOF_GROUP_ANNOTATION", "PROOF_PATH", "TOKENS", "RefusalPolicy"]
