"""URLs that may be called: secrets travel over TLS, or stay on this machine."""

from __future__ import annotations

import enum
import ipaddress
import urllib.parse
from dataclasses import dataclass, field
from typing import Final

_METADATA_HOSTS: Final = frozenset({"metadata.google.internal", "169.254.169.254", "fd20:ce::254"})
"""Google's metadata server, by name and by its link-local addresses; it answers plain HTTP only."""
_MAXIMUM_CHARACTERS: Final = 2048


class InvalidURL(ValueError):
    """The URL may not be called; the message says why."""


class PlainHosts(enum.Enum):
    """Hosts for which HTTP without TLS is allowed."""

    LOOPBACK = "loopback"
    LOOPBACK_AND_METADATA = "loopback, and the metadata server"
    ANYWHERE = "anywhere"
    """For a proxy's own address: the traffic through it has its own TLS."""


def check_url(url: str, plain_hosts: PlainHosts = PlainHosts.LOOPBACK) -> str:
    """Return ``url`` if it is ``https``, or ``http`` to an address of this machine (or as ``plain_hosts`` allows).

    Raises:
        InvalidURL: anything else, or a URL with user name, password, fragment, blanks or control characters.
    """
    if len(url) > _MAXIMUM_CHARACTERS or not url.isascii() or not url.isprintable() or set(url) & set(" \\"):
        raise InvalidURL("a URL is printable ASCII without blanks")
    try:
        parts = urllib.parse.urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise InvalidURL("not a URL") from None
    if not host or "@" in parts.netloc or "#" in url:
        raise InvalidURL("a URL has a host, no user name or password, and no fragment")
    if parts.scheme == "https" or (parts.scheme == "http" and _is_plain_allowed(host, plain_hosts)):
        return url
    raise InvalidURL("must begin with https://; plain http:// only to an address of this machine, such as 127.0.0.1")


def _is_plain_allowed(host: str, plain_hosts: PlainHosts) -> bool:
    if plain_hosts is PlainHosts.ANYWHERE:
        return True
    if plain_hosts is PlainHosts.LOOPBACK_AND_METADATA and host in _METADATA_HOSTS:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a name, even localhost: its addresses are unknown here


@dataclass(frozen=True, slots=True)
class Proxy:
    """The proxy for cloud calls; an empty URL for none. The URL may hold a password."""

    url: str = field(default="", repr=False)


NO_PROXY: Final = Proxy()
