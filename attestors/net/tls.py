"""TLS over a connection that the peer may reset at any moment, even before the handshake."""

from __future__ import annotations

import errno
import os
import ssl
from typing import Any


class ConnectedSocket(ssl.SSLSocket):
    """The ``sslsocket_class`` of an SSL context, so that ``wrap_socket`` returns it.

    ``wrap_socket`` takes the plain socket's descriptor and then asks for the peer's name. If the peer has reset the
    connection by then, plain ``ssl`` leaks the descriptor on failure, or returns a socket without TLS because it
    takes the socket for one that is not connected yet.
    """

    def getpeername(self) -> Any:
        """Override of ``socket``: closes the socket if the peer has reset the connection.

        Raises:
            ConnectionResetError: the peer is gone.
        """
        try:
            return super().getpeername()
        except OSError as error:
            self.close()
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from error
