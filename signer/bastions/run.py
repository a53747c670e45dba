"""Composes the bastion controller and runs it as one coroutine."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from node_access.bastions.contract import Surroundings
from node_access.bastions.registry import BastionRegistry
from signer.bastions.configuration import BastionConfiguration
from signer.bastions.controller import WORKERS, BastionController
from signer.bastions.host_keys import HostKeySecret
from signer.bastions.kubernetes_calls import KubernetesCalls
from signer.bastions.metrics import BastionMetrics
from signer.bastions.providers import Providers
from signer.bastions.reconciler import BastionReconciler
from signer.bastions.sweep import Sweep
from signer.controller.telemetry.recorder import Occurrence, Recorder, Subject
from signer.kube.client import Client
from signer.kube.supervision import supervised
from signer.model.fields import mapping_of, text_of

_LOG = logging.getLogger(__name__)
COMPONENT: Final = "node-access-bastions"
_FLUSH_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class BastionOptions:
    """Dependencies that are not part of the configuration."""

    registry: BastionRegistry = field(default_factory=BastionRegistry)
    metrics: BastionMetrics = field(default_factory=BastionMetrics)
    now: Callable[[], datetime] = field(default=partial(datetime.now, UTC))


class _Events:
    """Warnings about Bastions, through the recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def record(self, manifest: Mapping[str, Any], reason: str, message: str) -> None:
        metadata = mapping_of(manifest, "metadata")
        subject = Subject(
            text_of(manifest, "apiVersion"),
            text_of(manifest, "kind"),
            *(text_of(metadata, name) for name in ("namespace", "name", "uid")),
        )
        self._recorder.record(Occurrence(subject, "Warning", reason, message))


async def run_bastions(
    client: Client,
    configuration: BastionConfiguration,
    secret: HostKeySecret,
    *,
    stop: asyncio.Event,
    options: BastionOptions | None = None,
    started: Callable[[BastionController], None] = lambda controller: None,
) -> None:
    """Run until ``stop`` is set. ``started`` gets the controller, for its health.

    Raises:
        InvalidSettings: a provider does not accept the operator's settings.
        ProviderUnavailable: a provider is not installed, or cannot run here.
    """
    options = options if options is not None else BastionOptions()
    metrics, now = options.metrics, options.now
    calls = KubernetesCalls(client, asyncio.get_running_loop())
    surroundings = Surroundings(configuration.scope, calls, now)
    providers = Providers(configuration, surroundings, metrics, options.registry)
    providers.check()
    recorder = Recorder(client, now=now, monotonic=time.monotonic, identity=socket.gethostname(), component=COMPONENT)
    events = _Events(recorder)
    reconciler = BastionReconciler(client, configuration, providers, secret, events, metrics, now)
    controller = BastionController(client, reconciler, metrics, providers.busy_seconds)
    sweep = Sweep(client, configuration, providers, metrics, events)
    started(controller)
    tasks = [
        asyncio.create_task(supervised(name, run, metrics.task_failed), name=name)
        for name, run in (
            ("watch", controller.watch),
            ("events", recorder.run),
            ("sweep", sweep.run),
            *((f"worker-{number}", controller.work) for number in range(WORKERS)),
        )
    ]
    _LOG.info(
        "started", extra={"bastionProviders": sorted(configuration.providers), "owner": configuration.scope.owner}
    )
    try:
        await stop.wait()
    finally:
        controller.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        providers.close()
    _LOG.info("stopped")
