"""The scenarios that ``interleavings`` explores: the pairs that actors want to reserve, and the state of the world."""

from __future__ import annotations

import copy
import enum
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from attestors.contract import Security
from signer.kube.client import JsonObject
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINE_POOLS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey
from signer.model.record import AttestedIdentity, MachineKey
from signer.model.reservation import Basis, Pair, ReservationSide
from signer.model.seal import ControllerKeys
from signer.store.cluster_api import ClusterAPIVersion
from tests.support.reservations import ATTESTED, KEYS, reservation_spec

NAMESPACE: Final = "node-attestation-system"
VERSION: Final = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)
MAXIMUM_CALLS: Final = 45
"""Calls of one actor, whatever the others do: three attempts (see ``fewer_attempts``) of at most 15 calls."""


POOL: Final = "pool"


def machine(name: str, cluster: str = "prod") -> MachineKey:
    """The Machine of that name; ``i1`` is an instance of the pool, and ``s1`` the Machine that replaces it."""
    kind, known_as = ("MachinePool", POOL) if name.startswith("i") else ("Machine", name)
    return MachineKey(ClusterKey("team-a", cluster), kind, known_as, f"test:///{name}")


def short_name(machine: MachineKey) -> str:
    """The manifest from which :func:`machine` creates it."""
    return machine.provider_id.removeprefix("test:///")


def machine_manifest(name: str) -> JsonObject:
    """As the management API has it."""
    metadata: JsonObject = {"namespace": "team-a", "name": name, "uid": name}
    if name.startswith("s"):
        metadata["ownerReferences"] = [{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": POOL}]
        name = f"i{name[1:]}"
    return {"metadata": metadata, "spec": {"clusterName": "prod", "providerID": f"test:///{name}"}}


def pool_manifest(instances: Iterable[str]) -> JsonObject:
    """The pool with these instances."""
    provider_ids = [f"test:///{name}" for name in instances]
    metadata = {"namespace": "team-a", "name": POOL, "uid": POOL}
    return {"metadata": metadata, "spec": {"clusterName": "prod", "providerIDList": provider_ids}}


def identity(name: str, security: Security = Security.SECURE) -> AttestedIdentity:
    return AttestedIdentity("tpm" if security is Security.SECURE else "insecure", name, security)


def pair(machine_name: str, identity_name: str, security: Security = Security.SECURE) -> Pair:
    return Pair(machine(machine_name), identity(identity_name, security))


class End(enum.Enum):
    """The outcome of an actor."""

    RUNNING = "running"
    HOLDS = "holds"
    REFUSED = "refused"
    DEFERRED = "deferred"
    RELEASED = "released"
    CRASHED = "crashed"


@dataclass(frozen=True)
class ExistingSide:
    """An object that a crash left behind before the scenario begins."""

    side: ReservationSide
    pair: Pair
    contested: bool = False
    basis: Basis = ATTESTED
    keys: ControllerKeys = KEYS
    forged: bool = False
    """By a client that knows the name of our key, and not the key."""

    def spec(self) -> JsonObject:
        """As its author wrote it."""
        spec = reservation_spec(self.side, self.pair, self.basis, self.keys)
        return {**spec, "seal": f"{spec['seal'][:-64]}{'0' * 64}"} if self.forged else spec


@dataclass(frozen=True)
class Scenario:
    """The actors' wanted pairs, and the state of the world."""

    wanted: tuple[Pair, ...]
    """One actor each."""
    before: tuple[ExistingSide, ...] = ()
    machines: frozenset[str] = frozenset({"m1", "m2"})
    """Machines that exist, and instances that are listed, at the beginning."""
    events: tuple[tuple[str, str], ...] = ()
    """What happens in this order, at any time: ``("gone", machine)``, ``("back", machine)``, and
    ``("join", "machine identity")``, which starts one more actor."""
    released: tuple[Pair, ...] = ()
    """Garbage collection releases these; one more actor each."""
    watched: bool = True
    """The actors' watches deliver the events of their writes in time."""


@dataclass
class Actor:
    """One controller that reserves one pair, or releases it."""

    number: int
    wanted: Pair
    releases: bool = False
    end: End = End.RUNNING
    calls: int = 0
    attempts: int = 0
    versions: int = 0
    """How many versions of objects it has made."""
    told: list[str] = field(default_factory=list)
    """The responses of its current attempt."""
    ended_at: int = 0
    was_whole: bool = False
    """The wanted pair was complete at some moment of the call."""
    whole_at: int = 0
    """The last such moment: success may be returned after a secure pair has begun to displace this one."""
    saw_conflict: bool = False
    """A complete pair of another was in the way at some moment of the call."""
    excused: bool = False
    """Its pair may be taken away: its Machine was gone, or a secure actor wants an insecure one's Machine."""

    def copied(self) -> Actor:
        """Another one, of a copied world."""
        made = copy.copy(self)
        made.told = [*self.told]
        return made

    def new_version(self) -> str:
        """A UID or resourceVersion that no other actor's write has."""
        self.versions += 1
        return str(1000 * self.number + self.versions)
