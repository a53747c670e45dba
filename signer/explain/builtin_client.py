"""What to say of a request to ``kubernetes.io/kube-apiserver-client-kubelet``, which the controller leaves alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from attestors.wire.names import NODE_USER_PREFIX, BuiltinSigner
from signer.model.bootstrap_token import InvalidRequester, TokenRequester, requester_of
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.policy import Mode, Policy
from signer.store.caches import Caches

PAGE: Final = "node"
"""How ``kubelet-authenticator`` is installed on a node."""
_BUILTIN: Final = (
    f"{BuiltinSigner.KUBELET_CLIENT} is the built-in signer of kubelets' client certificates, and the controller "
    "leaves its requests alone"
)
_OBSERVE: Final = "kube-controller-manager decides them by kubeadm's auto-approval bindings"
_ENFORCE: Final = (
    "the controller removes auto-approval, so that they stay Pending. The policy's condition AutoApprovalRemoved says "
    "whether any is left"
)
_INSTALL: Final = "If a node of yours sent the request, install kubelet-authenticator on it (docs/node.md)."


@dataclass(frozen=True, slots=True)
class LeftToOthers:
    """Why the controller does not decide the request, and what to do; both are printable."""

    message: str
    remedy: str


def left_to_others(key: ClusterKey, caches: Caches, username: str) -> LeftToOthers:
    """What becomes of the request, by the mode of the cluster's policy, if that is known."""
    policy = caches.policies.get(key.namespace, key.name)
    if not isinstance(policy, Policy):
        message = f"{_BUILTIN}. Under mode Observe, or without a policy, {_OBSERVE}. Under mode Enforce, {_ENFORCE}"
        return LeftToOthers(message, f"Under mode Enforce: {_enforced(username)}")
    if policy.mode is Mode.OBSERVE:
        return LeftToOthers(
            f"{_BUILTIN}. The policy's mode is Observe: {_OBSERVE}",
            "Nothing to do under Observe. Before you set Enforce: if a node of yours sent the request, install "
            f"kubelet-authenticator on it (docs/node.md); node-attestation-controller preflight {key} lists the nodes "
            "that would lose renewal.",
        )
    return LeftToOthers(f"{_BUILTIN}. The policy's mode is Enforce: {_ENFORCE}", _enforced(username))


def _enforced(username: str) -> str:
    return f"{_INSTALL} {_otherwise(username)}"


def _otherwise(username: str) -> str:
    """What to do if none of the operator's nodes sent the request."""
    try:
        requester = requester_of(username)
    except InvalidRequester:
        return f"If none did, find out what posts requests as {printable(username) or 'that user'}."
    if isinstance(requester, TokenRequester):
        return (
            "If none did, somebody tries a bootstrap token: revoke it by deleting Secret "
            f"kube-system/bootstrap-token-{requester.token_id} in the workload cluster. That ends no certificate that "
            "was issued before."
        )
    node = printable(username.removeprefix(NODE_USER_PREFIX))
    return f"If none did, somebody has the client certificate of node {node}: treat that node as compromised."
