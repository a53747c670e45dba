"""Protocols of optional parts: services that run for each workload cluster, and observers of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from signer.controller.telemetry.metrics_collector import ServiceGauge
from signer.kube.client import Client, JsonObject
from signer.model.condition import PolicyCondition


class ClusterService(Protocol):
    """Runs for one workload cluster while it is connected."""

    @property
    def name(self) -> str:
        """For logs and the metric of failed tasks."""
        ...

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """For the policy's status."""
        ...

    def gauges(self) -> Sequence[ServiceGauge]:
        """For metrics; their families must be registered with the metrics collector."""
        ...

    def wake(self) -> None:
        """The Cluster, its policy or something else that every request depends on has changed."""
        ...

    async def run(self, client: Client) -> None:
        """Work over a connection on which the API server has answered, until cancelled. Restarted after a failure."""
        ...


class RequestObserver(Protocol):
    """Observes every CSR of a workload cluster, of any signer. Its methods must neither wait nor raise."""

    def listed(self, manifest: JsonObject) -> None:
        """A CSR of a list whose pages arrive."""
        ...

    def list_ended(self) -> None:
        """The list is complete."""
        ...

    def observed(self, manifest: JsonObject) -> None:
        """A CSR is new or has changed."""
        ...
