"""Optional parts of a workload cluster: a service that runs for it, observers of its requests, decision listeners."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from signer.controller.requests.reporter import DecisionListener
from signer.controller.telemetry.metrics_collector import ServiceGauge
from signer.decision.authority_source import AuthoritySource
from signer.kube.client import Client, JsonObject
from signer.model.cluster import ClusterKey
from signer.model.condition import PolicyCondition
from signer.store.caches import Caches


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


@dataclass(frozen=True, slots=True)
class OptionalPartContext:
    """What the controller offers to an optional part of one workload cluster."""

    key: ClusterKey
    management: Client
    caches: Caches
    authority_source: AuthoritySource
    status_changed: asyncio.Event
    """The part sets this event when its conditions change."""
    now: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class OptionalPart:
    """One optional part of one workload cluster."""

    service: ClusterService
    observers: tuple[RequestObserver, ...] = ()
    listeners: tuple[DecisionListener, ...] = ()


OptionalPartFactory = Callable[[OptionalPartContext], OptionalPart]
