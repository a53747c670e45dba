"""A cluster whose policy may be gone, and a Restoration over caches that tests fill."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from signer.controller.auto_approval import restoration as restoration_module
from signer.controller.auto_approval.restoration import Restoration
from signer.controller.workload_access import workload_connection
from signer.kube.backoff import Backoff
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.resource_limits import ResourceLimits
from signer.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTERS_V1BETA2,
    CONFIG_MAPS,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
)
from signer.model.auto_approval import ClusterIdentity, parse_cluster_role_binding
from signer.model.bootstrap_token import EXTENDED_UNTIL_ANNOTATION
from signer.model.cluster import ClusterKey
from signer.model.fields import format_time
from signer.model.floors import NO_FLOORS
from signer.store.caches import Caches
from signer.store.cluster_api import discover_cluster_api
from signer.testing.api import EmbeddedAPI
from signer.testing.fixtures import MakeWorkloadCluster, embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, WorldCluster
from tests.unit.signer.queues import idle
from tests.unit.signer.store.removed_bindings_fixtures import removed_bindings

FIRST, RENEWAL = "kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation"
KEY: Final = ClusterKey("default", "workload")
POLICY: Final = NODE_ATTESTATION_POLICIES.object(KEY.name, KEY.namespace)
CLUSTER: Final = CLUSTERS_V1BETA2.object(KEY.name, KEY.namespace)
BINDINGS: Final = CLUSTER_ROLE_BINDINGS.collection()
TOKENS: Final = SECRETS.collection("kube-system")
TOKEN: Final = "bootstrap-token-abcdef"
FAILED: Final = "cannot restore what Enforce removed"
RESYNC_FAILED: Final = "cannot list saved bindings"


class LogMessages(logging.Handler):
    """Log messages, with an event for each."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []
        self._events: dict[str, asyncio.Event] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self._event(record.getMessage()).set()

    async def wait_for(self, message: str) -> None:
        await asyncio.wait_for(self._event(message).wait(), 20)

    def _event(self, message: str) -> asyncio.Event:
        return self._events.setdefault(message, asyncio.Event())


class RestorationHarness:
    """A cluster, its management cluster, and a Restoration over caches that tests fill."""

    def __init__(self, cluster: WorldCluster, management: Client, caches: Caches, log: LogMessages) -> None:
        self.cluster = cluster
        self.caches = caches
        self.management = management
        self.log = log
        self.removed = removed_bindings(management, CONTROLLER_NAMESPACE)
        self.connections: list[ClusterKey] = []
        self.resource_limits = ResourceLimits()

        async def connect(management: Any, key: ClusterKey) -> ClusterConnection:
            self.connections.append(key)
            return await workload_connection(management, key)

        self.restoration = Restoration(
            caches,
            management,
            self.removed,
            resource_limits=self.resource_limits,
            now=lambda: datetime.now(UTC),
            monotonic=time.monotonic,
            connect=connect,
        )

    @property
    def api(self) -> EmbeddedAPI:
        return embedded_api(self.cluster)

    def bindings(self) -> dict[str, Any]:
        return {
            item["metadata"]["name"]: (item["roleRef"], item.get("subjects"), item["metadata"].get("labels"))
            for item in self.api.objects("clusterrolebindings")
        }

    async def remove(self, ca_cert_hash: str = "", uid: str = "") -> None:
        """What Enforce does, or did when the cluster had another CA or UID."""
        manifest = await self.management.get(CLUSTER)
        owner = ClusterIdentity(KEY, uid or manifest["metadata"]["uid"], ca_cert_hash or self.cluster.ca_cert_hash)
        found = [self.api.get("clusterrolebindings", name) for name in (FIRST, RENEWAL)]
        await self.removed.save(owner, [parse_cluster_role_binding(one) for one in found])
        for name in (FIRST, RENEWAL):
            self.api.delete("clusterrolebindings", name)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the Restoration until the context ends."""
        task = asyncio.create_task(self.restoration.run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def is_restored(self) -> None:
        for name in (FIRST, RENEWAL):
            await asyncio.to_thread(self.cluster.client().wait_for, BINDINGS, name, lambda item: True)
        await idle(self.restoration._queue)
        assert self.config_maps() == []

    def extended_token(self, description: str = "") -> None:
        """Create a MachinePool's bootstrap token as extended under Enforce."""
        until = datetime.now(UTC) + timedelta(hours=20)
        data = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true"}
        self.api.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {
                    "name": TOKEN,
                    "namespace": "kube-system",
                    "annotations": {EXTENDED_UNTIL_ANNOTATION: format_time(until)},
                },
                "type": "bootstrap.kubernetes.io/token",
                "stringData": {**data, "expiration": format_time(until), "description": description},
            }
        )
        self.api.requests.clear()

    def is_not_restored(self) -> None:
        assert not {FIRST, RENEWAL} & self.bindings().keys()
        assert len(self.config_maps()) == 1
        assert self.connections == []

    def config_maps(self) -> list[Any]:
        return self.cluster.management.client.items(CONFIG_MAPS.collection(CONTROLLER_NAMESPACE))

    def authorize(self, **spec: Any) -> dict[str, Any]:
        """Create a policy in the API and the caches."""
        return self.seen(self.cluster.authorize("insecure", mode="Enforce", **spec))

    def seen(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.caches.policies.applied(manifest)
        return manifest

    def delete_policy(self) -> None:
        """Delete the policy from the API and the caches."""
        manifest = self.cluster.management.client.get(POLICY)
        self.cluster.management.client.delete(POLICY)
        self.caches.policies.removed(manifest)


@pytest.fixture
async def harness(
    management_cluster: ManagementCluster,
    make_workload_cluster: MakeWorkloadCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> AsyncIterator[RestorationHarness]:
    monkeypatch.setattr(restoration_module, "RETRY", Backoff(base_seconds=0.01, maximum_seconds=0.01, jitter=0))
    log, logger = LogMessages(), logging.getLogger("signer.controller.auto_approval.restoration")
    cluster = make_workload_cluster()
    logger.addHandler(log)
    caplog.set_level(logging.INFO, logger.name)
    async with Client(management_cluster.api.connection()) as management:
        caches = Caches(await discover_cluster_api(management), own_namespace=CONTROLLER_NAMESPACE, floors=NO_FLOORS)
        yield RestorationHarness(cluster, management, caches, log)
    logger.removeHandler(log)
    # A closed TLS connection lingers until its peer closes it, which no task awaits here.
    for transport in list(getattr(asyncio.get_running_loop(), "_transports", {}).values()):
        transport.abort()
    for _ in range(3):
        await asyncio.sleep(0)
