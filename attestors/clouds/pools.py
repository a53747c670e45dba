"""urllib3 connection pools whose connections race the addresses of a host.

urllib3 spends the whole timeout on each address, like :mod:`socket`. This module needs urllib3; import it only where it
is used.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final, cast

from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NewConnectionError

from attestors.net.dial import dial

if TYPE_CHECKING:
    from urllib3.connection import HTTPConnection as _Connection
else:
    _Connection = object

_SECONDS: Final = 10.0
"""Connect timeout if none is set."""


class _Dialled(_Connection):
    """Mixin for a urllib3 connection."""

    def _new_conn(self) -> socket.socket:
        """Override of urllib3, which calls it for every connection, including one to a proxy."""
        seconds = self.timeout if isinstance(self.timeout, (int, float)) else _SECONDS
        try:
            opened = dial(self._dns_host, self.port, seconds)
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no address of {self.host} answers within {seconds:g} s") from error
        except (OSError, UnicodeError) as error:
            raise NewConnectionError(self, f"no connection to {self.host}: {error}") from error
        for option in self.socket_options or ():
            opened.setsockopt(*option)
        return opened


def dialled(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """The pool class with connections that race addresses."""
    connection = type(f"Dialled{pool.ConnectionCls.__name__}", (_Dialled, cast("Any", pool.ConnectionCls)), {})
    return type(f"Dialled{pool.__name__}", (pool,), {"ConnectionCls": connection})


POOLS: Final = {"http": dialled(HTTPConnectionPool), "https": dialled(HTTPSConnectionPool)}
"""By scheme, as in ``pool_classes_by_scheme`` of urllib3's pool managers."""
