"""One cluster with one attested node, for the tests of built-in serving requests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

from attestors.contract import AttestedBefore, AttestorSettings, Denied, StillAllowed
from signer.audit.decision_inputs import DecisionInputs
from signer.configuration import Configuration, OperatorAttestor
from signer.decision.attestor_set import AttestorTimings
from signer.decision.builtin_serving import BuiltinServing
from signer.decision.cached_facts import ServingFactsSource
from signer.decision.snapshot import Snapshots
from signer.kube.errors import AlreadyExists, Conflict, NotFound
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.control_plane_names import DEFAULT_RESERVED_NAMES, nothing_reported
from signer.model.decision import ApproveOnly, Defer, Deferred, Deny, Refused
from signer.model.floors import NO_FLOORS
from signer.model.reasons import Reason
from signer.model.record import AttestedNode
from signer.model.record_object import record_spec
from signer.model.reservation import Basis, Pair, ReservationSide
from signer.model.seal import ControllerKeys, RecordSeals
from signer.model.service_networks import ServicesReport
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from signer.store.live_reads import LiveReads
from signer.store.records import Records
from tests.support.attestors import RegistryWith
from tests.support.clocks import AgreedClocks
from tests.support.journal import builtin_approvals_of
from tests.support.reservations import ATTESTED, reservation_spec
from tests.unit.signer.builders import (
    CLUSTER,
    NODE,
    PROVIDER_ID,
    TPM,
    builtin_serving_manifest,
    builtin_serving_request,
    journal_entry,
    record,
)
from tests.unit.signer.controller.support import Clock

KEYS = ControllerKeys(bytes(32))
MACHINE = "prod-md-0-x7k2p"
DIGEST = journal_entry().certificate_digest
CSR = builtin_serving_manifest()


def manifest_of(of: AttestedNode, version: int) -> dict[str, Any]:
    sealed = {**record_spec(of), "seal": RecordSeals(KEYS).seal(of)}
    metadata = {"namespace": "team-a", "name": of.name, "uid": "record-1", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": sealed}


def reservation(pair: Pair, side: ReservationSide, basis: Basis = ATTESTED) -> dict[str, Any]:
    spec = reservation_spec(side, pair, basis, KEYS)
    name, version = pair.name(side), spec["seal"]  # two of one name are two versions of it
    metadata = {"namespace": "own", "name": name, "uid": side.value, "resourceVersion": version}
    return {"metadata": metadata, "spec": spec}


class API:
    """The one AttestedNode and what is done to it, and Machines."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.machines: dict[str, dict[str, Any]] = {}
        """By their paths."""
        self.calls: list[str] = []
        self.listed: list[Any] = []
        self.before_read: Callable[[], None] = lambda: None
        self.before_write: Callable[[], None] = lambda: None

    async def get(self, path: str) -> dict[str, Any]:
        if "/machines/" in path:
            self.calls.append("get Machine")
            if path not in self.machines:
                raise NotFound(path)
            return self.machines[path]
        self.calls.append("get")
        self.before_read()
        if self.stored is None:
            raise NotFound(path)
        return self.stored

    async def list_pages(self, path: str, *arguments: Any, **options: Any) -> AsyncGenerator[dict[str, Any], None]:
        yield {"items": self.listed}

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        raise AlreadyExists(path)

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.calls.append("replace")
        self.before_write()
        return self._store(path, body)

    def _store(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.stored is None or body["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
            raise Conflict(path)
        version = str(int(self.stored["metadata"]["resourceVersion"]) + 1)
        self.stored = {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        return self.stored


def no_answer(request: Any) -> Any:
    """Nothing is verified here: these requests carry no evidence."""
    raise AssertionError(request)


class RecordedTPM:
    """The attestor of the records: a test says what it answers about recorded identities."""

    description = TPM
    pre_filter = verify_client = verify_serving = staticmethod(no_answer)

    def __init__(self) -> None:
        self.plugin: Any = self
        self.standing: Any = StillAllowed()
        self.denied_identities: dict[str, Denied] = {}
        self.asked: list[AttestedBefore] = []

    def server_plugin(self, settings: AttestorSettings) -> Any:
        return self.plugin

    def agent_plugin(self, settings: Any) -> Any:
        raise AssertionError("no node asks for it")

    def redacted_fields(self, evidence: Any) -> dict[str, str]:
        return {}

    def standing_of(self, attested: AttestedBefore) -> Any:
        self.asked.append(attested)
        if isinstance(self.standing, BaseException):
            raise self.standing
        return self.denied_identities.get(attested.identity, self.standing)


class World:
    """One cluster with one attested node."""

    def __init__(self, **configuration: Any) -> None:
        self.clock = Clock()
        self.attestor = RecordedTPM()
        self.services_report = ServicesReport()
        self.api = API()
        self.caches = Caches(
            ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own", floors=NO_FLOORS
        )
        self.caches.authentic.use_keys(KEYS)
        self.records = Records(self.api, self.caches)
        named = {"tpm": OperatorAttestor()}
        given = Configuration(**{"namespace": "own", "attestors": named, **configuration})
        snapshots = Snapshots(
            CLUSTER, given, RegistryWith(self.attestor), self.caches, self.clock.now, self.clock.monotonic
        )
        self.builtin_serving = BuiltinServing(
            CLUSTER,
            given,
            snapshots,
            self.caches,
            self.records,
            LiveReads(self.api, self.caches),
            ServingFactsSource(
                self.caches, given.serving_networks, self.services_report, nothing_reported(), DEFAULT_RESERVED_NAMES
            ),
            AgreedClocks(),
            AttestorTimings(lambda provider, seconds: None, self.clock.monotonic),
        )
        self.version = 0
        self.cluster()
        self.policy()
        self.machine()
        self.record(record())
        self.reserve(record())

    def cluster(self, **spec: Any) -> None:
        metadata = {"namespace": "team-a", "name": "prod", "uid": "c-1"}
        network = {"clusterNetwork": {"services": {"cidrBlocks": ["10.96.0.0/12"]}}}
        self.caches.clusters.applied({"metadata": metadata, "spec": network | spec})

    def policy(self, **spec: Any) -> None:
        given = {"authorizedAttestors": [{"name": "tpm"}], "mode": "Enforce", **spec}
        self.caches.policies.applied({"metadata": {"namespace": "team-a", "name": "prod"}, "spec": given})

    def machine(
        self,
        name: str = MACHINE,
        addresses: tuple[str, ...] = (NODE, "10.0.0.1"),
        *,
        seen: bool = True,
        **metadata: Any,
    ) -> None:
        """What the management cluster holds; ``seen`` by our cache or not yet."""
        identifier, uid = (PROVIDER_ID, "m-1") if name == MACHINE else (f"test:///{name}", f"uid-{name}")
        manifest = {
            "metadata": {"namespace": "team-a", "name": name, "uid": uid, **metadata},
            "spec": {"clusterName": "prod", "providerID": identifier},
            "status": {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]},
        }
        self.api.machines[MACHINES_V1BETA2.object(name, "team-a")] = manifest
        if seen:
            self.caches.machines.applied(manifest)

    def record(self, value: AttestedNode, *, seen: bool = True) -> None:
        """What the management cluster holds; ``seen`` by our cache or not yet."""
        self.version += 10
        self.api.stored = manifest_of(value, self.version)
        if seen:
            self.caches.records.applied(self.api.stored)

    def reserve(self, value: AttestedNode, *sides: ReservationSide, basis: Basis = ATTESTED) -> None:
        pair = Pair(value.machine, value.identity)
        self.caches.reservations.replaced([reservation(pair, side, basis) for side in sides or ReservationSide])

    async def decide(self, csr: dict[str, Any] | None = None) -> Any:
        return await self.builtin_serving.decide(builtin_serving_request(csr or CSR), DecisionInputs())

    async def deferred(self, csr: dict[str, Any] | None = None) -> Defer:
        with pytest.raises(Deferred) as caught:
            await self.decide(csr)
        return caught.value.defer

    async def refused(self, csr: dict[str, Any] | None = None) -> Deny:
        with pytest.raises(Refused) as caught:
            await self.decide(csr)
        return caught.value.deny

    @property
    def approvals(self) -> list[tuple[str, str]]:
        assert self.api.stored is not None
        return [(one["csrName"], one["csrUID"]) for one in builtin_approvals_of(self.api.stored["spec"])]


def named(credential: Any, **changes: Any) -> dict[str, Any]:
    csr = builtin_serving_manifest(**changes)
    csr["spec"]["extra"] = {"authentication.kubernetes.io/credential-id": [f"X509SHA256={credential}"]}
    return csr


def numbered(number: int) -> dict[str, Any]:
    spec = {**CSR["spec"], "usages": list(CSR["spec"]["usages"])}
    return {**CSR, "metadata": {**CSR["metadata"], "name": f"csr-{number}", "uid": f"uid-{number}"}, "spec": spec}


APPROVED = ApproveOnly(
    NODE,
    Reason.ATTESTED,
    f"Attested by tpm at 2026-03-01T12:00:00Z: Machine team-a/{MACHINE} is node {NODE}",
)
