"""One cluster's task without an API server, whose parts tests inspect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast
from unittest.mock import AsyncMock, MagicMock

from attestors.wire.names import Purpose, SignerName
from signer.configuration import AccessSwitchedOff, RotationOff, SSHSwitchedOff
from signer.controller.requests.request_budget import SharedRequestMemory
from signer.controller.requests.workers import SharedWorkerPool
from signer.controller.run import compose_workload_cluster
from signer.decision.decider import DecidedRequest
from signer.kube.errors import Cause, Unreachable
from signer.model.cluster import ClusterKey
from signer.model.decision import Decision, Defer
from signer.model.reasons import Reason
from signer.model.signing_request import Malformed, parse_signing_request

SIGNER: Final = str(SignerName(Purpose.CLIENT, "keyed-mac"))
DEFERRAL: Final = Defer(Reason.MACHINE_NOT_FOUND, "no Machine has it")
HANGS: Final = Unreachable("timeout: the server did not answer in time", cause=Cause.TIMEOUT)


def csr(name: str, uid: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "uid": uid, "resourceVersion": "1"},
        "spec": {"signerName": SIGNER, "request": "cmVx"},
        "status": {},
    }


class Served:
    """A cluster whose decider returns ``decision`` after ``during_decision`` was called."""

    def __init__(self) -> None:
        shared = MagicMock(rotation=RotationOff(), ssh=SSHSwitchedOff(), access=AccessSwitchedOff())
        shared.request_memory = SharedRequestMemory()
        shared.worker_pool = SharedWorkerPool()
        self.metrics = MagicMock()
        self.monotonic: Callable[[], float] = lambda: 1000.0
        options = MagicMock(services=(), metrics=self.metrics, monotonic=lambda: self.monotonic())
        configuration = MagicMock(workers_per_cluster=2)
        key = ClusterKey("team-a", "one")
        self.cluster = cast("Any", compose_workload_cluster(key, configuration, options, shared))  # for its parts
        _canary, self.auto_approval, _names, self.service_networks, _rights, _kubeconfig = self.cluster._services
        self.cluster._services = (self.auto_approval, self.service_networks)  # the canary needs an API server
        self.service_networks.run = AsyncMock()
        self.cluster._clocks.run = AsyncMock()  # it needs the management API server
        self.recorder = shared.recorder
        self.publisher = AsyncMock()
        self.client = AsyncMock()
        self.during_decision: Callable[[], object] = lambda: None
        self.decision: Decision = DEFERRAL
        self.requests = self.cluster._requests
        self.handling = self.cluster._handler
        self.handling._decider = self

    async def decide(self, manifest: dict[str, Any]) -> DecidedRequest:
        self.during_decision()
        parsed = parse_signing_request(manifest, frozenset({"keyed-mac"}))
        assert isinstance(parsed, Malformed)
        return DecidedRequest(parsed, self.decision)

    async def handle(self, name: str) -> None:
        assert await self.requests.queue.get() == name
        await self.handling._handle(self.client, self.publisher, name)
        self.requests.queue.done(name)

    def state(self) -> tuple[int, int, int, dict[str, Any]]:
        queue = self.requests.queue
        reports = {name: report[:2] for name, report in self.handling._reporter._reported.items()}
        return len(self.requests.pending), queue.delayed, queue.failing, reports
