"""TLS over a connection that the other side may reset at any moment: also before the handshake."""

from __future__ import annotations

import errno
import os
import ssl
from typing import Any


class ConnectedSocket(ssl.SSLSocket):
    """What ``wrap_socket`` makes of a connection where it is the context's ``sslsocket_class``.

    ``wrap_socket`` takes the plain socket's descriptor, and then asks for the peer. Where the other side has reset the
    connection by then, it would leave the descriptor open when it fails, or hand out a socket without TLS (``ssl``
    takes such a one for a socket that is not connected yet).
    """

    def getpeername(self) -> Any:
        """As in ``socket``; a connection that the other side has reset is closed.

        Raises:
            ConnectionResetError: there is no peer any more.
        """
        try:
            return super().getpeername()
        except OSError as error:
            self.close()
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from error
