"""How much of the gateway one address and one connection may take."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import SystemRandom


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds for clients, which may be hostile."""

    connections: int = 1024
    """That are logged in."""
    connections_per_address: int = 64
    """That are logged in."""
    logins_per_address: int = 32
    """Connections that are not logged in, as sshd's ``PerSourceMaxStartups``."""
    drop_from: int = 256
    """With so many connections that are not logged in, some further ones are dropped: sshd's ``MaxStartups``."""
    drop_rate: float = 0.3
    """Of further connections, at ``drop_from``. It grows to 1 at ``logins``."""
    logins: int = 512
    """Connections that are not logged in."""
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


def drop_probability(waiting: int, limits: Limits) -> float:
    """How probably a further connection is dropped while so many are not logged in: random early drop, as in sshd
    (``should_drop_connection`` of ``sshd.c``). Whoever tries again comes in, however many connections one party opens.
    """
    if waiting < limits.drop_from:
        return 0.0
    if waiting >= limits.logins:
        return 1.0
    span = limits.logins - limits.drop_from
    return limits.drop_rate + (1.0 - limits.drop_rate) * (waiting - limits.drop_from) / span


class TooMany(Exception):
    """A bound is reached. The message names no client."""


@dataclass(slots=True)
class Connections:
    """The open connections, by address: those before the login apart from those that are logged in, so that a flood of
    clients without a key takes no place from people.
    """

    limits: Limits
    random: Callable[[], float] = field(default=SystemRandom().random)
    """From 0 up to 1."""
    _waiting: Counter[str] = field(default_factory=Counter)
    _logged_in: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        """How many are open."""
        return self._waiting.total() + self._logged_in.total()

    def opened(self, address: str) -> Place:
        """One more, which is not logged in.

        Raises:
            TooMany: from this address, or at all.
        """
        if self._waiting[address] >= self.limits.logins_per_address:
            raise TooMany("your address has as many connections without a login as it may have")
        if self.random() < drop_probability(self._waiting.total(), self.limits):
            raise TooMany("the gateway has many connections without a login; try again")
        self._waiting[address] += 1
        return Place(self, address)

    def _log_in(self, address: str) -> None:
        if self._logged_in.total() >= self.limits.connections:
            raise TooMany("the gateway has as many connections as it takes; try again later")
        if self._logged_in[address] >= self.limits.connections_per_address:
            raise TooMany("your address has as many connections as it may have; close some of them")
        _less(self._waiting, address)
        self._logged_in[address] += 1

    def _close(self, address: str, *, is_logged_in: bool) -> None:
        _less(self._logged_in if is_logged_in else self._waiting, address)


@dataclass(slots=True)
class Place:
    """That of one open connection."""

    _connections: Connections
    _address: str
    _is_logged_in: bool = False

    def logged_in(self) -> None:
        """Its client has proven a key that a grant names.

        Raises:
            TooMany: from this address, or at all. The connection stays one that is not logged in.
        """
        self._connections._log_in(self._address)
        self._is_logged_in = True

    def closed(self) -> None:
        """The connection is closed. To be called once."""
        self._connections._close(self._address, is_logged_in=self._is_logged_in)


def _less(counter: Counter[str], address: str) -> None:
    counter[address] -= 1
    if counter[address] <= 0:
        del counter[address]


__all__ = ["Connections", "Limits", "Place", "TooMany", "counted_address", "drop_probability"]
