"""Calls to one API server.

A client has one TLS configuration and one connection pool. It returns JSON objects, or raises an error of
:mod:`signer.kube.errors`. The API server may be a tenant's: its size, time and redirects are bounded here, whatever it
does. Paths come from :mod:`signer.kube.resources`, which encodes the names in them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from signer.kube.answers import (
    TOO_MANY_ANSWERS,
    TOO_MANY_EVENTS,
    check_is_json,
    decoded,
    error_from_answer,
    read_bounded,
    read_lines,
    unreachable,
)
from signer.kube.connection import ClusterConnection, bearer, token_digest
from signer.kube.errors import AnswerTooLarge, ApiError, Cause, Unauthorized, UnexpectedAnswer, Unreachable
from signer.kube.http.messages import MalformedAnswer, Origin, RequestWriter, target
from signer.kube.http.pool import Pool, Response
from signer.kube.http.tls_transport import TlsTransport
from signer.kube.listing import Listing
from signer.kube.resource_limits import (
    CALL_THROTTLE_SECONDS,
    MemoryQuota,
    MemoryQuotaExceeded,
    ResourceLimits,
    Throttle,
)
from signer.kube.server_clock import ServerClock
from signer.kube.tls import client_context

DEFAULT_USER_AGENT = "node-attestation-controller"
DEFAULT_TIMEOUT_SECONDS = 30.0
DEFAULT_CONNECTION_LIMIT = 8
MAXIMUM_BODY_BYTES = 32 * 1024 * 1024
MAXIMUM_EVENT_BYTES = 4 * 1024 * 1024
LIST_PAGE_OBJECTS = 500
LIST_BYTES_PER_BODY = 64
"""All pages of one list together may be this many times as large as one body."""
THROTTLED_ANSWER_BYTES = 64 * 1024
"""Responses to calls that are larger are throttled, as watches and lists are; no honest response to a write is so
large."""
_PAGE_CPU_SECONDS = 0.0005
_CPU_SECONDS_PER_BYTE = 1.5e-8
_CPU_SECONDS_PER_ITEM = 3e-5
"""Approximate cost of requesting a page, reading a response, and handling an item of a list (measured)."""
WATCH_IDLE_SECONDS = 120.0
"""API servers send a bookmark about once a minute (apiserver ``storage/cacher``). Kubernetes 1.20 sends none before the
collection's first event since the start of the API server."""
WATCH_GRACE_SECONDS = 10.0
"""The client ends a watch that lasts this much longer than requested."""

JsonObject = dict[str, Any]
Parameters = Mapping[str, str | int | bool]
_CONTENT_TYPE_JSON = "application/json"


class TokenSource(Protocol):
    """Provides a client's bearer token if tokens change while the process runs."""

    async def token(self) -> str | None:
        """The current token, or None for none. Called before each request, so it must be cheap if nothing has changed.

        Raises:
            Unauthorized: no token is available.
        """

    def rejected(self) -> None:
        """The API server answered 401: a cached token must not be used again."""


