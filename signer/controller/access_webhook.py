"""Serves the webhook of access (:mod:`signer.access.admission.webhook`), for API servers before 1.30.

Until the certificate is there, the server presents one that no API server trusts, so requests are refused.

The answers to requests that somebody made up tell what the user in them may do. A client certificate keeps others than
the API server away. Where none is asked for, a client gets no more answers about rights in a time than one API server
needs. No client's connections or requests can keep another address from being answered.
"""

from __future__ import annotations

import asyncio
import enum
import logging
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Final, Protocol, TypeAlias

from aiohttp import web

from signer.access.admission.policies import Controllers
from signer.access.admission.review import MAXIMUM_REVIEW_BYTES, InvalidReview
from signer.access.admission.webhook import (
    MUTATE_PATH,
    PATHS,
    VALIDATE_PATH,
    AccessWebhook,
    CertificateKeeper,
    WebhookCalls,
    WebhookPlace,
)
from signer.access.admission.webhook_certificate import UnusablePair, WebhookPair
from signer.controller.access_webhook_clients import (
    ANY_CLIENT,
    NotTheApiServer,
    WebhookClients,
    require_certificates,
    require_name,
)
from signer.controller.diagnostics.bounded_server import Posting, Refused, Route, bounded_server
from signer.controller.diagnostics.connections import Bounds, Closed
from signer.controller.diagnostics.serving_certificate import self_signed_context
from signer.controller.diagnostics.source_rates import Rate, SourceRates, TooMuch
from signer.kube.backoff import Backoff
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError
from signer.kube.tls import load_certificate

_LOG = logging.getLogger(__name__)
BOUNDS: Final = Bounds(connections=256, connections_of_source=64, request_seconds=5.0, connection_seconds=10.0)
"""API servers wait for ten seconds. Behind a proxy such as konnectivity they share one address."""
CONNECTION_RATE: Final = Rate(per_second=100.0, burst=500.0)
KIBIBYTE_RATE: Final = Rate(per_second=2048.0, burst=32_768.0)
"""Of bodies. A usual one has 5 KiB."""
RIGHTS_RATE: Final = Rate(per_second=10.0, burst=100.0)
"""Questions about rights. A new grant asks one for each login."""
REFRESH_SECONDS: Final = 600.0
"""How often a replica reads the Secret again, and checks that API servers trust it."""
AnswersReview: TypeAlias = Callable[[bytes, str], Awaitable[JsonObject]]
"""Of the body and the client's address."""
_UNREFRESHED: Final = Backoff(base_seconds=1.0, maximum_seconds=60.0, jitter=0.2)


class Answer(enum.Enum):
    """What a request got."""

    ALLOWED = "allowed"
    REFUSED = "refused"
    INVALID = "invalid"
    """It is no review of objects of access."""
    FOREIGN_CLIENT = "foreign_client"
    """The client's certificate is another's than the API server's."""
    TOO_MUCH = "too_much"
    """Its address has used up what it may cost for now."""
    RIGHTS_UNKNOWN = "rights_unknown"
    """The API server does not say what the user may do."""


class Observer(Protocol):
    """Counts what happens, for metrics."""

    def webhook_serves(self, paths: Iterable[str], answers: Iterable[enum.Enum], reasons: Iterable[enum.Enum]) -> None:
        """All that it may be told of begins at zero."""
        ...

    def webhook_answered(self, path: str, answer: str, seconds: float) -> None:
        """A request of :data:`~signer.access.admission.webhook.MUTATE_PATH` or ``VALIDATE_PATH``."""
        ...

    def webhook_closed(self, reason: str) -> None:
        """A connection was closed without an answer."""
        ...


