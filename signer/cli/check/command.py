"""``node-attestation-controller check``: verify what ``run`` needs, with the same arguments, without serving."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from attestors.registry import Registry
from signer.cli.check.cluster_checks import MANAGEMENT_CLUSTER, cluster_findings
from signer.cli.check.configuration_checks import configuration_findings
from signer.cli.check.findings import Finding, any_needs_attention, as_json, needs_attention, not_checked, show
from signer.cli.check.grants import ServiceAccount, ThisUser
from signer.cli.configuration import configuration_of
from signer.cli.leader_election import leader_election
from signer.cli.management import management_access
from signer.cli.output import print_result
from signer.configuration import Configuration
from signer.kube.client import Client
from signer.kube.management import ManagementConfigurationRefused

EXIT_NEEDS_ATTENTION: Final = 3


def run_check(options: argparse.Namespace) -> int:
    """Run the command with its parsed arguments."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    configuration = replace(configuration_of(options), leader_election=leader_election(options))
    found = asyncio.run(_findings(options, configuration))
    print_result(options.output, lambda: as_json(found), lambda console: show(found, console))
    return EXIT_NEEDS_ATTENTION if any_needs_attention(found) else 0


async def _findings(options: argparse.Namespace, configuration: Configuration) -> tuple[Finding, ...]:
    found = configuration_findings(configuration, Registry(), datetime.now(UTC))
    if options.offline:
        return (
            *found,
            not_checked(MANAGEMENT_CLUSTER, "--offline: its definitions, grants, key and Lease are unknown"),
        )
    try:
        access = await management_access(options)
    except ManagementConfigurationRefused as error:
        return (*found, needs_attention(MANAGEMENT_CLUSTER, str(error), "give --kubeconfig, or --offline"))
    named = options.service_account
    subject = ThisUser() if named is None else ServiceAccount(configuration.namespace, named)
    async with Client(access.connection, token_source=access.token_source) as client:
        name = options.leader_elect_resource_name
        return (*found, *await cluster_findings(client, configuration, name, subject))
