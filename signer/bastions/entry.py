"""``node-access-bastions run``: the bastion controller, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attestors.command_parser import CommandParser
from node_access.bastions.contract import InvalidSettings, ProviderUnavailable
from signer.bastions.configuration import BastionConfiguration, read_bastion_configuration
from signer.bastions.controller import BastionController
from signer.bastions.host_keys import HostKeySecret, read_host_key_secret
from signer.bastions.run import BastionOptions, run_bastions
from signer.configuration import InvalidConfiguration
from signer.controller.diagnostics.health import Check, Report
from signer.controller.diagnostics.listening import require_addresses
from signer.controller.diagnostics.program import (
    EXIT_USAGE,
    RUN_DESCRIPTION,
    add_program_arguments,
    configure_program_logging,
    run_until_signal,
)
from signer.kube.client import Client
from signer.kube.management import ManagementConfigurationRefused

_PROGRAM: Final = "node-access-bastions"
_CONNECTIONS: Final = 32


class BastionHealth:
    """The health of the controller, once it is there."""

    def __init__(self) -> None:
        self._controller: BastionController | None = None

    def watch(self, controller: BastionController) -> None:
        """From now on, that controller's."""
        self._controller = controller

    def alive(self) -> Report:
        """``/healthz``."""
        return Report("healthz", (Check("ping"),)) if self._controller is None else self._controller.alive()

    def ready(self) -> Report:
        """``/readyz``."""
        return (
            Report("readyz", (Check("started", "starting"),)) if self._controller is None else self._controller.ready()
        )


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = CommandParser(prog=_PROGRAM, description="Makes the bastions of access grants, and removes them.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run the controller until SIGTERM",
        description=RUN_DESCRIPTION,
    )
    run.add_argument(
        "--config", type=Path, required=True, metavar="FILE", help="owner, and the providers with their settings"
    )
    run.add_argument(
        "--host-key-secret",
        type=Path,
        required=True,
        metavar="FILE",
        help="at least 32 random bytes, from which bastions' host keys are derived",
    )
    add_program_arguments(run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = make_parser().parse_args(arguments)
    configure_program_logging(options)
    try:
        require_addresses(options)
        configuration = read_bastion_configuration(options.config)
        secret = read_host_key_secret(options.host_key_secret)
        asyncio.run(_run(options, configuration, secret))
    except (InvalidConfiguration, InvalidSettings, ProviderUnavailable, ManagementConfigurationRefused) as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return EXIT_USAGE
    return 0


async def _run(options: argparse.Namespace, configuration: BastionConfiguration, secret: HostKeySecret) -> None:
    parts, health = BastionOptions(), BastionHealth()

    async def work(client: Client, stop: asyncio.Event) -> None:
        await run_bastions(client, configuration, secret, stop=stop, options=parts, started=health.watch)

    await run_until_signal(
        options, work, program=_PROGRAM, connections=_CONNECTIONS, health=health, metrics=parts.metrics
    )


if __name__ == "__main__":
    sys.exit(main())
