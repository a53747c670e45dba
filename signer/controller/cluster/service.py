"""What may run for each workload cluster beside its requests, and what may watch its requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from signer.controller.telemetry.metrics_collector import ServiceGauge
from signer.kube.client import Client, JsonObject
from signer.model.condition import PolicyCondition


class ClusterService(Protocol):
    """Runs for one workload cluster while it is connected. The optional parts of the controller bring their own."""

    @property
    def name(self) -> str:
        """For logs and the metric of failed tasks."""
        ...

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """For the policy's status."""
        ...

    def gauges(self) -> Sequence[ServiceGauge]:
        """For metrics; of families that the metrics collector was given."""
        ...

    def wake(self) -> None:
        """The Cluster, its policy or something else that every request depends on has changed."""
        ...

    async def run(self, client: Client) -> None:
        """Work over this connection, which was seen to answer, until cancelled. It is restarted if it fails."""
        ...


class RequestObserver(Protocol):
    """Sees each CSR of a workload cluster, of whatever signer. It must neither wait nor raise."""

    def listed(self, manifest: JsonObject) -> None:
        """A CSR of a list that is under way."""
        ...

    def list_ended(self) -> None:
        """All of the list was told."""
        ...

    def saw(self, manifest: JsonObject) -> None:
        """A CSR is new or has changed."""
        ...
