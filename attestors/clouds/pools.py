"""urllib3's pools, with connections that try the next address of a host beside one that is silent.

urllib3 gives each address the whole time to connect, as :mod:`socket` does. This module needs it; import it inside what
needs it.
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
"""For connecting, where nobody has said anything."""


class _Dialled(_Connection):
    """Mixed into a connection of urllib3's."""

    def _new_conn(self) -> socket.socket:
        """As in urllib3, which calls it for every connection, also for one to a proxy."""
        seconds = self.timeout if isinstance(self.timeout, (int, float)) else _SECONDS
        try:
            opened = dial(self._dns_host, self.port, seconds)
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no address of {self.host} answers within {seconds:g} s") from error
        except (OSError, UnicodeError) as error:
            raise NewConnectionError(self, f"{self.host} cannot be connected to: {error}") from error
        for option in self.socket_options or ():
            opened.setsockopt(*option)
        return opened


def dialled(pool: type[HTTPConnectionPool]) -> type[HTTPConnectionPool]:
    """Such a pool, with such connections as it has otherwise."""
    connection = type(f"Dialled{pool.ConnectionCls.__name__}", (_Dialled, cast("Any", pool.ConnectionCls)), {})
    return type(f"Dialled{pool.__name__}", (pool,), {"ConnectionCls": connection})


POOLS: Final = {"http": dialled(HTTPConnectionPool), "https": dialled(HTTPSConnectionPool)}
"""By scheme, as ``pool_classes_by_scheme`` of urllib3's pool managers."""
