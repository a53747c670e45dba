"""Runs the controller's own judging over one CSR, once, with everything that it would write kept back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from attestors.registry import Registry
from signer.configuration import Configuration
from signer.decision.attestor_timing import AttestorTurns
from signer.decision.authority_source import AuthoritySource, LoadAuthority
from signer.decision.decider import Adjudication, Adjudicator
from signer.decision.lookups import Lookups
from signer.explain.dry_run_client import Sketch
from signer.explain.findings import Findings
from signer.explain.source import Source
from signer.explain.unsigned import Unsigned
from signer.model.cluster import ClusterKey
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Inventory
from signer.store.cluster_api import discover_cluster_api
from signer.store.records import Records
from signer.store.reservations import Reservations


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a judgement rests on beside the request."""

    source: Source
    configuration: Configuration
    registry: Registry
    now: Callable[[], datetime]
    load_authority: LoadAuthority | None = None
    """Where CAs come without their private keys."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the controller would decide now, and how it came to that."""

    adjudication: Adjudication
    findings: Findings
    intended: tuple[str, ...]
    """What it would write into the management cluster."""
    inventory: Inventory
    makes_key: bool
    """There is no controller key: a controller that starts would make one, and no AttestedNode counts."""


async def judge(manifest: Mapping[str, Any], key: ClusterKey, around: Circumstances) -> Judgement:
    """Judge a CSR of that cluster. Nothing is written anywhere.

    Raises:
        ApiError: what decisions rest upon cannot be listed.
    """
    sketch = Sketch(around.source)
    inventory = await filled_inventory(sketch, around.configuration)
    await inventory.controller_key.refresh(sketch)
    makes_key = bool(sketch.intended)
    tokens = BootstrapTokens(sketch, inventory, watch_namespace=around.configuration.watch_namespace)
    await tokens.look_once()
    findings = Findings()
    adjudicator = Adjudicator(
        key,
        configuration=around.configuration,
        registry=around.registry,
        inventory=inventory,
        reservations=Reservations(sketch, inventory),
        records=Records(sketch, inventory),
        tokens=tokens,
        lookups=Lookups(sketch, time.monotonic),
        turns=AttestorTurns(lambda provider, seconds: None, lambda: 0.0),  # untimed: nobody else waits here
        authority_source=AuthoritySource(
            sketch, key, now=around.now, monotonic=time.monotonic, load=around.load_authority
        ),
        now=around.now,
        monotonic=time.monotonic,
        signing=Unsigned(),
        trace=findings,
    )
    adjudication = await adjudicator.adjudicate(manifest)
    return Judgement(adjudication, findings, sketch.intended, inventory, makes_key)


async def filled_inventory(source: Source, configuration: Configuration) -> Inventory:
    """The mirrors that decisions rest upon, filled once; records are nobody's until the controller key was read.

    Raises:
        ApiError: a collection cannot be listed.
    """
    inventory = Inventory(
        await discover_cluster_api(source),
        own_namespace=configuration.namespace,
        watch_namespace=configuration.watch_namespace,
    )
    await inventory.fill(source)
    return inventory
