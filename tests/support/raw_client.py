"""A small synchronous JSON client for Kubernetes APIs, independent of the client under test.

It uses only ``http.client``, adds nothing to requests and hides nothing of responses, so that the conformance tests
compare the actual behaviour of servers.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from attestors.net.dial import ConnectedSocket
from signer.kube.connection import ClusterConnection
from tests.support.closing import ClosedAtTheEnd

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"

_TIMEOUT_SECONDS: Final = 30.0


class UnexpectedAnswer(AssertionError):
    """The server responded with an unexpected status code."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One response of an API server."""

    method: str
    path: str
    status: int
    text: str
    content_type: str
    location: str | None

    @property
    def body(self) -> Any:
        """The decoded JSON body. Raises ``json.JSONDecodeError`` if it is not JSON."""
        return json.loads(self.text)

    @property
    def reason(self) -> str:
        """``reason`` of a ``Status`` body; empty if it has none."""
        return str(self.body.get("reason", ""))

    @property
    def message(self) -> str:
        """``message`` of a ``Status`` body; empty if it has none."""
        return str(self.body.get("message", ""))

    def expect(self, *statuses: int) -> Any:
        """The decoded body. Raises ``UnexpectedAnswer`` if the status code is not among ``statuses``."""
        if self.status not in statuses:
            raise UnexpectedAnswer(f"{self.method} {self.path}: {self.status}, expected {statuses}: {self.text[:2000]}")
        return self.body


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch."""

    type: str
    object: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.object["metadata"]["name"])


class WatchEnded(Exception):
    """The server ended the stream of a watch."""


class Watch(ClosedAtTheEnd):
    """An open watch. A thread reads it, so that a test can wait for events with a timeout."""

    def __init__(self, connection: http.client.HTTPSConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._socket = connection.sock
        self._socket.settimeout(None)  # a stream without events for a long time has not ended
        self._response = response
        self._events: queue.Queue[WatchEvent | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        # ``close`` closes the socket under the reader; any error of the stream ends the watch.
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException, AttributeError):
            while line := self._response.readline():
                document = json.loads(line)
                self._events.put(WatchEvent(document["type"], document["object"]))
        self._events.put(None)

    def next(self, timeout: float = _TIMEOUT_SECONDS) -> WatchEvent:
        """The next event; ``WatchEnded`` at the end of the stream, ``TimeoutError`` after ``timeout`` seconds."""
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError(f"no watch event within {timeout} s") from None
        if event is None:
            self._events.put(None)
            raise WatchEnded
        return event

    def take(self, count: int) -> list[WatchEvent]:
        """The next ``count`` events other than bookmarks."""
        taken: list[WatchEvent] = []
        while len(taken) < count:
            event = self.next()
            if event.type != "BOOKMARK":
                taken.append(event)
        return taken

    def rest(self) -> list[WatchEvent]:
        """All events until the server ends the stream."""
        events: list[WatchEvent] = []
        while True:
            try:
                events.append(self.next())
            except WatchEnded:
                return events

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(_TIMEOUT_SECONDS)
        self._response.close()
        self._connection.close()


class RawClient(ClosedAtTheEnd):
    """A client with one persistent connection to an API server, as one user."""

    def __init__(self, connection: ClusterConnection, *, headers: Mapping[str, str] | None = None) -> None:
        address = urlsplit(connection.server)
        if address.hostname is None or address.port is None:
            raise ValueError("the server of a connection must be https://host:port")
        self.connection = connection
        self._host = address.hostname
        self._port = address.port
        self._context = _tls_context(connection)
        self._headers = dict(headers or {})
        if connection.bearer_token is not None:
            self._headers["Authorization"] = f"Bearer {connection.bearer_token}"
        self._http: http.client.HTTPSConnection | None = None

    def with_headers(self, headers: Mapping[str, str]) -> RawClient:
        """Another client for the same server and user, with these additional headers."""
        return RawClient(self.connection, headers=headers)

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        content_type: str = JSON,
    ) -> Answer:
        """Send one request. ``body`` is sent as JSON, or unchanged if it is bytes."""
        target = f"{path}?{urlencode(query)}" if query else path
        payload = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        sent = {"Accept": JSON, **self._headers, **(headers or {})}
        if payload is not None:
            sent["Content-Type"] = content_type
        for fresh in (False, True):
            if self._http is None or fresh:
                self.close()
                self._http = self._open()
            try:
                self._http.request(method, target, body=payload, headers=sent)
                response = self._http.getresponse()
                break
            except (http.client.RemoteDisconnected, BrokenPipeError, ConnectionResetError, ssl.SSLEOFError):
                # The server may have closed a persistent connection; an error on a new one is final.
                self.close()
                if fresh:
                    raise
        else:  # pragma: no cover - the loop ends by break or raise
            raise AssertionError
        text = response.read().decode()
        content = response.headers.get("Content-Type", "")
        return Answer(method, target, response.status, text, content, response.headers.get("Location"))

    def get(self, path: str, **query: str) -> Answer:
        return self.request("GET", path, query=query)

    def post(self, path: str, body: object, **query: str) -> Answer:
        return self.request("POST", path, body, query=query)

    def put(self, path: str, body: object, **query: str) -> Answer:
        return self.request("PUT", path, body, query=query)

    def patch(self, path: str, body: object, content_type: str = MERGE_PATCH, **query: str) -> Answer:
        return self.request("PATCH", path, body, query=query, content_type=content_type)

    def delete(self, path: str, body: object = None, **query: str) -> Answer:
        return self.request("DELETE", path, body, query=query)

    def watch(self, path: str, **query: str) -> Watch:
        """Open a watch. Raises ``UnexpectedAnswer`` if the server refuses it."""
        opened = self.try_watch(path, **query)
        if isinstance(opened, Answer):
            raise UnexpectedAnswer(f"watch {path}: {opened.status}: {opened.text[:2000]}")
        return opened

    def try_watch(self, path: str, **query: str) -> Watch | Answer:
        """Open a watch; returns the response if the server refuses it."""
        target = f"{path}?{urlencode({'watch': '1', **query})}"
        connection = self._open()
        connection.request("GET", target, headers={"Accept": JSON, **self._headers})
        response = connection.getresponse()
        if response.status == http.client.OK:
            return Watch(connection, response)
        text = response.read().decode()
        connection.close()
        return Answer("GET", target, response.status, text, response.headers.get("Content-Type", ""), None)

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def _open(self) -> http.client.HTTPSConnection:
        name = self.connection.tls_server_name or self._host
        connection = _NamedHTTPSConnection(self._host, self._port, name, self._context)
        connection.connect()
        return connection


class _NamedHTTPSConnection(http.client.HTTPSConnection):
    """HTTPS with a given server name, and without Nagle's delay between header and body."""

    def __init__(self, host: str, port: int, server_name: str, context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=_TIMEOUT_SECONDS, context=context)
        self._server_name = server_name
        self._tls = context

    def connect(self) -> None:
        plain = socket.create_connection((self.host, self.port), self.timeout)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self.sock = self._tls.wrap_socket(plain, server_hostname=self._server_name)
        except BaseException:
            plain.close()
            raise


def _tls_context(connection: ClusterConnection) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=connection.certificate_authority.decode())
    context.sslsocket_class = ConnectedSocket
    if connection.client_certificate is not None and connection.client_key is not None:
        with _private_file(connection.client_certificate + b"\n" + connection.client_key) as path:
            context.load_cert_chain(path)
    return context


@contextlib.contextmanager
def _private_file(content: bytes) -> Iterator[Path]:
    """A temporary file, because the standard library reads client keys only from files."""
    descriptor, name = tempfile.mkstemp()
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        yield Path(name)
    finally:
        Path(name).unlink()
