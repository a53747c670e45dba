"""``node-access-gateway run``: the gateway, until SIGTERM."""

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

from signer.configuration import InvalidConfiguration
from signer.controller.diagnostics.arguments import add_diagnostics_arguments
from signer.controller.diagnostics.listening import listen_address, serve_diagnostics
from signer.controller.telemetry.logs import configure_logging, log_loop_fault
from signer.gateway.run import GatewayHealth, GatewayOptions, run_gateway
from signer.gateway.ssh.host_keys import HostKeyRefused, HostKeys, read_host_keys
from signer.kube.client import Client
from signer.kube.management import ManagementConfigurationRefused, management_connection

_PROGRAM: Final = "node-access-gateway"
EXIT_FAILURE: Final = 1
EXIT_USAGE: Final = 2
_CONNECTIONS: Final = 8


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog=_PROGRAM, description="Opens containers of workload clusters by SSH, for the creators of access grants."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run the gateway until SIGTERM",
        description="Runs until SIGTERM or SIGINT. Exit code 0: stopped by a signal; 1: failure at run time; 2: wrong "
        "usage or configuration.",
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
        host_keys = read_host_keys(options.host_key)
        listen = listen_address("--listen", options.listen)
        asyncio.run(_run_until_signal(options, listen, host_keys))
    except (InvalidConfiguration, HostKeyRefused) as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"{_PROGRAM}: --listen {options.listen}: {error.strerror or error}", file=sys.stderr)
        return EXIT_USAGE
    except ManagementConfigurationRefused as error:
        print(f"{_PROGRAM}: {error}", file=sys.stderr)
        return EXIT_FAILURE
    return 0


async def _run_until_signal(options: argparse.Namespace, listen: tuple[str, int], host_keys: HostKeys) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_fault)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    management = await management_connection(options.kubeconfig)
    parts, health = GatewayOptions(), GatewayHealth()
    async with AsyncExitStack() as stack:
        await serve_diagnostics(stack, options, management, health, parts.metrics)
        client = await stack.enter_async_context(
            Client(
                management.connection,
                token_source=management.token_source,
                user_agent=_PROGRAM,
                connection_limit=_CONNECTIONS,
            )
        )
        await run_gateway(client, options.namespace, listen, host_keys, stop=stop, options=parts, health=health)


if __name__ == "__main__":
    sys.exit(main())
