"""Runs the controller's own judging over one CSR, once, with everything that it would write kept back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from attestors.registry import Registry
from signer.configuration import Configuration
from signer.controller.workload_access import NOT_READABLE
from signer.decision.attestor_set import AttestorTimings
from signer.decision.authority_secrets import LoadAuthority
from signer.decision.authority_source import AuthoritySource, ChosenSecrets
from signer.decision.clocks import NotCompared
from signer.decision.decider import DecidedRequest, Decider
from signer.decision.host_certificates import (
    SWITCHED_OFF,
    HostAuthorityAnswer,
    HostCertificateParts,
    HostCertificateSwitch,
    NoSigningHostAuthority,
)
from signer.decision.lookups import Lookups
from signer.explain.dry_run_client import DryRunClient
from signer.explain.findings import Findings
from signer.explain.readable import empty_caches, key_is_refused
from signer.explain.shown_authority import shown_host_authority
from signer.explain.shown_trust import ShownTrust
from signer.explain.unsigned import Unsigned
from signer.kube.calls import GetList
from signer.kube.errors import ApiError
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.model.cluster import ClusterKey
from signer.model.command_failures import CommandFailed
from signer.model.control_plane_names import nothing_reported
from signer.model.decision import printable
from signer.model.fields import mapping_of
from signer.model.policy import Policy
from signer.model.seal import key_identifier_of
from signer.model.service_networks import NOT_REPORTED, ReportedServices, ServicesReport
from signer.model.signing_request import approval_seal_of
from signer.model.ssh_access import SSHSettings
from signer.store.bootstrap_tokens import BootstrapTokens
from signer.store.caches import Caches
from signer.store.controller_key import SECRET_NAME
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
    reported_services: ReportedServices = NOT_REPORTED
    """The workload cluster's report, which is not in the management cluster."""


class NotReadableHere(CommandFailed):
    """This user may not read what a decision rests upon; the message says what, and what to do."""


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
        NotReadableHere: this user may not read what decisions rest upon.
        ApiError: what decisions rest upon cannot be listed.
    """
    dry_run_client = DryRunClient(around.source)
    caches = await empty_caches(dry_run_client, around.configuration)
    unread = list(await caches.fill_readable(dry_run_client))
    # The request was read before: what is read now is at least as new as the key of its seal.
    caches.authentic.see_unknown_key(key_identifier_of(approval_seal_of(mapping_of(manifest, "metadata"))))
    await caches.controller_key.refresh(dry_run_client)
    if await key_is_refused(around.source, caches, around.configuration.namespace):
        unread.append(f"Secret {around.configuration.namespace}/{SECRET_NAME}")
    if unread:
        raise NotReadableHere(
            f"{NOT_READABLE}: {'; '.join(unread)}. The controller decides by that, so its decision is not known here: "
            "explain the request as a user that may read it, in the controller's Pod, or offline from a recording"
        )
    makes_key = bool(dry_run_client.intended)
    tokens = BootstrapTokens(dry_run_client, caches, watch_namespace=around.configuration.watch_namespace)
    await tokens.list_once()
    findings = Findings()
    host_certificates = await _host_certificates(dry_run_client, key, caches, around.configuration)
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
        services_report=ServicesReport(around.reported_services),
        control_plane=nothing_reported(),
        clocks=NotCompared(),
        now=around.now,
        monotonic=time.monotonic,
        host_certificates=host_certificates,
        signing=Unsigned(),
        trace=findings,
    )
    decided_request = await decider.decide(manifest)
    return DryRunResult(decided_request, findings, dry_run_client.intended, caches, makes_key)


async def _host_certificates(
    client: DryRunClient, key: ClusterKey, caches: Caches, configuration: Configuration
) -> HostCertificateSwitch:
    """What the controller would do about host keys, by what it says of its authorities; it signs nothing."""
    policy = caches.policies.get(key.namespace, key.name)
    if not isinstance(policy, Policy) or not isinstance(policy.ssh, SSHSettings):
        return SWITCHED_OFF
    answer: HostAuthorityAnswer
    try:
        found = await client.get(NODE_ATTESTATION_POLICIES.object(key.name, key.namespace))
        answer = shown_host_authority(found, policy.ssh)
    except ApiError as error:
        answer = NoSigningHostAuthority(printable(f"the policy's status cannot be read: {error}"))
    return HostCertificateParts(lambda key: answer, host_keys_oids=configuration.host_keys_oids)
