"""What the canary has found is about one Cluster, one CA and one API server, and is used for no other."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from signer.audit.canary_line import CanaryLine, read_canary_line
from signer.audit.lines import CanaryContent, Content
from signer.audit.log import AuditLogUnavailable
from signer.authority import IssuingSet, load_certificate_authority
from signer.controller.canary import service as module
from signer.controller.canary.service import CanaryService
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.decision.authority_trust import TrustProof
from signer.kube.backoff import Backoff
from signer.kube.canary import Finding, NotProven, NotTrusted, Trusted
from signer.kube.connection import ClusterConnection
from signer.kube.errors import Forbidden
from signer.kube.resource_limits import ResourceLimits
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.unit.signer.builders import CLUSTER

ONE, OTHER = (
    IssuingSet.of(load_certificate_authority(made.secret_data, now=datetime.now(UTC)))
    for made in (new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256) for _ in range(2))
)


@dataclass
class Source:
    """An AuthoritySource."""

    answer: IssuingSet | AuthorityUnavailable = ONE
    fresh_reads: int = 0
    changed: Callable[[], None] = field(default=lambda: None)

    def on_change(self, changed: Callable[[], None]) -> None:
        self.changed = changed

    async def authority(self, *, not_before: float = float("-inf")) -> IssuingSet:
        self.fresh_reads += not_before > float("-inf")
        if isinstance(self.answer, AuthorityUnavailable):
            raise self.answer
        return self.answer

    def put(self, answer: IssuingSet) -> None:
        self.answer = answer
        self.changed()


class World:
    """A service over API servers that give the findings of this object."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.source = Source()
        self.caches = Caches(
            ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own", floors=NO_FLOORS
        )
        self.put_cluster("c-1")
        self.findings: dict[str, Finding] = {}
        self.tried: list[tuple[str, str]] = []
        self.logged: list[CanaryLine] = []
        self.log_is_full = False
        self.changes = self.wakes = 0
        self.answers = asyncio.Event()
        self.answers.set()
        self.told = asyncio.Event()
        self.service = CanaryService(
            CLUSTER,
            source=cast("Any", self.source),
            caches=self.caches,
            resource_limits=ResourceLimits.unlimited(),
            audit_log=self,
            now=lambda: datetime.now(UTC),
            monotonic=lambda: asyncio.get_running_loop().time(),
            random=Random(1),
        )
        self.service.on_change(self._changed, self._trusted)
        monkeypatch.setattr(module, "try_canary", self._try)
        monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.2)

    async def append(self, content: Content) -> None:
        """Implements AuditLog."""
        if self.log_is_full:
            raise AuditLogUnavailable("no space left")
        assert isinstance(content, CanaryContent)
        self.logged.append(read_canary_line(json.loads(content.encoded)))

    def put_cluster(self, uid: str) -> None:
        metadata = {"namespace": CLUSTER.namespace, "name": CLUSTER.name, "uid": uid}
        self.caches.clusters.applied({"metadata": metadata})

    def _changed(self) -> None:
        self.changes += 1
        self.told.set()

    def _trusted(self) -> None:
        self.wakes += 1

    async def _try(
        self, canary: object, server: ClusterConnection, authority: IssuingSet, limits: ResourceLimits
    ) -> Finding:
        await self.answers.wait()
        public_key_hash = authority.client.certificate.public_key_hash
        self.tried.append((server.server, public_key_hash))
        return self.findings.get(public_key_hash, Trusted(serving_chains=True))

    @contextlib.asynccontextmanager
    async def connected(self, server: str = "https://one") -> AsyncIterator[None]:
        async def refuse(path: str) -> None:
            raise Forbidden("no", status=403)

        client = SimpleNamespace(server=ClusterConnection(server, b""), get=refuse)
        running = asyncio.create_task(self.service.run(cast("Any", client)))
        try:
            yield
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def deferred(self, authority: IssuingSet = ONE) -> tuple[str, str]:
        with pytest.raises(Deferred) as raised:
            await self.service.require_trusted(authority)
        return raised.value.defer.reason, raised.value.defer.message

    async def until_trusted(self) -> None:
        async with asyncio.timeout(10):
            while self.condition[0] is not True:
                self.told.clear()
                await self.told.wait()

    def has_proof(self) -> bool:
        return self.service.proof == TrustProof(ONE, "c-1")

    @property
    def condition(self) -> tuple[bool | None, str]:
        (condition,) = self.service.conditions
        return condition.met, condition.reason


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def refusing(world: World, *refused: IssuingSet) -> None:
    for one in refused:
        world.findings[one.client.certificate.public_key_hash] = NotTrusted("401")


async def test_before_a_connection_nothing_is_trusted(world: World) -> None:
    assert (await world.deferred())[0] == "CertificateAuthorityNotProven"
    assert world.condition == (None, "NotTried")


