"""``node-access-bastions run``: the bastion controller, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from node_access.bastions.contract import InvalidSettings, ProviderUnavailable
from signer.bastions.configuration import BastionConfiguration, read_bastion_configuration
from signer.bastions.controller import BastionController
from signer.bastions.host_keys import HostKeySecret, read_host_key_secret
from signer.bastions.run import BastionOptions, run_bastions
from signer.configuration import InvalidConfiguration
from signer.controller.diagnostics.arguments import add_diagnostics_arguments
from signer.controller.diagnostics.health import Check, Report
from signer.controller.diagnostics.listening import serve_diagnostics
from signer.controller.telemetry.logs import configure_logging, log_loop_fault
from signer.kube.client import Client
from signer.kube.management import ManagementConfigurationRefused, management_connection

EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
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
    parser = argparse.ArgumentParser(
        prog="node-access-bastions", description="Makes the bastions of access grants, and removes them."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run the controller until SIGTERM",
        description="Runs until SIGTERM or SIGINT. Exit code 0: stopped by a signal; 1: failure at run time; 2: wrong "
        "usage or configuration.",
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
    run.add_argument(
        "--kubeconfig",
        type=Path,
        default=None,
        metavar="FILE",
        help="the management cluster (default: $KUBECONFIG, else the Pod's service account)",
    )
    add_diagnostics_arguments(run)
    run.add_argument("-v", "--verbose", action="store_true", help="log more")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = make_parser().parse_args(arguments)
    as_json = options.logging_format == "json" or (options.logging_format is None and not sys.stderr.isatty())
    configure_logging(as_json=as_json, level=logging.DEBUG if options.verbose else logging.INFO)
    try:
        configuration = read_bastion_configuration(options.config)
        secret = read_host_key_secret(options.host_key_secret)
        asyncio.run(_run_until_signal(options, configuration, secret))
    except (InvalidConfiguration, InvalidSettings, ProviderUnavailable) as error:
        print(f"node-access-bastions: {error}", file=sys.stderr)
        return EXIT_USAGE
    except ManagementConfigurationRefused as error:
        print(f"node-access-bastions: {error}", file=sys.stderr)
        return EXIT_FAILURE
    return 0


async def _run_until_signal(
    options: argparse.Namespace, configuration: BastionConfiguration, secret: HostKeySecret
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_fault)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    management = await management_connection(options.kubeconfig)
    parts, health = BastionOptions(), BastionHealth()
    async with AsyncExitStack() as stack:
        await serve_diagnostics(stack, options, management, health, parts.metrics)
        client = await stack.enter_async_context(
            Client(
                management.connection,
                token_source=management.token_source,
                user_agent="node-access-bastions",
                connection_limit=_CONNECTIONS,
            )
        )
        await run_bastions(client, configuration, secret, stop=stop, options=parts, started=health.watch)


if __name__ == "__main__":
    sys.exit(main())
