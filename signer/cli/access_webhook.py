"""The webhook of access, from the arguments of ``run``."""

from __future__ import annotations

import argparse
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final

from signer.access.admission.policies import Controllers
from signer.access.admission.webhook import WebhookCalls, WebhookPlace
from signer.access.admission.webhook_certificate import service_names
from signer.configuration import InvalidConfiguration
from signer.controller.access_webhook import Observer, access_webhook_server
from signer.controller.access_webhook_clients import (
    ANY_CLIENT,
    MAXIMUM_AUTHORITIES_BYTES,
    InvalidClientAuthorities,
    WebhookClients,
    parse_client_authorities,
)

CONCURRENT_WEBHOOK_CALLS: Final = 8
_AUTHORITIES: Final = "--access-webhook-client-ca"
_NAMES: Final = "--access-webhook-client-names"


def webhook_clients(options: argparse.Namespace) -> WebhookClients:
    """Which clients the webhook answers.

    Raises:
        InvalidConfiguration: the flags contradict each other, or the file cannot be used.
    """
    names = frozenset(name for name in options.access_webhook_client_names.split(",") if name)
    if options.access_webhook_client_ca is None:
        if names:
            raise InvalidConfiguration(f"{_NAMES} needs {_AUTHORITIES}: give both")
        return ANY_CLIENT
    if not options.access_webhook_address:
        raise InvalidConfiguration(f"{_AUTHORITIES} needs --access-webhook-address: give both")
    try:
        with Path(options.access_webhook_client_ca).open("rb") as file:
            content = file.read(MAXIMUM_AUTHORITIES_BYTES + 1)
        return parse_client_authorities(content, names)
    except OSError as error:
        raise InvalidConfiguration(f"{_AUTHORITIES}: cannot read the file: {error.strerror}") from error
    except InvalidClientAuthorities as error:
        raise InvalidConfiguration(f"{_AUTHORITIES}: {error}") from error


def webhook_server(
    options: argparse.Namespace,
    host: str,
    port: int,
    calls: WebhookCalls,
    clients: WebhookClients,
    observer: Observer,
) -> AbstractAsyncContextManager[tuple[str, int]]:
    """The server, which listens once it is entered; see
    :func:`~signer.controller.access_webhook.access_webhook_server`.
    """
    namespace = options.controller_namespace
    accounts = (options.access_service_account, options.access_bastion_service_account)
    users = Controllers(*(f"system:serviceaccount:{namespace}:{account}" for account in accounts))
    place = WebhookPlace(namespace, service_names(options.access_webhook_service, namespace))
    return access_webhook_server(host, port, calls, users, place, observer, clients)


__all__ = ["CONCURRENT_WEBHOOK_CALLS", "webhook_clients", "webhook_server"]