async def test_one_attempt_for_many_requests(world: World) -> None:
    async with world.connected():
        await asyncio.gather(*(world.service.require_trusted(ONE) for _ in range(20)))
    assert len(world.tried) == 1
    assert (world.changes, world.wakes, world.condition) == (1, 1, (True, "Trusted"))


async def test_a_canary_is_in_the_audit_log_before_it_is_used(world: World) -> None:
    world.answers.clear()
    async with world.connected():
        await world.deferred()
        assert world.tried == []
        (line,) = world.logged
        assert (line.cluster, line.server) == (str(CLUSTER), "https://one")
        assert line.ca_cert_hash == ONE.client.certificate.public_key_hash


async def test_a_canary_that_is_not_in_the_audit_log_is_not_used(world: World) -> None:
    world.log_is_full = True
    async with world.connected():
        reason, message = await world.deferred()
        assert (reason, world.tried) == ("CertificateAuthorityNotProven", [])
        assert "the canary is not in the audit log: no space left" in message


async def test_another_certificate_is_not_trusted_because_one_is(world: World) -> None:
    refusing(world, OTHER)
    async with world.connected():
        await world.service.require_trusted(ONE)
        world.source.put(OTHER)
        assert (await world.deferred(OTHER))[0] == "CertificateAuthorityNotTrusted"
        assert world.condition == (False, "CertificateAuthorityNotTrusted")


async def test_the_finding_is_of_the_cluster_object(world: World) -> None:
    async with world.connected():
        await world.service.require_trusted(ONE)
        world.put_cluster("c-2")
        await world.service.require_trusted(ONE)
    assert len(world.tried) == 2


async def test_the_finding_is_of_the_api_server(world: World) -> None:
    async with world.connected():
        await world.service.require_trusted(ONE)
    async with world.connected():
        await world.service.require_trusted(ONE)
    assert len(world.tried) == 1, "a new connection to the same address"
    async with world.connected("https://two"):
        await world.service.require_trusted(ONE)
    assert [server for server, _ in world.tried] == ["https://one", "https://two"]


async def test_the_proof_is_of_the_connection(world: World) -> None:
    """What decisions compare with, without a lookup."""
    assert not world.has_proof()
    async with world.connected():
        await world.service.require_trusted(ONE)
        assert world.has_proof()
        refusing(world, OTHER)
        world.source.put(OTHER)
        await world.deferred(OTHER)
        assert not world.has_proof()
        world.source.put(ONE)
        await world.service.require_trusted(ONE)
    assert not world.has_proof()
    async with world.connected():
        await world.service.require_trusted(ONE)
        for _ in range(5):
            await asyncio.sleep(0)
        assert world.has_proof()


async def test_a_refusal_is_tried_again_with_a_fresh_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REFUSED_SECONDS", 0.01)
    refusing(world, ONE)
    async with world.connected():
        reason, message = await world.deferred()
        assert reason == "CertificateAuthorityNotTrusted"
        assert "which CAs it accepts is unknown: 403" in message
        world.findings.clear()
        await world.until_trusted()
        await world.service.require_trusted(ONE)
    assert world.source.fresh_reads >= 1


async def test_what_proved_nothing_is_tried_again(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", Backoff(base_seconds=0.01, maximum_seconds=0.01, jitter=0))
    world.findings[ONE.client.certificate.public_key_hash] = NotProven("timeout")
    async with world.connected():
        assert (await world.deferred())[0] == "CertificateAuthorityNotProven"
        assert world.condition == (None, "CertificateAuthorityNotProven")
        world.findings.clear()
        await world.until_trusted()


async def test_what_an_api_server_says_wakes_no_request(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", Backoff(base_seconds=0.01, maximum_seconds=0.01, jitter=0))
    for said in ("one", "another"):
        world.told.clear()
        world.findings[ONE.client.certificate.public_key_hash] = NotProven(said)
        async with world.connected(), asyncio.timeout(10):
            await world.told.wait()
    assert (world.changes, world.wakes) == (2, 0)


async def test_a_request_waits_for_the_first_attempt_for_a_while_only(world: World) -> None:
    world.answers.clear()
    async with world.connected():
        assert (await world.deferred())[0] == "CertificateAuthorityNotProven"
        asyncio.get_running_loop().call_later(0.05, world.answers.set)
        await world.service.require_trusted(ONE)


async def test_without_a_ca_nothing_is_tried(world: World) -> None:
    world.source.answer = AuthorityUnavailable("CertificateAuthorityMissing", "it does not exist")
    async with world.connected():
        await world.deferred()
        assert world.tried == []
        world.source.put(ONE)
        await world.service.require_trusted(ONE)


async def test_changes_cause_no_flood_of_attempts(world: World) -> None:
    """A tenant may change its policy as often as it likes."""
    refusing(world, ONE)
    async with world.connected():
        await world.deferred()
        for _ in range(50):
            world.service.wake()
            await asyncio.sleep(0.002)
    assert len(world.tried) <= module.TRIES_AT_ONCE
