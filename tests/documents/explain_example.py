"""The examples of ``docs/explain.md``, printed by the program itself: a recorded request, and a small fleet."""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rich.console import Console

from signer.authority import load_authority_certificates
from signer.cli import explain_output, status_output
from signer.configuration import Configuration, OperatorAttestor
from signer.explain.dry_run import Circumstances
from signer.explain.explanation import explain
from signer.explain.fleet import (
    DAYS,
    Attestations,
    AuthorityLife,
    ClusterStatus,
    Lives,
    Readiness,
)
from signer.explain.machines import LastCertificate, MachineState, MachineStatus
from signer.explain.offline import OfflineRegistry
from signer.explain.recorded_objects import RecordedObjects
from signer.explain.workload_requests import RequestCounts, Unreachable
from signer.model.cluster import ClusterKey, MachineView, machine_view
from tests.documents.markdown import ROOT

WIDTH: Final = 118
PAGE_COLUMNS: Final = 140
"""Width of examples in the documents."""
_CLUSTER: Final = ClusterKey("default", "production")
MOMENT: Final = datetime(2026, 11, 21, 13, 30, tzinfo=UTC)
RECORDED: Final = ROOT / "fixtures/requests/v1/client.json"


def explained(*, every_check: bool = False) -> str:
    """What ``explain`` prints of the recorded request, where its Machine is another node; with ``--all``, if so."""
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    settings = {
        "keyed-mac": OperatorAttestor(settings={"masterKey": recorded["masterKey"], "acceptUndatedEvidence": True})
    }
    around = Circumstances(
        RecordedObjects(objects(recorded, "node-7"), "node-attestation-system"),
        Configuration("node-attestation-system", attestors=settings),
        OfflineRegistry(),
        lambda: MOMENT,
        load_authority_certificates,
    )
    explanation, _ = asyncio.run(explain(recorded["certificateSigningRequest"], _CLUSTER, around))
    return _printed(lambda console: explain_output.show(explanation, console, every_check=every_check))


def objects(recorded: dict[str, Any], node_name: str) -> list[dict[str, Any]]:
    """The management cluster around the recorded request; its Machine's node is called ``node_name``."""
    named = {"name": _CLUSTER.name, "namespace": _CLUSTER.namespace}
    return [
        {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "metadata": named, "spec": {}},
        {
            "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
            "kind": "NodeAttestationPolicy",
            "metadata": named,
            "spec": {"authorizedAttestors": [{"name": "keyed-mac"}]},
        },
        {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Machine",
            "metadata": {"name": "production-md-0-x7k2p", "namespace": "default"},
            "spec": {"clusterName": _CLUSTER.name, "providerID": recorded["providerID"]},
            "status": {
                "addresses": [{"type": "Hostname", "address": node_name}],
                "initialization": {"bootstrapDataSecretCreated": True},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{_CLUSTER.name}-ca", "namespace": _CLUSTER.namespace},
            "data": {"tls.crt": recorded["clusterCACertificate"]},
        },
    ]


def clusters() -> tuple[ClusterStatus, ...]:
    """Three Clusters, one of which cannot be reached."""
    ready = Readiness("True", "Ready", "requests are decided")
    refused = Readiness("False", "Unreachable", "Unreachable: connection refused")
    year = AuthorityLife(MOMENT + timedelta(days=3000))
    return (
        ClusterStatus(
            ClusterKey("default", "production"),
            "Enforce",
            "aws",
            ready,
            Attestations(120, 118, Lives(0, 0, dict(zip(DAYS, (0, 31, 87), strict=True)), 0)),
            RequestCounts(2, {"NodeNameMismatch": 3, "BindingMismatch": 1}, 0, counted_all=True),
            year,
        ),
        one_cluster(),
        ClusterStatus(
            ClusterKey("team-b", "edge"),
            "Enforce",
            "gcp",
            refused,
            Attestations(9, 9, Lives(0, 0, dict(zip(DAYS, (0, 2, 7), strict=True)), 0)),
            Unreachable("Unreachable: connection refused"),
            year,
        ),
    )


def fleet(width: int = PAGE_COLUMNS) -> str:
    """What ``status`` prints of the Clusters."""
    return _printed(lambda console: status_output.show(clusters(), MOMENT, console), width)


def one_cluster() -> ClusterStatus:
    """A Cluster in Observe, a Machine of which holds another TPM than was expected."""
    signs, signed = (f"sha256:{hashlib.sha256(name).hexdigest()}" for name in (b"new", b"old"))

    def certificate(node: str, days: float, authority: str = signs) -> LastCertificate:
        return LastCertificate(node, "tpm", MOMENT + timedelta(days=days), authority)

    machines = (
        MachineStatus(_machine("control-plane-0"), MachineState.ATTESTED, "", certificate("control-plane-0", 5.5)),
        MachineStatus(_machine("worker-1"), MachineState.ATTESTED, "", certificate("worker-1", 4.2)),
        MachineStatus(_machine("worker-2"), MachineState.ATTESTED, "", certificate("worker-2", 6.1, signed)),
        MachineStatus(_machine("worker-3"), MachineState.ATTESTED, "", certificate("worker-3", 6.3)),
        MachineStatus(
            _machine("worker-4"),
            MachineState.OVERDUE,
            "waits; less than 15% of its lifetime left",
            certificate("worker-4", 0.4),
        ),
        MachineStatus(
            _machine("worker-5"),
            MachineState.UNATTESTED,
            "Denied EndorsementKeyMismatch; has no AttestedNode that counts",
        ),
        MachineStatus(_machine("worker-6"), MachineState.STARTING, "has no node yet"),
    )
    return ClusterStatus(
        ClusterKey("default", "staging"),
        "Observe",
        "tpm",
        Readiness("True", "Ready", "requests are decided"),
        Attestations(7, 5, Lives(0, 1, dict(zip(DAYS, (1, 0, 4), strict=True)), 0)),
        RequestCounts(1, {"EndorsementKeyMismatch": 1}, 0, counted_all=True),
        AuthorityLife(MOMENT + timedelta(days=21), signs),
        machines=machines,
    )


def by_machine(width: int = PAGE_COLUMNS, *, wide: bool = False) -> str:
    """What ``status default/staging`` prints."""
    return _printed(lambda console: status_output.show_cluster(one_cluster(), MOMENT, console, wide=wide), width)


def _machine(name: str) -> MachineView:
    return machine_view(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterName": "staging", "providerID": f"metal3://{name}"},
        }
    )


def _printed(show: Callable[[Console], None], width: int = WIDTH) -> str:
    output = io.StringIO()
    show(Console(file=output, width=width, highlight=False, color_system=None))
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())
