"""Runs the controller's own judging over one CSR, once, with everything that it would write kept back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from attestors.registry import Registry
from signer.configuration import Configuration
from signer.decision.attestor_set import AttestorTimings
from signer.decision.authority_secrets import LoadAuthority
from signer.decision.authority_source import AuthoritySource, ChosenSecrets
from signer.decision.decider import DecidedRequest, Decider
from signer.decision.lookups import Lookups
from signer.explain.dry_run_client import DryRunClient
from signer.explain.findings import Findings
from signer.explain.shown_trust import ShownTrust
from signer.explain.unsigned import Unsigned
from signer.kube.calls import GetList
from signer.model.cluster import ClusterKey
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches
from signer.store.cluster_api import discover_cluster_api
from signer.store.records import Records
from signer.store.reservations import Reservations


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a judgement rests on beside the request."""

    source: GetList
    configuration: Configuration
    registry: Registry
    now: Callable[[], datetime]
    load_authority: LoadAuthority | None = None
    """Where CAs come without their private keys."""


@dataclass(frozen=True, slots=True)
class DryRunResult:
    """What the controller would decide now, and how it came to that."""

    decided_request: DecidedRequest
    findings: Findings
    intended: tuple[str, ...]
    """What it would write into the management cluster."""
    caches: Caches
    makes_key: bool
    """There is no controller key: a controller that starts would make one, and no AttestedNode counts."""


async def judge(manifest: Mapping[str, Any], key: ClusterKey, around: Circumstances) -> DryRunResult:
    """Judge a CSR of that cluster. Nothing is written anywhere.

    Raises:
        ApiError: what decisions rest upon cannot be listed.
    """
    dry_run_client = DryRunClient(around.source)
    caches = await filled_caches(dry_run_client, around.configuration)
    await caches.controller_key.refresh(dry_run_client)
    makes_key = bool(dry_run_client.intended)
    tokens = BootstrapTokens(dry_run_client, caches, watch_namespace=around.configuration.watch_namespace)
    await tokens.list_once()
    findings = Findings()
    decider = Decider(
        key,
        configuration=around.configuration,
        registry=around.registry,
        caches=caches,
        reservations=Reservations(dry_run_client, caches),
        records=Records(dry_run_client, caches),
        tokens=tokens,
        lookups=Lookups(dry_run_client, time.monotonic),
        timings=AttestorTimings(lambda provider, seconds: None, lambda: 0.0),  # untimed: no other request waits here
        authority_source=AuthoritySource(
            dry_run_client,
            key,
            choose=ChosenSecrets(key, caches, around.configuration.authorities),
            now=around.now,
            monotonic=time.monotonic,
            load=around.load_authority,
        ),
        trust=ShownTrust(dry_run_client, key),
        now=around.now,
        monotonic=time.monotonic,
        signing=Unsigned(),
        trace=findings,
    )
    decided_request = await decider.decide(manifest)
    return DryRunResult(decided_request, findings, dry_run_client.intended, caches, makes_key)


async def filled_caches(source: GetList, configuration: Configuration) -> Caches:
    """The caches that decisions need, filled once; no record is authentic until the controller key was read.

    Raises:
        ApiError: a collection cannot be listed.
    """
    caches = Caches(
        await discover_cluster_api(source),
        own_namespace=configuration.namespace,
        watch_namespace=configuration.watch_namespace,
    )
    await caches.fill(source)
    return caches
