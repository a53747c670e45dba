"""What all workload clusters share, handed to each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from attestors.registry import Registry
from signer.audit.log import AuditLog
from signer.controller.attestor_turns import AttestorTurns
from signer.controller.configuration import Configuration
from signer.controller.infrastructure_status import InfrastructureStatus
from signer.controller.lookups import Lookups
from signer.controller.machine_condition import MachineConditions
from signer.controller.metrics import Metrics
from signer.controller.recorder import Recorder
from signer.controller.room import Together
from signer.controller.turns import Turns
from signer.controller.workers import Crew
from signer.kube.allowances import Allowances
from signer.kube.client import Client
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.inventory import Inventory
from signer.store.records import Records
from signer.store.removed_grants import RemovedGrants
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
