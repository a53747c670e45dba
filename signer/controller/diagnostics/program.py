"""What programs beside the controller share: flags, logs, and a life until a signal."""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from signer.controller.diagnostics.arguments import add_diagnostics_arguments
from signer.controller.diagnostics.listening import Health, Metrics, serve_diagnostics
from signer.controller.telemetry.logs import configure_logging, log_loop_fault
from signer.kube.client import Client
from signer.kube.management import management_connection

EXIT_USAGE: Final = 2
RUN_DESCRIPTION: Final = (
    "Runs until SIGTERM or SIGINT. Exit code 0: stopped by a signal; 1: failure at run time; 2: wrong usage or "
    "configuration."
)


def add_program_arguments(run: argparse.ArgumentParser) -> None:
    """The management cluster, diagnostics and logs."""
    run.add_argument(
        "--kubeconfig",
        type=Path,
        default=None,
        metavar="FILE",
        help="the management cluster (default: $KUBECONFIG, else the Pod's service account, else ~/.kube/config)",
    )
    add_diagnostics_arguments(run)
    run.add_argument("-v", "--verbose", action="store_true", help="log more")


def configure_program_logging(options: argparse.Namespace) -> None:
    """As the flags say; as JSON where no terminal reads."""
    as_json = options.logging_format == "json" or (options.logging_format is None and not sys.stderr.isatty())
    configure_logging(as_json=as_json, level=logging.DEBUG if options.verbose else logging.INFO)


async def run_until_signal(
    options: argparse.Namespace,
    work: Callable[[Client, asyncio.Event], Awaitable[None]],
    *,
    program: str,
    connections: int,
    health: Health,
    metrics: Metrics,
) -> None:
    """Run ``work`` with a client of the management cluster; SIGTERM and SIGINT set its event.

    Raises:
        InvalidConfiguration: an address of diagnostics is invalid, or cannot be listened at.
        ManagementConfigurationRefused: there is no usable configuration of the management cluster.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_fault)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    management = await management_connection(options.kubeconfig)
    async with AsyncExitStack() as stack:
        await serve_diagnostics(stack, options, management, health, metrics)
        client = Client(
            management.connection,
            token_source=management.token_source,
            user_agent=program,
            connection_limit=connections,
        )
        await work(await stack.enter_async_context(client), stop)


__all__ = [
    "EXIT_USAGE",
    "RUN_DESCRIPTION",
    "add_program_arguments",
    "configure_program_logging",
    "run_until_signal",
]