class Client:
    """A client of one API server: ``async with Client(connection) as client``.

    All paths are absolute API paths. Every method raises :class:`~signer.kube.errors.ApiError`, and ValueError for a
    path or parameter that no API call can have. The constructor raises :class:`~signer.kube.tls.TlsMaterialRefused`,
    and Unauthorized for a token that no header can carry.
    """

    def __init__(
        self,
        connection: ClusterConnection,
        *,
        user_agent: str = DEFAULT_USER_AGENT,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        maximum_body_bytes: int = MAXIMUM_BODY_BYTES,
        maximum_event_bytes: int = MAXIMUM_EVENT_BYTES,
        connection_limit: int = DEFAULT_CONNECTION_LIMIT,
        token_source: TokenSource | None = None,
        resource_limits: ResourceLimits | None = None,
        on_connect: Callable[[TlsTransport], None] = lambda transport: None,
        media_type: str = _CONTENT_TYPE_JSON,
        fields: Sequence[tuple[str, str]] = (),
    ) -> None:
        """``timeout_seconds`` bounds each whole call, including the wait for one of ``connection_limit`` slots.

        Watches use no slot: one for each resource would leave none for calls. ``resource_limits`` are shared by the
        clients of servers that may be hostile; without them, this server is trusted. ``on_connect`` is called after
        each TLS handshake, before a request is sent; it may raise ssl.SSLError. ``media_type`` is the kind of JSON that
        is asked for, and that every answer must be. ``fields`` are more header fields of each request, in which a name
        may be repeated (``Impersonate-Group``).
        """
        self.server = ClusterConnection(
            connection.server, connection.certificate_authority, tls_server_name=connection.tls_server_name
        )
        """The API server's address, without credentials."""
        self.clock = ServerClock(time.monotonic)
        """The API server's time, by its answers to calls."""
        self._origin = Origin.of(connection.server)
        self._server_name = connection.tls_server_name
        self._tls = connection.tls if connection.tls is not None else client_context(connection)
        self._timeout_seconds = timeout_seconds
        self._maximum_body_bytes = maximum_body_bytes
        self._maximum_event_bytes = maximum_event_bytes
        self._slots = asyncio.Semaphore(connection_limit)
        self._token_source = token_source
        self._resource_limits = resource_limits if resource_limits is not None else ResourceLimits.unlimited()
        # One for the client, not for each watch: a server that ends each watch early gains nothing.
        self._throttle = Throttle(self._resource_limits.rate_limiter(), self._origin.authority)
        self._media_type = media_type
        own_fields = {"Accept": media_type, "Accept-Encoding": "identity", "User-Agent": user_agent}
        self._requests = RequestWriter(self._origin, (*own_fields.items(), *fields))
        token = connection.bearer_token
        self.token_digest = token_digest(token)
        """Which bearer token of the connection is used, without telling it."""
        self._authorization = {} if token is None else {"Authorization": bearer(token)}
        self._encode = msgspec.json.Encoder().encode
        self._on_connect = on_connect
        self._pool: Pool | None = None

    async def __aenter__(self) -> Self:
        if self._pool is not None:
            raise RuntimeError("a client is opened once")
        self._pool = Pool(self._origin, self._tls, self._server_name, self._throttle.charge, self._on_connect)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections; running calls and watches raise Unreachable."""
        if self._pool is not None:
            await self._pool.close()

    # Calls

    async def get(self, path: str, params: Parameters | None = None) -> JsonObject:
        """Get one object, or a list that is known to be small."""
        return await self._call("GET", path, params)

    async def list_pages(
        self,
        path: str,
        params: Parameters | None = None,
        limit: int = LIST_PAGE_OBJECTS,
        *,
        maximum_bytes: int | None = None,
    ) -> AsyncGenerator[JsonObject, None]:
        """List a collection, page by page (Kubernetes API concepts, "Retrieving large results").

        A page that is too large is requested again in smaller pages: large objects, perhaps created by an attacker,
        hide no other object, and one object alone always fits the limit.

        ``maximum_bytes`` bounds all pages together (UnexpectedAnswer); the default is ``LIST_BYTES_PER_BODY`` bodies.
        Raises Gone if the continue token expired: the pages so far are then no consistent list.

        The caller must drop a page before it requests the next: in memory a page may take fifty times its size.
        """
        budget = LIST_BYTES_PER_BODY * self._maximum_body_bytes if maximum_bytes is None else maximum_bytes
        loop, throttled = asyncio.get_running_loop(), 0.0
        listing = Listing(params, limit, maximum_bytes=budget, now=loop.time())
        while True:
            throttled += await self._throttle.before()
            with self._resource_limits.memory_quota() as memory_quota:
                try:
                    page, size = await self._request(memory_quota, "GET", path, listing.query)
                except AnswerTooLarge:
                    if not listing.reduce_page():
                        raise
                    continue
                items = listing.read(page, size)
                began = time.thread_time()
                yield page  # the caller handles it before it requests the next page, and hardly waits
                del page
            handling = max(time.thread_time() - began, items * _CPU_SECONDS_PER_ITEM)
            throttled += await self._throttle.after(_PAGE_CPU_SECONDS + handling)
            if not listing.has_next(loop.time() - throttled):
                return

    async def create(self, path: str, body: JsonObject, params: Parameters | None = None) -> JsonObject:
        """POST to a collection or to a create-only subresource. It is not retried: after Unreachable it may have taken
        effect.
        """
        return await self._call("POST", path, params, body)

    async def replace(self, path: str, body: JsonObject) -> JsonObject:
        """PUT of the whole object. Without a resourceVersion in it, it overwrites any version."""
        return await self._call("PUT", path, None, body)

    async def patch(
        self,
        path: str,
        patch: JsonObject | list[JsonObject],
        content_type: str = "application/merge-patch+json",
        params: Parameters | None = None,
    ) -> JsonObject:
        """PATCH with a merge patch, or with another ``content_type`` (a JSON Patch is a list)."""
        return await self._call("PATCH", path, params, patch, content_type)

    async def delete(
        self,
        path: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation_policy: str | None = None,
    ) -> JsonObject:
        """DELETE with the given preconditions; raises Conflict if one fails."""
        options: JsonObject = {"kind": "DeleteOptions", "apiVersion": "v1"}
        preconditions = {k: v for k, v in (("uid", uid), ("resourceVersion", resource_version)) if v is not None}
        if preconditions:
            options["preconditions"] = preconditions
        if propagation_policy is not None:
            options["propagationPolicy"] = propagation_policy
        return await self._call("DELETE", path, None, options)

    async def watch(
        self,
        path: str,
        params: Parameters | None = None,
        *,
        timeout_seconds: float,
        idle_seconds: float = WATCH_IDLE_SECONDS,
        accepted: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[JsonObject, None]:
        """The raw events (``{"type": …, "object": …}``) of one watch, until the server ends it cleanly.

        ``timeout_seconds`` is the duration requested from the server. Silence for ``idle_seconds`` raises Unreachable
        (silence); so do ten seconds more than requested (timeout) and a broken stream. An event that is too large or no
        JSON object raises UnexpectedAnswer. In-stream ERROR events are passed on. ``accepted`` is called when the
        server has answered with 200, after which a quiet collection sends nothing. Use ``contextlib.aclosing``: closing
        the iterator closes the connection.
        """
        await self._throttle.before()
        loop = asyncio.get_running_loop()
        query = {**(params or {}), "watch": True, "timeoutSeconds": max(1, round(timeout_seconds))}
        ends_at = loop.time() + timeout_seconds + WATCH_GRACE_SECONDS
        answer = None
        try:
            async with asyncio.timeout(self._timeout_seconds):
                answer = await self._send("GET", path, query, None, _CONTENT_TYPE_JSON)
                if answer.head.status != 200:
                    raise await self._error(answer)
                check_is_json(answer, self._media_type)
            accepted()
            with self._resource_limits.memory_quota() as memory_quota:
                found = read_lines(
                    answer, self._throttle, memory_quota, idle_seconds, ends_at, maximum_bytes=self._maximum_event_bytes
                )
                async with contextlib.aclosing(found) as lines:
                    async for line in lines:
                        try:
                            event = decoded(line, "the watch holds an event that is no JSON object", memory_quota)
                        except MemoryQuotaExceeded:
                            raise UnexpectedAnswer(TOO_MANY_EVENTS, status=200) from None
                        del line
                        yield event
                        del event
        except (MalformedAnswer, OSError) as error:  # TimeoutError is an OSError
            raise unreachable(error, self._origin.authority) from None
        finally:
            if answer is not None:
                answer.close()

    # Machinery

    async def _call(
        self,
        method: str,
        path: str,
        params: Parameters | None,
        body: JsonObject | list[JsonObject] | None = None,
        content_type: str = _CONTENT_TYPE_JSON,
    ) -> JsonObject:
        """The JSON object of the response; after a large one the client is throttled."""
        await self._throttle.before(maximum=CALL_THROTTLE_SECONDS)
        with self._resource_limits.memory_quota() as memory_quota:
            answer, size = await self._request(memory_quota, method, path, params, body, content_type)
            if size > THROTTLED_ANSWER_BYTES:
                await self._throttle.after(maximum=CALL_THROTTLE_SECONDS)
            return answer

    async def _request(
        self,
        memory_quota: MemoryQuota,
        method: str,
        path: str,
        params: Parameters | None,
        body: JsonObject | list[JsonObject] | None = None,
        content_type: str = _CONTENT_TYPE_JSON,
    ) -> tuple[JsonObject, int]:
        """The JSON object of the response, held in ``memory_quota``, and its size in bytes."""
        payload = None if body is None else self._encode(body)
        answer = None
        try:
            async with asyncio.timeout(self._timeout_seconds), self._slots:
                answer = await self._send(method, path, params, payload, content_type)
                if not 200 <= answer.head.status < 300:
                    raise await self._error(answer)
                check_is_json(answer, self._media_type)
                raw = await read_bounded(answer, self._maximum_body_bytes, memory_quota, self._throttle.after)
        except (MalformedAnswer, OSError) as error:  # TimeoutError is an OSError
            raise unreachable(error, self._origin.authority) from None
        finally:
            if answer is not None:
                # Closes the connection, unless the whole response was read and the pool has it back.
                answer.close()
        began = time.thread_time()
        try:
            return decoded(raw, "the answer is no JSON object", memory_quota), len(raw)
        except MemoryQuotaExceeded:
            raise AnswerTooLarge(TOO_MANY_ANSWERS, status=200) from None
        finally:
            if len(raw) > THROTTLED_ANSWER_BYTES:
                self._throttle.charge(max(time.thread_time() - began, len(raw) * _CPU_SECONDS_PER_BYTE))

    async def _send(
        self, method: str, path: str, params: Parameters | None, payload: bytes | None, content_type: str
    ) -> Response:
        if self._pool is None or self._pool.closed:
            raise Unreachable("the client is closed", cause=Cause.RESET)
        fields = dict(self._authorization)
        if self._token_source is not None and (token := await self._token_source.token()) is not None:
            fields["Authorization"] = bearer(token)
        if payload is not None:
            fields["Content-Type"] = content_type
        request = self._requests.write(method, target(path, params), fields, payload)
        answer = await self._pool.send(request, repeatable=method == "GET")
        self.clock.answered(answer.head.date)
        return answer

    async def _error(self, answer: Response) -> ApiError:
        error = await error_from_answer(answer, self._resource_limits)
        if isinstance(error, Unauthorized) and self._token_source is not None:
            self._token_source.rejected()
        return error
