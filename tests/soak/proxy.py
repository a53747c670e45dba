"""A proxy between a controller and an API server. It terminates TLS, so that it can answer, cut and stall requests.

It forwards bearer tokens but not client certificates. Its serving certificate is of the cluster's own CA.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import tempfile
import weakref
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Protocol, Self

import aiohttp
import yarl
from aiohttp import web

from signer.kube.connection import ClusterConnection
from signer.testing.api.thread import stop_accepting
from tests.soak.weather import Fault, Weather
from tests.support.certificates import CertificateAuthority

_HOST: Final = "127.0.0.1"
_FORWARDED: Final = ("Authorization", "Content-Type", "Accept", "Accept-Encoding", "User-Agent")
_DELAY_SECONDS: Final = 1.5
_WATCH_SECONDS: Final = 15.0
_MAXIMUM_BODY_BYTES: Final = 8 * 1024 * 1024
_STATUSES: Final = {
    Fault.CONFLICT: (409, "Conflict"),
    Fault.TOO_MANY_REQUESTS: (429, "TooManyRequests"),
    Fault.INTERNAL_ERROR: (500, "InternalError"),
    Fault.UNAVAILABLE: (503, "ServiceUnavailable"),
    Fault.GATEWAY_TIMEOUT: (504, "Timeout"),
    Fault.EXPIRED: (410, "Expired"),
}


class Served(Protocol):
    """An API server behind the proxy."""

    @property
    def server(self) -> str:
        """``https://host:port``."""
        ...

    @property
    def ca_certificate_pem(self) -> bytes:
        """The cluster CA's certificate."""
        ...

    @property
    def ca_key_pem(self) -> bytes:
        """The cluster CA's key."""
        ...


