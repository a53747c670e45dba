"""Honest nodes, which join, renew and serve, and impostors."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from keyed_mac.keys import derive_machine_key

from attestors.wire.names import (
    CHALLENGE_ANNOTATION,
    ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION,
    NODE_STARTS_AGAIN,
    Purpose,
)
from signer.kube.client import Client, JsonObject
from signer.kube.resources import MACHINES_V1BETA2
from signer.model.reasons import Reason
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict
from tests.integration.fixtures import MASTER_KEY, provider_id
from tests.integration.tpm.fake_tpm_node import FakeTPMNode
from tests.soak.ledger import Ledger
from tests.soak.requests import create, decision, patiently, post
from tests.soak.world import SoakedCluster
from tests.unit.attestors.tpm.fake_tpm import FakeTPM

MOST_CERTIFICATES: Final = 12
"""Per node. A journal keeps the last sixteen entries, from which the invariant is checked."""
_ASK_AGAIN_SECONDS: Final = 5.0
"""Pause after a certificate that is not valid yet."""
_START_AGAIN: Final = frozenset({*NODE_STARTS_AGAIN, "ChallengeFromTheFuture", str(Reason.CLUSTER_DELETING)})
"""Denials after which a node starts over: a clock was stepped between a challenge and its answer, or the Cluster was
being deleted, and is added again."""
_TOLERATED: Final = timedelta(seconds=2)
_CHANCE_OF_TPM: Final = 0.25
_CHANCE_OF_LATE_MACHINE: Final = 0.15
_CHANCE_OF_COPY: Final = 0.1
_CHANCE_OF_IMPATIENCE: Final = 0.1
_NUMBERS: Final = itertools.count(200_000)


@dataclass
class Traffic:
    """State that all nodes of one cluster share."""

    cluster: SoakedCluster
    ledger: Ledger
    management: Client
    """An administrator's client, which bypasses the proxy and creates Machines."""
    bootstrap: Client
    stop: asyncio.Event
    present: list[str] = field(default_factory=list)
    """Machines of nodes that use the keyed-mac attestor."""

    def mac_node(self, machine: str, node_name: str = "") -> SimulatedNode:
        """A node on that Machine, with a new key; it requests ``node_name``, by default the Machine's name."""
        identifier = provider_id(machine)
        key = base64.b64encode(derive_machine_key(MASTER_KEY, identifier)).decode("ascii")
        settings = {"provider-id": identifier, "machine-key": key}
        known = self.cluster.ca_cert_hash
        return SimulatedNode(node_name or machine, identifier, known, "keyed-mac", settings)

    async def add_machine(self, name: str, annotations: Mapping[str, str]) -> None:
        """Create a Machine as Cluster API does."""
        namespace = self.cluster.world.namespace
        body: JsonObject = {
            "apiVersion": MACHINES_V1BETA2.api_version,
            "kind": "Machine",
            "metadata": {"name": name, "namespace": namespace, "annotations": dict(annotations)},
            "spec": {
                "clusterName": self.cluster.name,
                "providerID": provider_id(name),
                "bootstrap": {"dataSecretName": f"{name}-bootstrap"},
                "infrastructureRef": {"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Test", "name": name},
            },
        }
        await create(self.management, MACHINES_V1BETA2.collection(namespace), body)
        status = {
            "addresses": [{"type": "Hostname", "address": name}],
            "initialization": {"bootstrapDataSecretCreated": True},
        }
        path = MACHINES_V1BETA2.object(name, namespace, subresource="status")
        await patiently(lambda: self.management.patch(path, {"status": status}))

    async def decided(self, client: Client, manifest: JsonObject) -> Verdict:
        """Post a request and wait for its verdict."""
        await post(client, manifest)
        return await self.decision(client, manifest["metadata"]["name"])

    async def decision(self, client: Client, name: str) -> Verdict:
        """Wait for the verdict on a posted request."""
        with self.ledger.waits(f"{self.cluster.name} {name}"):
            return await decision(client, name)

    async def pause(self, seconds: float) -> None:
        """Wait, or return early once the traffic stops."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stop.wait()


@dataclass
class HonestNode:
    """One machine from join to end."""

    traffic: Traffic
    name: str
    chance: Random
    may_have_chip: bool = True
    chip: FakeTPM | None = None
    _asked: int = 0
    _certificates: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def live(self) -> None:
        """Join, then renew and serve for a while. On return, every posted request is decided."""
        if self.may_have_chip and self.chance.random() < _CHANCE_OF_TPM:
            self.chip = FakeTPM.new(next(_NUMBERS)).certified()
        annotations = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: self.chip.fingerprint} if self.chip else {}
        late = self.chance.uniform(0.1, 2.0) if self.chance.random() < _CHANCE_OF_LATE_MACHINE else 0.0
        async with asyncio.TaskGroup() as tasks:
            machine = tasks.create_task(self._machine(late, annotations))
            if not late:
                await machine
            if self.chance.random() < _CHANCE_OF_IMPATIENCE:
                await self._abandon_request(tasks)
            certificate = await self._certified(tasks, self.traffic.bootstrap, Purpose.CLIENT)
        self.traffic.ledger.join(self.traffic.cluster.name)
        for _ in range(self.chance.randint(0, 5)):
            await self.traffic.pause(self.chance.uniform(0.2, 6.0))
            if self.traffic.stop.is_set() or self._certificates >= MOST_CERTIFICATES:
                return
            purpose = self.chance.choice((Purpose.CLIENT, Purpose.CLIENT, Purpose.SERVING))
            async with self._as_node(certificate) as client, asyncio.TaskGroup() as tasks:
                issued = await self._certified(tasks, client, purpose)
            if purpose is Purpose.CLIENT:
                self.traffic.ledger.renewals += 1
                certificate = issued
            else:
                self.traffic.ledger.serving += 1

    async def _machine(self, after_seconds: float, annotations: Mapping[str, str]) -> None:
        await asyncio.sleep(after_seconds)
        await self.traffic.add_machine(self.name, annotations)
        if self.chip is None:
            self.traffic.present.append(self.name)

    async def _abandon_request(self, tasks: asyncio.TaskGroup) -> None:
        """Post a request as if the node then crashed and lost its key; the next request may be decided first."""
        first = self.chip.first() if self.chip else None
        manifest = self._manifest(self._node(), first, Purpose.CLIENT)
        await post(self.traffic.bootstrap, manifest)
        tasks.create_task(self._abandoned(manifest["metadata"]["name"]))

    async def _abandoned(self, name: str) -> None:
        verdict = await self.traffic.decision(self.traffic.bootstrap, name)
        self._certificates += bool(verdict.certificate)
        if verdict.certificate or verdict.reason in {Reason.CHALLENGE_ISSUED, Reason.SUPERSEDED, *_START_AGAIN}:
            return
        self._refused(verdict)

    @contextlib.asynccontextmanager
    async def _as_node(self, credential: _Credential) -> AsyncIterator[Client]:
        world = self.traffic.cluster.world
        async with Client(credential.node.node.connection(world.api.connection(), credential.certificate)) as client:
            yield client

    async def _certified(self, tasks: asyncio.TaskGroup, client: Client, purpose: Purpose) -> _Credential:
        """Request certificates until one is valid now, as ``kubelet-authenticator`` does."""
        began = time.monotonic()
        while True:
            node = self._node()
            verdict = await self._exchanged(tasks, client, node, purpose)
            if verdict.certificate:
                self._certificates += 1
                certificate = x509.load_pem_x509_certificate(verdict.certificate)
                if certificate.not_valid_before_utc <= datetime.now(UTC) + _TOLERATED:
                    self.traffic.ledger.took(f"{self.name} {purpose.value}", time.monotonic() - began)
                    return _Credential(node, verdict.certificate)
                self.traffic.ledger.not_yet_valid += 1
                began = time.monotonic()  # the wrong clock caused the delay, so it does not count
            elif verdict.reason in _START_AGAIN:
                self.traffic.ledger.started_again += 1
            else:
                self._refused(verdict)
            await asyncio.sleep(_ASK_AGAIN_SECONDS)

    async def _exchanged(
        self, tasks: asyncio.TaskGroup, client: Client, node: FakeTPMNode, purpose: Purpose
    ) -> Verdict:
        manifest = self._manifest(node, self.chip.first() if self.chip else None, purpose)
        if client is self.traffic.bootstrap and self.chance.random() < _CHANCE_OF_COPY:
            tasks.create_task(self._copied(manifest))
        verdict = await self.traffic.decided(client, manifest)
        if self.chip is None or verdict.reason != Reason.CHALLENGE_ISSUED:
            return verdict
        self.traffic.ledger.challenged += 1
        fields = self.chip.answer(verdict.annotations[CHALLENGE_ANNOTATION], node.binding(purpose))
        return await self.traffic.decided(client, self._manifest(node, fields, purpose))

    async def _copied(self, manifest: JsonObject) -> None:
        """Post a copy of the request, as an attacker may. It is useless without the key and must not delay the node."""
        copy = {**manifest, "metadata": {"name": f"copy-{manifest['metadata']['name']}"}}
        verdict = await self.traffic.decided(self.traffic.bootstrap, copy)
        self.traffic.ledger.copies += 1
        if not verdict.certificate and verdict.reason not in {
            Reason.CHALLENGE_ISSUED,
            Reason.SUPERSEDED,
            *_START_AGAIN,
        }:
            self.traffic.ledger.found(f"{copy['metadata']['name']}: {verdict.reason}: {verdict.message}")

    def _refused(self, verdict: Verdict) -> None:
        self.traffic.ledger.found(
            f"{self.traffic.cluster.name} {self.name}: {verdict.condition} {verdict.reason}: {verdict.message}"
        )

    def _node(self) -> FakeTPMNode:
        """A node with a new key."""
        chip = self.chip or FakeTPM.new()
        return FakeTPMNode(self.traffic.cluster.world, self.name, chip, known_cluster=self.traffic.cluster.ca_cert_hash)

    def _manifest(self, node: FakeTPMNode, fields: Mapping[str, str] | None, purpose: Purpose) -> dict[str, Any]:
        self._asked += 1
        name = f"{purpose.value}-{self.name}-{self._asked}"
        if fields is not None:
            return node.manifest(name, fields, purpose)
        by_mac = self.traffic.mac_node(self.name).but(key=node.key)
        if purpose is Purpose.CLIENT:
            return by_mac.client_request(name)
        return by_mac.serving_request(name, dns_names=[self.name])


@dataclass(frozen=True, slots=True)
class _Credential:
    """A certificate, and the node with its key."""

    node: FakeTPMNode
    certificate: bytes


async def impostor(traffic: Traffic, number: int, chance: Random) -> None:
    """Impersonate an honest node: by name, with copied evidence, or with another machine's key."""
    victim, other = chance.sample(traffic.present, 2)
    name = f"impostor-{number}"
    match number % 3:
        case 0:
            manifest = traffic.mac_node(other, victim).client_request(name)
        case 1:
            copied = traffic.mac_node(victim).evidence()
            node = traffic.mac_node(victim).but(key=ec.generate_private_key(ec.SECP256R1()))
            manifest = node.client_request(name, evidence_of=copied)
        case _:
            pretender = traffic.mac_node(victim).but(settings={**traffic.mac_node(other).settings})
            manifest = pretender.client_request(name)
    verdict = await traffic.decided(traffic.bootstrap, manifest)
    if verdict.condition == "Denied" and not verdict.certificate:
        traffic.ledger.impostors_denied += 1
    else:
        traffic.ledger.found(f"{traffic.cluster.name} {name}: {verdict.condition} {verdict.reason}: {verdict.message}")
