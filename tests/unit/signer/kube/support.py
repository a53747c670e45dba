"""A certificate authority, API servers with scripted misbehavior, and an event loop with virtual time."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import datetime
import ipaddress
import json
import selectors
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import yaml
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from signer.kube.connection import ClusterConnection

Result = TypeVar("Result")
_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    certificate: bytes
    key: bytes


class Authority:
    """A CA that issues server and client certificates."""

    def __init__(self, name: str = "test CA") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        builder = builder.serial_number(x509.random_serial_number())
        return builder.not_valid_before(now - _DAY).not_valid_after(now + _DAY)

    def issue(self, common_name: str, *names: str, password: bytes | None = None) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]), key.public_key())
        if names:
            alternatives = [_general_name(name) for name in names]
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        encryption: KeySerializationEncryption = NoEncryption()
        if password is not None:
            encryption = BestAvailableEncryption(password)
        return Pair(
            builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM),
            key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption),
        )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def server_context(pair: Pair, client_authority: bytes | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as file:
        file.write(pair.certificate + pair.key)
        file.flush()
        context.load_cert_chain(file.name)
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_authority.decode())
    return context


@dataclass
class Server:
    """The address of a test server, and the requests that it received."""

    port: int
    authority: bytes
    requests: list[str] = field(default_factory=list)
    """``METHOD target`` of each request."""

    @property
    def connection(self) -> ClusterConnection:
        return ClusterConnection(server=f"https://127.0.0.1:{self.port}", certificate_authority=self.authority)


@contextlib.asynccontextmanager
async def aiohttp_server(
    authority: Authority,
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    *,
    context: ssl.SSLContext,
) -> AsyncIterator[Server]:
    """An aiohttp server over TLS on loopback that hands every request to ``handler``."""
    server = Server(port=0, authority=authority.certificate)

    async def recording(request: web.Request) -> web.StreamResponse:
        server.requests.append(f"{request.method} {request.raw_path}")
        return await handler(request)

    runner = web.AppRunner(_application(recording), access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()


def _application(handler: Callable[[web.Request], Awaitable[web.StreamResponse]]) -> web.Application:
    application = web.Application(client_max_size=16 * 1024 * 1024)
    application.router.add_route("*", "/{path:.*}", handler)
    return application


Script = Callable[[str, asyncio.StreamWriter], Awaitable[None]]


@contextlib.asynccontextmanager
async def raw_server(authority: Authority, script: Script, *, context: ssl.SSLContext) -> AsyncIterator[Server]:
    """A TLS server that reads each request and lets ``script(request line, writer)`` write whatever bytes it likes.

    The connection is closed when the script returns.
    """
    server = Server(port=0, authority=authority.certificate)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                line = head.split(" HTTP/", 1)[0]
                server.requests.append(line)
                await script(line, writer)
                await writer.drain()
            finally:
                writer.transport.abort() if writer.transport.is_closing() else writer.close()

    listener = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


def http_answer(body: bytes, *, status: str = "200 OK", headers: str = "Content-Type: application/json\r\n") -> bytes:
    return f"HTTP/1.1 {status}\r\n{headers}Content-Length: {len(body)}\r\n\r\n".encode() + body


def status_body(code: int, reason: str, message: str = "because", **details: Any) -> bytes:
    """A Kubernetes Status."""
    return json.dumps(
        {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
        | {"message": message, "details": details}
    ).encode()


# Kubeconfigs


def kubeconfig_document(authority: Authority, client: Pair, name: str = "c1") -> dict[str, Any]:
    """A kubeconfig as Cluster API writes it."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "preferences": {},
        "current-context": f"{name}-admin@{name}",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "certificate-authority-data": base64.b64encode(authority.certificate).decode(),
                    "server": "https://c1.example:6443",
                },
            }
        ],
        "contexts": [{"name": f"{name}-admin@{name}", "context": {"cluster": name, "user": f"{name}-admin"}}],
        "users": [
            {
                "name": f"{name}-admin",
                "user": {
                    "client-certificate-data": base64.b64encode(client.certificate).decode(),
                    "client-key-data": base64.b64encode(client.key).decode(),
                },
            }
        ],
    }


def as_yaml(document: Any) -> bytes:
    return yaml.safe_dump(document).encode()


# Time


class _VirtualSelector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready: list[tuple[selectors.SelectorKey, int]] = super().select(0)
        if not ready:
            if timeout is None:
                raise RuntimeError("deadlock: nothing is scheduled")
            self.now += timeout
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer as soon as nothing else is to do."""

    def __init__(self) -> None:
        self._virtual = _VirtualSelector()
        super().__init__(self._virtual)

    def time(self) -> float:
        return self._virtual.now


def run_in_virtual_time(main: Coroutine[Any, Any, Result]) -> Result:
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(main)
