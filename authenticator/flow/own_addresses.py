"""The node's own name and addresses, for a serving certificate."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from attestors.contract import IPAddress
from authenticator.configuration import Serving
from authenticator.flow.clock import Clock

MOVED_AFTER_SECONDS: Final = 600.0
"""After IPv4 has been missing for this long while IPv6 was present, the node has moved to IPv6."""
_REMOTE_ADDRESSES: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
"""Documentation addresses (RFC 5737, RFC 3849): the default route leads there, and nothing is sent."""
_DISCARD_PORT: Final = 9
_ADDRESS_PREFERENCES: Final = 72
"""IPV6_ADDR_PREFERENCES of Linux, which Python does not define (RFC 5014)."""
_PREFER_PUBLIC: Final = 2
"""IPV6_PREFER_SRC_PUBLIC: excludes temporary privacy addresses (RFC 8981)."""
_RESERVED_PREFIX: Final = "kubernetes"
"""The controller signs no name with this prefix; such a node serves by its addresses."""


def serving_names(
    serving: Serving, node_name: str, find_addresses: Callable[[], tuple[IPAddress, ...]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """DNS names and IP addresses to request: the configured ones, else the node's name and the found addresses."""
    addresses = serving.ip_addresses or find_addresses()
    names = serving.dns_names or (() if node_name.startswith(_RESERVED_PREFIX) and addresses else (node_name,))
    return names, tuple(str(address) for address in addresses)


@dataclass
class LastingAddresses:
    """The node's own addresses, without short losses of a route: at boot, or while DHCP renews a lease.

    Only a long-running process keeps this state.
    """

    clock: Clock
    _away_since: float | None = None

    def now(self, stored: tuple[IPAddress, ...], *, due: bool) -> tuple[IPAddress, ...]:
        """:func:`own_addresses`, or those of the stored certificate while their family is briefly missing.

        A late or returning IPv4 address counts at once. So does IPv6 with ``due``, when the certificate must be
        replaced anyway: a node that moved gets there even if no process remembers since when.
        """
        found = own_addresses()
        if not found:
            return stored
        if due or not any(address.version < found[0].version for address in stored):
            self._away_since = None
            return found
        if self._away_since is None:
            self._away_since = self.clock.monotonic()
        return stored if self.clock.monotonic() - self._away_since < MOVED_AFTER_SECONDS else found


def own_addresses() -> tuple[IPAddress, ...]:
    """The source address of this node's default route, of IPv4 or else of IPv6; empty without any.

    This is how the kubelet finds its own address: one family, not every address of every interface. Addresses of
    bridges and containers, and temporary IPv6 addresses, are not the Machine's, and the controller denies a request
    that names one. Dual-stack nodes need configured addresses.
    """
    for family, destination in _REMOTE_ADDRESSES:
        with contextlib.suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            if family == socket.AF_INET6:
                with contextlib.suppress(OSError):
                    probe.setsockopt(socket.IPPROTO_IPV6, _ADDRESS_PREFERENCES, _PREFER_PUBLIC)
            probe.connect((destination, _DISCARD_PORT))
            address = ip_address(probe.getsockname()[0])
            if not (address.is_loopback or address.is_link_local or address.is_unspecified):
                return (address,)
    return ()
