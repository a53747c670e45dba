"""Runs the node's own program on a machine of the demo."""

from __future__ import annotations

from pathlib import Path

from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.support.node_program import NodeProgram


def ask_with_program(cluster: WorldCluster, node: SimulatedNode, folder: Path) -> str:
    """Run ``kubelet-authenticator`` for ``node`` with a new bootstrap token; returns the name of its last request."""
    program = NodeProgram(folder, node)
    token = program.supply_bootstrap(cluster)
    ran = program.credential()
    requester = f"system:bootstrap:{token.partition('.')[0]}"
    for manifest in cluster.client().items(CERTIFICATE_SIGNING_REQUESTS.collection()):
        if manifest["spec"]["username"] == requester and Verdict.of(manifest).reason != "ChallengeIssued":
            return str(manifest["metadata"]["name"])
    raise LookupError(f"kubelet-authenticator of {node.node_name} posted no request: {ran.log}")
