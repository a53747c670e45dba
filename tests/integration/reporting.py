"""A cluster under the attestor that reports what it was passed, and its nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from signer.configuration import OperatorAttestor
from signer.controller.run import ControllerOptions
from signer.testing.nodes import SimulatedNode
from signer.testing.world import RunningController, WorldCluster
from tests.integration.fixtures import Harness, provider_id
from tests.support.reporting_attestor import PROVIDER, PROVIDER_ID_SETTING, REPORT_SETTING, Report, registry


@dataclass
class Reporting:
    """A running controller, and what its attestor reported."""

    harness: Harness
    reports: list[Report] = field(default_factory=list)

    def cluster(self, name: str = "workload", **more: Any) -> WorldCluster:
        """A workload cluster with a policy for this attestor."""
        return self.harness.cluster(name, (PROVIDER,), **more)

    def run(self, *, ahead: Callable[[], timedelta] = timedelta, **configuration: Any) -> RunningController:
        """Start a controller, whose clock is ``ahead`` by so much."""
        attestors = {PROVIDER: OperatorAttestor(settings={REPORT_SETTING: self.reports.append})}
        options = ControllerOptions(registry=registry(), now=lambda: datetime.now(UTC) + ahead())
        return self.harness.run(options, attestors=attestors, **configuration)

    def node(self, cluster: WorldCluster, machine: str, **settings: str) -> SimulatedNode:
        """The node on that Machine; dashes in the names of settings are underscores here."""
        named = {name.replace("_", "-"): value for name, value in settings.items()}
        return SimulatedNode(
            machine,
            provider_id(machine),
            cluster.ca_cert_hash,
            PROVIDER,
            {PROVIDER_ID_SETTING: provider_id(machine), **named},
            registry=registry(),
        )

    def of(self, cluster: WorldCluster, csr: str, reason: str = "Attested") -> Report:
        """The last report of that request, which must have its certificate."""
        verdict = cluster.wait_until_decided(csr)
        assert (verdict.condition, verdict.reason) == ("Approved", reason), verdict
        uid = cluster.client().get(f"/apis/certificates.k8s.io/v1/certificatesigningrequests/{csr}")["metadata"]["uid"]
        return [report for report in self.reports if report.request.csr_uid == uid][-1]
