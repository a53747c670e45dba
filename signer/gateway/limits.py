"""How much of the gateway one address and one connection may take."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds for clients, which may be hostile."""

    connections: int = 1024
    connections_per_address: int = 64
    channels_per_connection: int = 16
    """Open ones, also those that have asked for nothing yet."""
    requests_per_channel: int = 256
    """For what is not data: environment, terminal, its sizes, signals, in a row before data or a minute."""
    signals_per_minute: int = 10
    """Of one connection. Each one runs a command in its containers."""
    login_seconds: float = 20.0
    keys_per_login: int = 32
    """That a client may offer. sshd takes 6; agents of people hold more."""
    keepalive_seconds: float = 30.0


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


__all__ = ["Connections", "Limits", "TooMany"]