@asynccontextmanager
async def access_webhook_server(
    host: str,
    port: int,
    client: WebhookCalls,
    controllers: Controllers,
    place: WebhookPlace,
    observer: Observer,
    clients: WebhookClients = ANY_CLIENT,
) -> AsyncIterator[tuple[str, int]]:
    """Serve the webhook while the context is open; yields the address.

    Raises:
        OSError: it cannot listen there.
    """
    tls = self_signed_context(socket.gethostname(), datetime.now(UTC))
    require_certificates(tls, clients)
    observer.webhook_serves(PATHS, Answer, Closed)
    connection_rates = SourceRates(CONNECTION_RATE, time.monotonic)
    server = bounded_server(
        host,
        port,
        _Routes(AccessWebhook(client, controllers), clients, observer).all(),
        tls=tls,
        bounds=BOUNDS,
        accepts=lambda source: connection_rates.charge(source, 1.0),
        report=lambda closed: observer.webhook_closed(closed.value),
    )
    keeper = CertificateKeeper(client, place, lambda: datetime.now(UTC))
    async with server as address:
        refreshing = asyncio.create_task(_refresh(keeper, tls), name="access webhook certificate")
        try:
            yield address
        finally:
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)


class _Routes:
    """What each path answers."""

    def __init__(self, webhook: AccessWebhook, clients: WebhookClients, observer: Observer) -> None:
        self._webhook = webhook
        self._clients = clients
        self._observer = observer
        self._kibibytes = SourceRates(KIBIBYTE_RATE, time.monotonic)
        self._rights = SourceRates(RIGHTS_RATE, time.monotonic)

    def all(self) -> dict[str, Route]:
        """By path."""
        return {
            MUTATE_PATH: self._posting(MUTATE_PATH, self._mutated),
            VALIDATE_PATH: self._posting(VALIDATE_PATH, self._validated),
        }

    async def _mutated(self, body: bytes, _: str) -> JsonObject:
        return self._webhook.mutate(body)

    async def _validated(self, body: bytes, source: str) -> JsonObject:
        return await self._webhook.validate(body, lambda: self._rights.charge(source, 1.0))

    def _posting(self, path: str, answer: AnswersReview) -> Posting:
        def admit(request: web.BaseRequest) -> None:
            try:
                require_name(request.get_extra_info("peercert") or {}, self._clients)
            except NotTheApiServer:
                self._observer.webhook_answered(path, Answer.FOREIGN_CLIENT.value, 0.0)
                raise Refused(403, "the client certificate is not of an admitted name") from None

        async def serve(body: bytes, source: str) -> web.Response:
            began = time.monotonic()
            said, response = await self._response(answer, body, source)
            self._observer.webhook_answered(path, said.value, time.monotonic() - began)
            return response

        return Posting(serve, MAXIMUM_REVIEW_BYTES, admit)

    async def _response(self, answer: AnswersReview, body: bytes, source: str) -> tuple[Answer, web.Response]:
        try:
            self._kibibytes.charge(source, 1.0 + len(body) / 1024)
            said = await answer(body, source)
            return Answer.ALLOWED if said["response"]["allowed"] else Answer.REFUSED, web.json_response(said)
        except InvalidReview as error:
            return Answer.INVALID, web.Response(status=400, text=f"{error}\n")
        except TooMuch:
            text = "too many requests from your address: try again later\n"
            return Answer.TOO_MUCH, web.Response(status=429, text=text, headers={"Retry-After": "1"})
        except ApiError as error:
            _LOG.warning("a review of access cannot be answered", extra={"error": str(error)})
            text = "the API server does not say what the user may do\n"
            return Answer.RIGHTS_UNKNOWN, web.Response(status=503, text=text)


async def _refresh(keeper: CertificateKeeper, tls: ssl.SSLContext) -> None:
    """Keep the pair, until cancelled. New connections get it as soon as it is there."""
    random, failures, presented = Random(), 0, WebhookPair(b"", b"", b"")  # noqa: S311 - jitter
    while True:
        try:
            pair = await keeper.pair()
            if pair != presented:
                load_certificate(tls, pair.certificate, pair.key)
                presented = pair
                _LOG.info("the webhook for access presents its certificate")
            failures, pause = 0, REFRESH_SECONDS
        except (ApiError, UnusablePair, OSError, ValueError) as error:
            _LOG.warning("the webhook for access has no certificate of its own yet", extra={"error": str(error)})
            pause = _UNREFRESHED.delay(failures, random)
            failures += 1
        await asyncio.sleep(pause)


__all__ = ["REFRESH_SECONDS", "Observer", "access_webhook_server"]
