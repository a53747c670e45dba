"""What all workload clusters share, handed to each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from attestors.registry import Registry
from signer.audit.log import AuditLog
from signer.configuration import Configuration
from signer.controller.diagnostics.metrics import Metrics
from signer.controller.requests.request_budget import Together
from signer.controller.requests.workers import Crew
from signer.controller.status.infrastructure_status import InfrastructureStatus
from signer.controller.status.machine_condition import MachineConditions
from signer.controller.status.recorder import Recorder
from signer.decision.attestor_timing import AttestorTurns
from signer.decision.lookups import Lookups
from signer.kube.client import Client
from signer.kube.resource_limits import Allowances
from signer.kube.semaphore import Turns
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Inventory
from signer.store.records import Records
from signer.store.removed_bindings import RemovedGrants
from signer.store.reservations import Reservations


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all workload clusters share."""

    management: Client
    configuration: Configuration
    registry: Registry
    inventory: Inventory
    reservations: Reservations
    records: Records
    bootstrap_tokens: BootstrapTokens
    lookups: Lookups
    attestor_turns: AttestorTurns
    removed_grants: RemovedGrants
    machine_conditions: MachineConditions
    infrastructure_status: InfrastructureStatus
    allowances: Allowances
    """What workload clusters may take of memory and of the event loop together."""
    requests_together: Together
    """Memory for the requests of all workload clusters."""
    crew: Crew
    """Workers that workload clusters share."""
    connects: Turns
    """For connections that begin."""
    door_looks: Turns
    """For looks at side doors."""
    recorder: Recorder
    metrics: Metrics
    audit_log: AuditLog
    now: Callable[[], datetime]
    monotonic: Callable[[], float]
