"""``node-attestation-controller status``: the state of the fleet, or of one Cluster and its Machines."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from attestors.registry import Registry
from signer.cli.arguments import WrongUse, cluster_key
from signer.cli.configuration import require_installed
from signer.cli.leader_election import lease_name
from signer.cli.management import management_access
from signer.cli.output import print_result
from signer.cli.parsers.status import HTML
from signer.cli.plain_output import print_text
from signer.cli.status_html import as_html
from signer.cli.status_output import as_json, needs_attention, show, show_cluster
from signer.configuration import Configuration, NoLeaderElection, every_attestor, read_configuration_file
from signer.controller.named_cluster import require_cluster
from signer.explain.fleet import (
    ClusterStatus,
    fleet_status,
)
from signer.kube.client import Client
from signer.model.cluster import ClusterKey
from signer.model.command_failures import CommandFailed
from signer.store.cluster_api import discover_cluster_api

EXIT_NEEDS_ATTENTION: Final = 3


class StatusFailed(CommandFailed):
    """The Cluster has no status; the message says why."""


def run_status(options: argparse.Namespace) -> int:
    """Run the command with its parsed arguments."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    now = datetime.now(UTC)
    if options.cluster is None:
        found = asyncio.run(_read_fleet(options, options.namespace, now))
    else:
        if options.all_namespaces:
            raise WrongUse("give CLUSTER or --all-namespaces, not both")
        key = cluster_key(options.cluster, default_namespace=options.namespace or "default")
        found = asyncio.run(_read_fleet(options, key.namespace, now, key))
    by_machine = options.cluster is not None
    if options.output == HTML:
        print_text(as_html(found, now, by_machine=by_machine))
        return EXIT_NEEDS_ATTENTION if needs_attention(found, now, by_machine=by_machine) else 0
    print_result(
        options.output,
        lambda: as_json(found, now, by_machine=by_machine),
        lambda console: (
            show_cluster(found[0], now, console, wide=options.output == "wide")
            if by_machine
            else show(found, now, console, options.namespace)
        ),
    )
    return EXIT_NEEDS_ATTENTION if needs_attention(found, now, by_machine=by_machine) else 0


async def _read_fleet(
    options: argparse.Namespace, watch_namespace: str | None, now: datetime, only: ClusterKey | None = None
) -> tuple[ClusterStatus, ...]:
    access = await management_access(options)
    registry = Registry()
    configuration = Configuration(
        namespace=options.controller_namespace,
        watch_namespace=watch_namespace,
        attestors=every_attestor(registry.providers),
        leader_election=NoLeaderElection(lease_name(options)),
    )
    if options.config is not None:
        file = read_configuration_file(options.config)
        configuration = replace(
            configuration,
            attestors=file.attestors,
            floors=file.floors,
            namespace_limits=file.namespace_limits,
        )
        require_installed(configuration.attestors)
    async with Client(access.connection, token_source=access.token_source) as management:
        if only is not None:
            await require_cluster(management, (await discover_cluster_api(management)).clusters, only)
        found = await fleet_status(management, configuration, registry, lambda: now, options.timeout, only)
    if only is not None and not found:
        raise StatusFailed(f"Cluster {only} has no NodeAttestationPolicy: the controller does not serve it; create one")
    return found
