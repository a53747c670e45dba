"""``node-access-gateway run``: the gateway, until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from attestors.command_parser import CommandParser
from signer.configuration import InvalidConfiguration
from signer.controller.diagnostics.listening import listen_address, require_addresses
from signer.controller.diagnostics.program import (
    EXIT_USAGE,
    RUN_DESCRIPTION,
    add_program_arguments,
    configure_program_logging,
    run_until_signal,
)
from signer.gateway.run import GatewayHealth, GatewayOptions, run_gateway
from signer.gateway.ssh.host_keys import HostKeyRefused, HostKeys, read_host_keys
from signer.gateway.ssh.listener import CannotListen
from signer.kube.client import Client
from signer.kube.management import ManagementConfigurationRefused
from signer.model.object_names import NAMESPACE, NAMESPACE_FORM

_PROGRAM: Final = "node-access-gateway"
_CONNECTIONS: Final = 8


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = CommandParser(
        prog=_PROGRAM, description="Opens containers of workload clusters by SSH, for the creators of access grants."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run the gateway until SIGTERM",
        description=RUN_DESCRIPTION,
    )
    run.add_argument(
        "--namespace", required=True, metavar="NAMESPACE", help="namespace of the Secrets that connect Clusters"
    )
    run.add_argument("--listen", default=":2222", metavar="HOST:PORT", help="address for SSH (default: :2222)")
    run.add_argument(
        "--host-key",
        type=Path,
        action="append",
        required=True,
        metavar="FILE",
        help="private key by which clients know the gateway; may be given again for another type",
    )
    add_program_arguments(run)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = make_parser().parse_args(arguments)
    configure_program_logging(options)
    try:
        require_addresses(options)
        _require_namespace(options.namespace)
        host_keys = read_host_keys(options.host_key)
        listen = listen_address("--listen", options.listen)
        asyncio.run(_run(options, listen, host_keys))
    except (InvalidConfiguration, HostKeyRefused, CannotListen, ManagementConfigurationRefused) as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return EXIT_USAGE
    return 0


def _require_namespace(name: str) -> None:
    if NAMESPACE.fullmatch(name) is None:
        raise InvalidConfiguration(f"--namespace must be a namespace: {NAMESPACE_FORM}")


async def _run(options: argparse.Namespace, listen: tuple[str, int], host_keys: HostKeys) -> None:
    parts, health = GatewayOptions(), GatewayHealth()

    async def work(client: Client, stop: asyncio.Event) -> None:
        await run_gateway(client, options.namespace, listen, host_keys, stop=stop, options=parts, health=health)

    await run_until_signal(
        options, work, program=_PROGRAM, connections=_CONNECTIONS, health=health, metrics=parts.metrics
    )


if __name__ == "__main__":
    sys.exit(main())
