"""A TLS server that presents a chain and answers one HTTP request for each connection."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["ChainServer"]

_TIMEOUT: Final = 10.0
_BODY: Final = b'{"major":"1","minor":"37","gitVersion":"v1.37.0"}'
_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(_BODY)
) + _BODY


class ChainServer:
    """Listens on a port of 127.0.0.1 while it is entered."""

    def __init__(self, folder: Path, chain: bytes, key: bytes) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificates, private_key = folder / "server.pem", folder / "server.key"
        certificates.write_bytes(chain)
        private_key.write_bytes(key)
        self._context.load_cert_chain(certificates, private_key)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, name="chain server")

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # wakes the thread; on some systems the listener is not connected
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            connection.settimeout(_TIMEOUT)
            with (
                contextlib.suppress(OSError),  # also ssl.SSLError: the client refused the chain
                connection,
                self._context.wrap_socket(connection, server_side=True) as tls,
            ):
                if tls.recv(4096):
                    tls.sendall(_ANSWER)
