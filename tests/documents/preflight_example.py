"""A cluster that is not ready for Enforce, for the example in ``docs/enforce.md``: printed by the program itself."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from typing import Final

from rich.console import Console

from attestors.contract import Security
from signer.cli.preflight import show
from signer.controller.auto_approval.preflight import Preflight
from signer.controller.status.renewal_coverage import Attested, Unattested
from signer.model.auto_approval import ApprovalSubresource, ClusterRoleBinding, Subject
from signer.model.cluster import ClusterKey, MachineView
from signer.model.policy import Mode
from signer.model.record import KUBELET_CLIENT, AttestedIdentity, AttestedNode, JournalEntry, MachineKey
from signer.rules.auto_approval import AllowedReview, Obstacle, RemovableGrant, ReportedGrant, reviewed_identities

WIDTH: Final = 110
_CLUSTER: Final = ClusterKey("default", "production")
_MOMENT: Final = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
_BUILTIN_ROLE: Final = "system:certificates.k8s.io:certificatesigningrequests"
_TOKENS: Final = "system:bootstrappers:kubeadm:default-node-token"


def printed() -> str:
    """What ``node-attestation-controller preflight`` prints of it."""
    output = io.StringIO()
    show(example(), Console(file=output, width=WIDTH, highlight=False, color_system=None))
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())


def example() -> Preflight:
    """One Machine is attested, one never was, and somebody's own role opens the door too."""
    grants = (
        RemovableGrant(
            _binding("kubeadm:node-autoapprove-bootstrap", f"{_BUILTIN_ROLE}:nodeclient", _TOKENS),
            frozenset({ApprovalSubresource.NODECLIENT}),
        ),
        RemovableGrant(
            _binding(
                "kubeadm:node-autoapprove-certificate-rotation", f"{_BUILTIN_ROLE}:selfnodeclient", "system:nodes"
            ),
            frozenset({ApprovalSubresource.SELFNODECLIENT}),
        ),
        ReportedGrant(
            _binding("node-provisioner", "node-provisioner", "provisioners"),
            frozenset({ApprovalSubresource.NODECLIENT}),
            Obstacle.GRANTS_MORE,
        ),
    )
    openings = tuple(
        AllowedReview(auto_approval, identity)
        for identity in reviewed_identities(grants, [])
        for grant in grants
        for auto_approval in grant.subresources
        if {subject.name for subject in grant.binding.subjects} & {*identity.groups}
    )
    return Preflight(
        cluster=_CLUSTER,
        mode=Mode.OBSERVE,
        policy_problem="",
        renewal_coverage=(
            Attested(_machine("worker-1"), _record("worker-1")),
            Unattested(_machine("worker-2"), "has no AttestedNode that counts"),
        ),
        unknown_nodes=(),
        grants=grants,
        openings=openings,
        notes=(),
    )


def _binding(name: str, role: str, group: str) -> ClusterRoleBinding:
    return ClusterRoleBinding(name, "uid", "1", role, (Subject("Group", "rbac.authorization.k8s.io", group, ""),))


def _machine(name: str) -> MachineView:
    return MachineView(
        cluster=_CLUSTER,
        kind="Machine",
        name=name,
        uid="uid",
        provider_id=f"test:///{name}",
        addresses=(),
        infrastructure_name="",
        node_ref=name,
        bootstrap_ready=True,
        paused=False,
        deleting=False,
    )


def _record(name: str) -> AttestedNode:
    return AttestedNode(
        machine=MachineKey(_CLUSTER, "Machine", name, f"test:///{name}"),
        machine_uid="uid",
        node_name=name,
        identity=AttestedIdentity("keyed-mac", "identity", Security.SECURE),
        first_attestation=_MOMENT,
        last_attestation=_MOMENT,
        last_not_after=_MOMENT + timedelta(days=7),
        journal=(_client_certificate(name),),
    )


def _client_certificate(name: str) -> JournalEntry:
    return JournalEntry(
        kind=KUBELET_CLIENT,
        csr_name=name,
        csr_uid="uid",
        spec_digest="00" * 32,
        signer_name="cluster.x-k8s.io/kube-apiserver-client-kubelet-keyed-mac",
        requester="system:bootstrap:abcdef",
        serial_number=1,
        not_before=_MOMENT - timedelta(minutes=5),
        not_after=_MOMENT + timedelta(days=7),
        ca_cert_hash=f"sha256:{'00' * 32}",
        evidence_ca_cert_hash=f"sha256:{'00' * 32}",
        certificate_digest="00" * 32,
        public_key_digest="00" * 32,
        created=_MOMENT,
        decided=_MOMENT,
    )
