"""``node-attestation-controller run``: run the controller until SIGTERM."""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Final

from attestors.registry import Registry
from signer.audit.lines import AuditLogInUse
from signer.audit.log import AuditLog, open_audit_log
from signer.cli.access_webhook import CONCURRENT_WEBHOOK_CALLS, webhook_clients, webhook_server
from signer.cli.collector import collect_less_often, freeze_existing_objects
from signer.cli.configuration import configuration_of, require_installed
from signer.cli.leader_election import leader_election
from signer.cli.management import management_access
from signer.cli.open_files import open_as_many_files_as_allowed
from signer.cli.plain_output import print_to_stderr
from signer.configuration import Configuration, InvalidConfiguration
from signer.controller.access_webhook_clients import ANY_CLIENT, WebhookClients
from signer.controller.cluster_api_change import ClusterAPIChanged
from signer.controller.diagnostics.scrape_access import CONCURRENT_REVIEWS
from signer.controller.diagnostics.server import diagnostics_server, health_server, insecure_diagnostics_server
from signer.controller.replica import run_replica
from signer.controller.replicas.leadership import LeadershipLost
from signer.controller.run import ControllerOptions
from signer.controller.telemetry.logs import configure_logging, log_loop_fault
from signer.kube.client import Client
from signer.model.command_failures import CommandFailed

_LOG = logging.getLogger(__name__)
EXIT_LEADERSHIP_LOST: Final = 4
_HOST_AND_PORT: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+(?:%\w+)?)\]|(?P<host>[^\[\]:]*)):(?P<port>[0-9]{1,5})")
_MAXIMUM_PORT: Final = 65535


def run_controller(options: argparse.Namespace) -> int:
    """Run the command with its parsed arguments."""
    as_json = options.logging_format == "json" or (options.logging_format is None and not sys.stderr.isatty())
    configure_logging(as_json=as_json, level=logging.DEBUG if options.verbose else logging.INFO)
    configuration = _configuration(options)
    _warn_if_no_attestor_is_configured(configuration, Registry().providers)
    collect_less_often()
    open_as_many_files_as_allowed()
    try:
        asyncio.run(_run_until_signal(options, configuration, webhook_clients(options)))
    except LeadershipLost as error:
        print_to_stderr(f"node-attestation-controller: leadership lost: {error}")
        return EXIT_LEADERSHIP_LOST
    except ClusterAPIChanged as error:
        raise CommandFailed(f"restart required: {error}") from error
    return 0


def _configuration(options: argparse.Namespace) -> Configuration:
    if options.insecure_diagnostics and not options.diagnostics_address:
        raise InvalidConfiguration("--insecure-diagnostics needs --diagnostics-address: give both")
    configuration = configuration_of(options)
    if options.access_webhook_address and not options.access:
        raise InvalidConfiguration("--access-webhook-address needs --access: give both")
    require_installed(configuration.attestors)
    return replace(
        configuration,
        leader_election=leader_election(options),
        workers_per_cluster=options.workers_per_cluster,
    )


def _warn_if_no_attestor_is_configured(configuration: Configuration, installed: frozenset[str]) -> None:
    """An attestor that the operator does not name is allowed nowhere: without any, the controller approves nothing."""
    if configuration.attestors or configuration.insecure_enabled:
        return
    _LOG.warning(
        "no attestor is named: the controller denies every request",
        extra={
            "flag": "--config",
            "attestors": sorted(installed),
            "detail": "name the attestors to allow in attestors of the configuration file, with their namespaces and "
            "settings; the insecure attestor is named by its own flags",
        },
    )


async def _run_until_signal(
    options: argparse.Namespace, configuration: Configuration, clients: WebhookClients = ANY_CLIENT
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_fault)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    access = await management_access(options)
    controller = ControllerOptions()
    async with AsyncExitStack() as stack:
        if options.health_addr:
            host, port = _address("--health-addr", options.health_addr)
            await _serve(stack, "--health-addr", health_server(host, port, controller.health))
        if options.diagnostics_address:
            flag = "--diagnostics-address"
            host, port = _address(flag, options.diagnostics_address)
            if options.insecure_diagnostics:
                server = insecure_diagnostics_server(host, port, controller.metrics, controller.health)
            else:
                # A client of its own: scrapers and their impostors must not use up the controller's connections.
                reviews = Client(
                    access.connection, token_source=access.token_source, connection_limit=CONCURRENT_REVIEWS
                )
                server = diagnostics_server(host, port, controller.metrics, await stack.enter_async_context(reviews))
            await _serve(stack, flag, server)
        if options.access_webhook_address:
            flag = "--access-webhook-address"
            host, port = _address(flag, options.access_webhook_address)
            # A client of its own: reviews must not wait for the controller's connections, or the reverse.
            rights = Client(
                access.connection, token_source=access.token_source, connection_limit=CONCURRENT_WEBHOOK_CALLS
            )
            calls = await stack.enter_async_context(rights)
            await _serve(stack, flag, webhook_server(options, host, port, calls, clients, controller.metrics))
        if options.audit_log_path:
            controller = replace(controller, audit_log=await stack.enter_async_context(_audit_log(options)))
        await run_replica(
            access.connection,
            configuration,
            stop=stop,
            token_source=access.token_source,
            options=controller,
            started=lambda caches: freeze_existing_objects(),
        )


async def _serve(stack: AsyncExitStack, flag: str, server: AbstractAsyncContextManager[tuple[str, int]]) -> None:
    """Serve until the stack is closed."""
    try:
        host, port = await stack.enter_async_context(server)
    except OSError as error:
        raise InvalidConfiguration(f"{flag}: cannot listen: {error.strerror}") from error
    _LOG.info(
        "serving diagnostics", extra={"flag": flag, "address": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"}
    )


@asynccontextmanager
async def _audit_log(options: argparse.Namespace) -> AsyncIterator[AuditLog]:
    try:
        log = open_audit_log(
            options.audit_log_path,
            maximum_mebibytes=options.audit_log_maxsize,
            maximum_backups=options.audit_log_maxbackup,
        )
    except AuditLogInUse as error:
        raise InvalidConfiguration(f"--audit-log-path: {error}") from error
    except OSError as error:
        raise InvalidConfiguration(f"--audit-log-path: {options.audit_log_path}: {error.strerror}") from error
    try:
        yield log
    finally:
        await log.close()


def _address(flag: str, text: str) -> tuple[str, int]:
    """Parse HOST:PORT; an empty host means all addresses."""
    found = _HOST_AND_PORT.fullmatch(text)
    if found is None or int(found["port"]) > _MAXIMUM_PORT:
        raise InvalidConfiguration(f"{flag} must be HOST:PORT, such as :8080, or [::1]:8080 for an IPv6 address")
    return found["six"] or found["host"] or "", int(found["port"])
