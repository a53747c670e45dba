"""Where a program serves its health and metrics: flags as addresses, servers in a stack."""

from __future__ import annotations

import argparse
import logging
import re
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Final, Protocol

from prometheus_client import CollectorRegistry

from signer.configuration import InvalidConfiguration
from signer.controller.diagnostics.health import Report
from signer.controller.diagnostics.scrape_access import CONCURRENT_REVIEWS
from signer.controller.diagnostics.server import diagnostics_server, health_server, insecure_diagnostics_server
from signer.kube.client import Client
from signer.kube.management import ManagementAccess

_LOG = logging.getLogger(__name__)
_HOST_AND_PORT: Final = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]*)):(?P<port>[0-9]{1,5})")


class Health(Protocol):
    """What ``/healthz`` and ``/readyz`` say."""

    def alive(self) -> Report:
        """``/healthz``."""
        ...

    def ready(self) -> Report:
        """``/readyz``."""
        ...


class Metrics(Protocol):
    """What ``/metrics`` says."""

    registry: CollectorRegistry


def listen_address(flag: str, text: str) -> tuple[str, int]:
    """Host and port of a flag.

    Raises:
        InvalidConfiguration: it is not of the form HOST:PORT.
    """
    found = _HOST_AND_PORT.fullmatch(text)
    if found is None or int(found["port"]) > 65535:
        raise InvalidConfiguration(f"{flag} must be HOST:PORT, such as :8080, or [::1]:8080 for an IPv6 address")
    return found["six"] or found["host"] or "", int(found["port"])


def require_addresses(options: argparse.Namespace) -> None:
    """Check the flags of :mod:`signer.controller.diagnostics.arguments` before a program reads anything else.

    Raises:
        InvalidConfiguration: an address is invalid, or it is missing.
    """
    if options.insecure_diagnostics and not options.diagnostics_address:
        raise InvalidConfiguration("--insecure-diagnostics needs --diagnostics-address: give both")
    if options.health_addr:
        listen_address("--health-addr", options.health_addr)
    if options.diagnostics_address:
        listen_address("--diagnostics-address", options.diagnostics_address)


async def serve_diagnostics(
    stack: AsyncExitStack, options: argparse.Namespace, management: ManagementAccess, health: Health, metrics: Metrics
) -> None:
    """Serve what the flags of :mod:`signer.controller.diagnostics.arguments` say, until the stack closes.

    Raises:
        InvalidConfiguration: an address is invalid, or cannot be listened at.
    """
    if options.health_addr:
        where = listen_address("--health-addr", options.health_addr)
        await _serve(stack, "--health-addr", health_server(*where, health))
    if options.diagnostics_address:
        host, port = listen_address("--diagnostics-address", options.diagnostics_address)
        if options.insecure_diagnostics:
            server = insecure_diagnostics_server(host, port, metrics, health)
        else:
            reviews = Client(
                management.connection, token_source=management.token_source, connection_limit=CONCURRENT_REVIEWS
            )
            server = diagnostics_server(host, port, metrics, await stack.enter_async_context(reviews))
        await _serve(stack, "--diagnostics-address", server)


async def _serve(stack: AsyncExitStack, flag: str, server: AbstractAsyncContextManager[tuple[str, int]]) -> None:
    try:
        host, port = await stack.enter_async_context(server)
    except OSError as error:
        raise InvalidConfiguration(f"{flag}: cannot listen: {error.strerror}") from error
    _LOG.info("serving diagnostics", extra={"flag": flag, "address": f"{host}:{port}"})


__all__ = ["Health", "Metrics", "listen_address", "require_addresses", "serve_diagnostics"]
