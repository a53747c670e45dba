"""TLS servers on 127.0.0.1, each in threads of its own, that do with a connection what a test says."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from attestors.net.dial import ConnectedSocket
from authenticator.model.cluster import Cluster
from signer.testing.api.authorities import Issuer, server_context

ADDRESS: Final = "127.0.0.1"
_GIVE_UP_SECONDS: Final = 20.0
_MAXIMUM_REQUEST_BYTES: Final = 1024 * 1024


@dataclass
class Connection:
    """One client, behind the handshake."""

    socket: socket.socket
    ended: threading.Event
    requests: list[bytes]

    def read(self) -> bytes:
        """One whole request: head and body."""
        data = b""
        while b"\r\n\r\n" not in data and len(data) < _MAXIMUM_REQUEST_BYTES:
            data += self._more()
        head, _, body = data.partition(b"\r\n\r\n")
        lengths = [line[15:] for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
        while len(body) < int(lengths[0] if lengths else 0):
            body += self._more()
        request = head + b"\r\n\r\n" + body
        self.requests.append(request)
        return request

    def _more(self) -> bytes:
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("the client has gone")
        return data

    def send(self, data: bytes) -> None:
        """Send it."""
        self.socket.sendall(data)

    def answer(self, status: int, body: object = None, headers: Mapping[str, str] | None = None) -> None:
        """Answer with JSON, or with these very bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        lines = [f"HTTP/1.1 {status} Some Reason", f"Content-Length: {len(content)}", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + content)

    def chunks(self, *parts: bytes) -> None:
        """Answer 200 with these chunks; the last one is not said to be the last."""
        self.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for part in parts:
            self.send(b"%x\r\n%b\r\n" % (len(part), part))

    def pour(self, data: bytes, *, pause: float = 0.0) -> None:
        """Send it over and over, until the client has gone or the test is over."""
        while not self.ended.wait(pause):
            self.send(data)

    def stay(self) -> None:
        """Say nothing more, and keep the connection."""
        self.ended.wait(_GIVE_UP_SECONDS)


Behaviour = Callable[[Connection], None]


def answers(status: int, body: object = None, headers: Mapping[str, str] | None = None) -> Behaviour:
    """Reads the request, and answers so."""

    def behave(connection: Connection) -> None:
        connection.read()
        connection.answer(status, body, headers)

    return behave


@dataclass
class Server:
    """A server that is running."""

    port: int
    authority: str
    """Its CA, PEM."""
    requests: list[bytes] = field(default_factory=list)
    """What it could read."""
    peers: list[bytes | None] = field(default_factory=list)
    """The client certificates that were presented, DER."""

    def cluster(self, **changes: Any) -> Cluster:
        """As a kubeconfig would name it."""
        values = {"server": f"https://{ADDRESS}:{self.port}", "certificate_authority": self.authority, **changes}
        return Cluster(**values)


@contextlib.contextmanager
def serving(
    behaviour: Behaviour,
    *,
    tls: bool = True,
    names: Sequence[str] = ("localhost",),
    addresses: Sequence[str] = (ADDRESS,),
    issuer: Issuer | None = None,
) -> Iterator[Server]:
    """Serve like that; without ``tls``, ``behaviour`` gets the connection as it is."""
    issuer = issuer or Issuer.new()
    authority = issuer.certificate_pem
    context = server_context(*issuer.serving(names, addresses), authority) if tls else None
    if context is not None:
        context.sslsocket_class = ConnectedSocket
    ended = threading.Event()
    threads: list[threading.Thread] = []
    with socket.create_server((ADDRESS, 0)) as listener:
        server = Server(listener.getsockname()[1], authority.decode("ascii"))

        def converse(plain: socket.socket) -> None:
            with plain, contextlib.suppress(OSError):
                plain.settimeout(_GIVE_UP_SECONDS)
                if context is None:
                    behaviour(Connection(plain, ended, server.requests))
                    return
                with context.wrap_socket(plain, server_side=True) as secured:
                    server.peers.append(secured.getpeercert(binary_form=True))
                    behaviour(Connection(secured, ended, server.requests))

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    thread = threading.Thread(target=converse, args=(plain,), daemon=True)
                    threads.append(thread)
                    thread.start()

        accepting = threading.Thread(target=accept, daemon=True)
        accepting.start()
        try:
            yield server
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)
            for thread in (accepting, *threads):
                thread.join(_GIVE_UP_SECONDS)


def closed_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server((ADDRESS, 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


def reset(connection: Connection) -> None:
    """Break the connection without a goodbye."""
    plain = connection.socket
    if isinstance(plain, ssl.SSLSocket):
        # An abortive close: the peer gets a reset instead of an end of the stream.
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    plain.close()
