"""One cluster's task without any API server, whose parts are looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast
from unittest.mock import AsyncMock, MagicMock

from attestors.wire.names import Purpose, SignerName
from signer.controller.cluster.workload_cluster import WorkloadCluster
from signer.controller.requests.request_budget import SharedRequestMemory
from signer.controller.requests.workers import SharedWorkerPool
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
    """A cluster whose adjudicator answers ``decision``, after ``meanwhile`` has happened."""

    def __init__(self) -> None:
        around = MagicMock()
        around.monotonic = lambda: 1000.0
        around.shared_request_memory = SharedRequestMemory()
        around.worker_pool = SharedWorkerPool()
        around.configuration.workers_per_cluster = 2
        self.cluster = cast("Any", WorkloadCluster(ClusterKey("team-a", "one"), around))  # its parts are looked at
        self.recorder = around.recorder
        self.publisher = AsyncMock()
        self.client = AsyncMock()
        self.meanwhile: Callable[[], object] = lambda: None
        self.decision: Decision = DEFERRAL
        self.requests = self.cluster._requests
        self.handling = self.cluster._handling
        self.handling._decider = self

    async def decide(self, manifest: dict[str, Any]) -> DecidedRequest:
        self.meanwhile()
        parsed = parse_signing_request(manifest, frozenset({"keyed-mac"}))
        assert isinstance(parsed, Malformed)
        return DecidedRequest(parsed, self.decision)

    async def handle(self, name: str) -> None:
        assert await self.requests.queue.get() == name
        await self.handling._handle(self.client, self.publisher, name)
        self.requests.queue.done(name)

    def left_behind(self) -> tuple[int, int, int, dict[str, Any]]:
        queue = self.requests.queue
        said = {name: told[:2] for name, told in self.handling._reporter._said.items()}
        return len(self.requests.pending), queue.delayed, queue.failing, said
