"""An ssh-agent with one FIDO key, whose token is software (draft-miller-ssh-agent, PROTOCOL.u2f).

OpenSSH's own stand-in, ``sk-dummy``, would have to be compiled from its sources. sshd cannot tell the difference: it
sees a signature with flags and counter.
"""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from attestors.wire.ssh.encoding import Reader, string, strings, uint32
from attestors.wire.ssh.signatures import Signature
from tests.support.closing import ClosedAtTheEnd

_FAILURE: Final = 5
_REQUEST_IDENTITIES: Final = 11
_IDENTITIES_ANSWER: Final = 12
_SIGN_REQUEST: Final = 13
_SIGN_RESPONSE: Final = 14
_MAXIMUM_BYTES: Final = 256 * 1024


class SoftwareToken(ClosedAtTheEnd):
    """Listens on a Unix socket, and signs with that key when asked to."""

    def __init__(self, socket: Path, identity: bytes, touch: Callable[[bytes], Signature]) -> None:
        """``identity`` is the blob of a key or a certificate; ``touch`` signs."""

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                while len(length := self.rfile.read(4)) == 4:
                    request = self.rfile.read(int.from_bytes(length, "big"))
                    self.wfile.write(string(_answer(request, identity, touch)))

        self.socket = socket
        self._server = socketserver.ThreadingUnixStreamServer(str(socket), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _answer(request: bytes, identity: bytes, touch: Callable[[bytes], Signature]) -> bytes:
    reader = Reader(request)
    kind = reader.uint8("the kind of request")
    if kind == _REQUEST_IDENTITIES:
        return bytes([_IDENTITIES_ANSWER]) + uint32(1) + strings((identity, b"token"))
    if kind == _SIGN_REQUEST and reader.string("the key", maximum=_MAXIMUM_BYTES) == identity:
        data = reader.string("the data", maximum=_MAXIMUM_BYTES)
        return bytes([_SIGN_RESPONSE]) + string(touch(data).blob)
    return bytes([_FAILURE])
