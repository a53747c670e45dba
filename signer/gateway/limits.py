"""How much of the gateway one address and one connection may take."""

from __future__ import annotations

import ipaddress
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds for clients, which may be hostile."""

    connections: int = 1024
    connections_per_address: int = 64
    channels_per_connection: int = 16
    """Open ones, also those that have asked for nothing yet."""
    signals_per_minute: int = 10
    """Of one connection. Each one runs a command in its containers."""
    login_seconds: float = 20.0
    attempts_per_login: int = 64
    """Keys that a client offers, signatures, and changes of the user name. sshd takes 6; agents hold more keys."""
    keepalive_seconds: float = 30.0


def counted_address(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """What counts as one address: of IPv6, the /64, of which one machine may use every address (RFC 4291)."""
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((address, 64), strict=False))


class TooMany(Exception):
    """A bound is reached."""


@dataclass(slots=True)
class Connections:
    """The open connections, by address."""

    limits: Limits
    _open: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """How many are open."""
        return self._open.total()

    def opened(self, address: str) -> None:
        """One more.

        Raises:
            TooMany: from this address, or at all.
        """
        if self.count >= self.limits.connections:
            raise TooMany("the gateway has as many connections as it takes")
        if self._open[address] >= self.limits.connections_per_address:
            raise TooMany("your address has as many connections as it may have")
        self._open[address] += 1

    def closed(self, address: str) -> None:
        """One less."""
        self._open[address] -= 1
        if self._open[address] <= 0:
            del self._open[address]


__all__ = ["Connections", "Limits", "TooMany", "counted_address"]