class FaultyProxy:
    """A proxy of one API server, as an async context manager."""

    def __init__(self, name: str, api: Served, weather: Weather, stall_seconds: float) -> None:
        """A stalled request gets no response, and its connection is reset after ``stall_seconds``."""
        self.name = name
        self.weather = weather
        self._api = api
        self._stall_seconds = stall_seconds
        self._transports: weakref.WeakSet[asyncio.BaseTransport] = weakref.WeakSet()
        self._reachable = asyncio.Event()
        self._reachable.set()
        self._calm = asyncio.Event()
        self._stack = contextlib.AsyncExitStack()
        self._port = 0
        self._session: aiohttp.ClientSession | None = None
        self._as_user: dict[str, ssl.SSLContext] = {}
        """For each user with a client certificate, a TLS context with a certificate of the proxy's own."""

    async def __aenter__(self) -> Self:
        server_tls, client_tls = self._contexts()
        self._session = await self._stack.enter_async_context(
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=client_tls, limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                auto_decompress=False,
            )
        )
        server = web.Server(self._handle, request_factory=_request, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        listening = socket.create_server((_HOST, 0), backlog=512)
        await web.SockSite(runner, listening, ssl_context=server_tls).start()
        self._stack.push_async_callback(stop_accepting, listening.fileno())
        self._port = listening.getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.calm_down()
        self.cut()
        await self._stack.aclose()

    def connection(self, of: ClusterConnection) -> ClusterConnection:
        """The same connection, through this proxy."""
        return replace(of, server=f"https://{_HOST}:{self._port}")

    # All requests

    def cut(self) -> None:
        """Reset every connection."""
        for transport in tuple(self._transports):
            if isinstance(transport, asyncio.WriteTransport):
                transport.abort()

    def part(self) -> None:
        """Block all traffic until :meth:`join`: requests wait and watches stay silent."""
        self._reachable.clear()

    def join(self) -> None:
        """Unblock the traffic."""
        self._reachable.set()

    def calm_down(self) -> None:
        """Inject no further faults, and end those in progress."""
        self.weather.severity = 0.0
        self._calm.set()
        self.join()

    # One request

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.transport is not None:
            self._transports.add(request.transport)
        try:
            return await self._answer(request)
        except (_Cut, aiohttp.ClientError, OSError):
            # A client cannot distinguish this from an API server that is down.
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPInternalServerError from None

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.read()
        watches = request.query.get("watch") == "true"
        lists = request.method == "GET" and "limit" in request.query
        fault = self.weather.fault(request.method, watches=watches, lists=lists)
        await self._reachable.wait()
        if fault in _STATUSES:
            return _status(*_STATUSES[fault])
        if fault is Fault.CUT_BEFORE:
            raise _Cut
        if fault is Fault.STALL:
            await self._until_calm(self._stall_seconds)
            raise _Cut
        if fault is Fault.DELAY:
            await self._until_calm(self.weather.seconds(_DELAY_SECONDS))
        async with self._forwarded(request, body) as answer:
            if watches and answer.status == 200:
                return await self._watch(request, answer, fault)
            content = await answer.read()
            await self._reachable.wait()
            if fault is Fault.CUT_AFTER:
                raise _Cut
            headers = {key: answer.headers[key] for key in ("Content-Type", "Retry-After") if key in answer.headers}
            if fault is Fault.CUT_WITHIN:
                await _send_half(request, answer.status, headers, content)
                raise _Cut
            return web.Response(status=answer.status, headers=headers, body=content)

    @contextlib.asynccontextmanager
    async def _forwarded(self, request: web.BaseRequest, body: bytes) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session is None:
            raise _Cut
        headers = {key: request.headers[key] for key in _FORWARDED if key in request.headers}
        url = yarl.URL(f"{self._api.server}{request.raw_path}", encoded=True)
        tls = self._tls_of(request)
        async with self._session.request(request.method, url, headers=headers, data=body or None, ssl=tls) as answer:
            yield answer

    def _tls_of(self, request: web.BaseRequest) -> ssl.SSLContext | bool:
        """The TLS context for the user that the request's client certificate names, which no proxy can forward. Without
        one, True: the session's own context.
        """
        peer = None if request.transport is None else request.transport.get_extra_info("peercert")
        names = [value for part in (peer or {}).get("subject", ()) for key, value in part if key == "commonName"]
        if not names:
            return True
        if names[0] not in self._as_user:
            self._as_user[names[0]] = _client_tls(self._authority(), names[0])
        return self._as_user[names[0]]

    def _authority(self) -> CertificateAuthority:
        return CertificateAuthority.from_pem(self._api.ca_certificate_pem, self._api.ca_key_pem)

    async def _watch(
        self, request: web.BaseRequest, answer: aiohttp.ClientResponse, fault: Fault
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        lasting = asyncio.create_task(self._stream(answer, response))
        try:
            if fault is Fault.NONE:
                await lasting
                return response
            await asyncio.wait({lasting}, timeout=self.weather.seconds(_WATCH_SECONDS))
            lasting.cancel()
            if fault is Fault.WATCH_SILENT:
                await self._until_calm(self._stall_seconds)
            elif fault is Fault.WATCH_EXPIRED:
                event = {"type": "ERROR", "object": _status_object(*_STATUSES[Fault.EXPIRED])}
                await response.write(json.dumps(event).encode() + b"\n")
                return response
            raise _Cut
        finally:
            lasting.cancel()
            await asyncio.gather(lasting, return_exceptions=True)

    async def _stream(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        while chunk := await answer.content.readany():
            await self._reachable.wait()
            await response.write(chunk)

    async def _until_calm(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._calm.wait()

    def _contexts(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        """The TLS contexts of the server and of the client side."""
        authority = self._authority()
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.verify_mode = ssl.CERT_OPTIONAL
        server.load_verify_locations(cadata=authority.certificate_pem.decode())
        with tempfile.TemporaryDirectory() as folder:
            chain = Path(folder) / "serving.pem"
            chain.write_bytes(b"\n".join(authority.issue_serving("proxy", (_HOST,))))
            server.load_cert_chain(chain)
        client = ssl.create_default_context(cadata=authority.certificate_pem.decode())
        return server, client


def _client_tls(authority: CertificateAuthority, user: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.certificate_pem.decode())
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder) / "client.pem"
        chain.write_bytes(b"\n".join(authority.issue_client(user, ())))
        context.load_cert_chain(chain)
    return context


class _Cut(Exception):
    """The connection is to be reset."""


def _status_object(code: int, reason: str) -> dict[str, Any]:
    """``metav1.Status``."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "a fault of the soak",
        "reason": reason,
        "code": code,
    }


def _status(code: int, reason: str) -> web.Response:
    headers = {"Retry-After": "1"} if code == 429 else {}
    return web.json_response(_status_object(code, reason), status=code, headers=headers)


async def _send_half(request: web.BaseRequest, status: int, headers: dict[str, str], content: bytes) -> None:
    response = web.StreamResponse(status=status, headers={**headers, "Content-Length": str(len(content))})
    await response.prepare(request)
    await response.write(content[: len(content) // 2])


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=_MAXIMUM_BODY_BYTES)
