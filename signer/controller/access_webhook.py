"""Serves the webhook of access (:mod:`signer.access.admission.webhook`), for API servers before 1.30.

Until the certificate is there, the server presents one that no API server trusts, so requests are refused.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from random import Random
from typing import Final, TypeAlias

from aiohttp import web

from signer.access.admission.policies import Controllers
from signer.access.admission.review import MAXIMUM_REVIEW_BYTES, InvalidReview
from signer.access.admission.webhook import (
    MUTATE_PATH,
    VALIDATE_PATH,
    AccessWebhook,
    CertificateKeeper,
    WebhookCalls,
    WebhookPlace,
)
from signer.access.admission.webhook_certificate import UnusablePair, WebhookPair
from signer.controller.diagnostics.bounded_server import Handler, bounded_server
from signer.controller.diagnostics.serving_certificate import self_signed_context
from signer.kube.backoff import Backoff
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError
from signer.kube.tls import load_certificate

_LOG = logging.getLogger(__name__)
CONNECTIONS: Final = 64
REFRESH_SECONDS: Final = 600.0
"""How often a replica reads the Secret again, and checks that API servers trust it."""
AnswersReview: TypeAlias = Callable[[bytes], Awaitable[JsonObject]]
_UNREFRESHED: Final = Backoff(base_seconds=1.0, maximum_seconds=60.0, jitter=0.2)


@asynccontextmanager
async def access_webhook_server(
    host: str, port: int, client: WebhookCalls, controllers: Controllers, place: WebhookPlace
) -> AsyncIterator[tuple[str, int]]:
    """Serve the webhook while the context is open; yields the address.

    Raises:
        OSError: it cannot listen there.
    """
    tls = self_signed_context(socket.gethostname(), datetime.now(UTC))
    webhook = AccessWebhook(client, controllers)

    async def mutated(body: bytes) -> JsonObject:
        return webhook.mutate(body)

    handlers: dict[str, Handler] = {MUTATE_PATH: _answering(mutated), VALIDATE_PATH: _answering(webhook.validate)}
    keeper = CertificateKeeper(client, place, lambda: datetime.now(UTC))
    server = bounded_server(host, port, handlers, tls=tls, connections=CONNECTIONS, methods=("POST",))
    async with server as address:
        refreshing = asyncio.create_task(_refresh(keeper, tls), name="access webhook certificate")
        try:
            yield address
        finally:
            refreshing.cancel()
            await asyncio.gather(refreshing, return_exceptions=True)


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


def _answering(answer: AnswersReview) -> Handler:
    async def serve(request: web.BaseRequest) -> web.Response:
        try:
            return web.json_response(await answer(await _body(request)))
        except InvalidReview as error:
            return web.Response(status=400, text=f"{error}\n")
        except ApiError as error:
            _LOG.warning("a review of access cannot be answered", extra={"error": str(error)})
            return web.Response(status=503, text="the API server does not say what the user may do\n")

    return serve


async def _body(request: web.BaseRequest) -> bytes:
    found = bytearray()
    async for chunk in request.content.iter_chunked(64 * 1024):
        found += chunk
        if len(found) > MAXIMUM_REVIEW_BYTES:
            raise InvalidReview("the review is too large")
    return bytes(found)


__all__ = ["REFRESH_SECONDS", "access_webhook_server"]
