"""The examples of ``docs/explain.md``, printed by the program itself: a recorded request, and a small fleet."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from rich.console import Console

from signer.authority import load_authority_certificates
from signer.cli import explain_output, status
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
from signer.explain.offline import OfflineRegistry
from signer.explain.recorded_objects import RecordedObjects
from signer.explain.workload_requests import RequestCounts, Unreachable
from signer.model.cluster import ClusterKey
from tests.documents.markdown import ROOT

WIDTH: Final = 118
PAGE_COLUMNS: Final = 140
"""Width of examples in the documents."""
_CLUSTER: Final = ClusterKey("default", "production")
_MOMENT: Final = datetime(2026, 11, 21, 13, 30, tzinfo=UTC)
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
        lambda: _MOMENT,
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


def fleet(width: int = PAGE_COLUMNS) -> str:
    """What ``status`` prints of three Clusters, one of which cannot be reached."""
    ready = Readiness("True", "Ready", "requests are decided")
    refused = Readiness("False", "Unreachable", "Unreachable: connection refused")
    year = AuthorityLife(_MOMENT + timedelta(days=3000))
    found = (
        ClusterStatus(
            ClusterKey("default", "production"),
            "Enforce",
            "aws",
            ready,
            Attestations(120, 118, Lives(0, 0, dict(zip(DAYS, (0, 31, 87), strict=True)), 0)),
            RequestCounts(2, {"NodeNameMismatch": 3, "BindingMismatch": 1}, 0, counted_all=True),
            year,
        ),
        ClusterStatus(
            ClusterKey("default", "staging"),
            "Observe",
            "tpm",
            ready,
            Attestations(6, 5, Lives(0, 1, dict(zip(DAYS, (1, 0, 4), strict=True)), 0)),
            RequestCounts(0, {}, 0, counted_all=True),
            AuthorityLife(_MOMENT + timedelta(days=21)),
        ),
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
    return _printed(lambda console: status.show(found, _MOMENT, console), width)


def _printed(show: Callable[[Console], None], width: int = WIDTH) -> str:
    output = io.StringIO()
    show(Console(file=output, width=width, highlight=False, color_system=None))
    return "".join(f"{line.rstrip()}\n" for line in output.getvalue().splitlines())
