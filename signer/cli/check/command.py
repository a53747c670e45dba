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
from signer.cli.arguments import configuration_of
from signer.cli.check.cluster_checks import MANAGEMENT_CLUSTER, cluster_findings
from signer.cli.check.configuration_checks import configuration_findings
from signer.cli.check.findings import Finding, any_needs_attention, as_json, needs_attention, not_checked, show
from signer.cli.check.grants import ServiceAccount, ThisUser
from signer.cli.controller_arguments import add_controller_arguments
from signer.cli.leader_election import leader_election
from signer.cli.management import management_access
from signer.cli.output import add_output, print_result
from signer.configuration import Configuration
from signer.kube.client import Client
from signer.kube.management import ManagementConfigurationRefused

EXIT_NEEDS_ATTENTION: Final = 3


def add_check(parser: argparse.ArgumentParser) -> None:
    """Complete the parser of the command."""
    parser.description = (
        "Takes the arguments of run, changes nothing and serves nothing. Exit code 0: nothing needs attention; 2: "
        "wrong usage, or a configuration that cannot be parsed; 3: something needs attention."
    )
    parser.set_defaults(command=_check)
    parser.add_argument("--offline", action="store_true", help="check the configuration and the attestors only")
    parser.add_argument(
        "--service-account",
        metavar="NAME",
        help="check the grants of this ServiceAccount of the controller's namespace, which needs create on "
        "subjectaccessreviews (default: those of the user of --kubeconfig)",
    )
    add_controller_arguments(parser)
    add_output(parser)


def _check(options: argparse.Namespace) -> int:
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
