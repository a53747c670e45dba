"""What all workload clusters share, handed to each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from attestors.registry import Registry
from signer.audit.log import AuditLog
from signer.configuration import Configuration
from signer.controller.requests.request_budget import SharedRequestMemory
from signer.controller.requests.workers import SharedWorkerPool
from signer.controller.status.infrastructure_status import InfrastructureStatus
from signer.controller.status.machine_condition import MachineConditions
from signer.controller.telemetry.metrics import Metrics
from signer.controller.telemetry.recorder import Recorder
from signer.decision.attestor_timing import AttestorTimings
from signer.decision.lookups import Lookups
from signer.kube.client import Client
from signer.kube.resource_limits import ResourceLimits
from signer.kube.scheduling import TimedSemaphore
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches
from signer.store.records import Records
from signer.store.removed_bindings import RemovedBindings
from signer.store.reservations import Reservations


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all workload clusters share."""

    management: Client
    configuration: Configuration
    registry: Registry
    caches: Caches
    reservations: Reservations
    records: Records
    bootstrap_tokens: BootstrapTokens
    lookups: Lookups
    attestor_timings: AttestorTimings
    removed_bindings: RemovedBindings
    machine_conditions: MachineConditions
    infrastructure_status: InfrastructureStatus
    resource_limits: ResourceLimits
    """What workload clusters may take of memory and of the event loop together."""
    shared_request_memory: SharedRequestMemory
    """Memory for the requests of all workload clusters."""
    worker_pool: SharedWorkerPool
    """Workers that workload clusters share."""
    connects: TimedSemaphore
    """For connections that begin."""
    auto_approval_checks: TimedSemaphore
    """For looks at auto-approvals."""
    recorder: Recorder
    metrics: Metrics
    audit_log: AuditLog
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
