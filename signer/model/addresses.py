"""The one parser of the addresses that infrastructure providers write into a Machine's ``status.addresses``.

Cluster API's schema allows any text there, and providers write more forms than an address or a host name: with a prefix
length (Cluster API's Hetzner provider, issue 2137), in brackets, with a port, with spaces, or several in one text. The
parser accepts every form that has exactly one reading. A text without one is an :class:`UnreadableAddress`: it gives a
Machine no name, and :mod:`signer.model.possible_addresses` has the readings by which it may belong to that Machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv6Address, IPv6Interface, IPv6Network, ip_address, ip_interface
from typing import Final, TypeAlias

from attestors.contract import IPAddress

ADDRESS_TYPES: Final = ("InternalIP", "InternalDNS", "ExternalIP", "ExternalDNS", "Hostname")
"""Cluster API's (``MachineAddressType``), in the order in which they are tried. The port of nodes belongs into the
private network alone."""
MAXIMUM_ADDRESS_CHARACTERS: Final = 512
"""Cluster API's schema allows 256 (v1beta2), or any number (v1beta1)."""
MAXIMUM_NAME_CHARACTERS: Final = 253
"""Of a DNS-1123 subdomain (Kubernetes ``apimachinery/pkg/util/validation``)."""

EMPTY: Final = "is empty"
TOO_LONG: Final = f"is longer than {MAXIMUM_ADDRESS_CHARACTERS} characters"
CHARACTERS: Final = "has a character that no IP address and no host name has"
LEADING_ZEROS: Final = "has leading zeros, which some programs read as octal and others as decimal"
NUMBERS: Final = "consists of numbers and is not an IP address"
RANGE: Final = "is a range, and not one address"
NETWORK: Final = "is a network, and not one address"
PREFIX: Final = "has an invalid prefix length"
PORT: Final = "has an invalid port"
BRACKETS: Final = "has brackets that do not enclose an IP address"
NEITHER: Final = "is neither an IP address nor a host name"

_IP_TYPES: Final = frozenset({"InternalIP", "ExternalIP"})
"""Cluster API's types of IP addresses (``MachineAddressType``)."""
_IPV4_IN_IPV6: Final = (IPv6Network("::ffff:0:0/96"), IPv6Network("::/96"))
"""IPv4-mapped and the deprecated IPv4-compatible addresses (RFC 4291 section 2.5.5): other spellings of IPv4."""

_LABEL: Final = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_PLAIN_NAME: Final = re.compile(rf"(?=[a-z]){_SUBDOMAIN.pattern}")
"""A host name that is no number in any reading, since it begins with a letter, and no IPv6 address, without a colon."""
_ADDRESS_CHARACTERS: Final = re.compile(r"[0-9a-f.:]+")
_PRINTABLE: Final = re.compile(r"[!-~]*")
NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
"""A label that resolvers read as a number (WHATWG URL, "ends in a number"; ``inet_aton``)."""
_NUMBERS: Final = re.compile(rf"(?:{NUMBER.pattern})(?:\.(?:{NUMBER.pattern}))*")
_PORT: Final = re.compile(r"[0-9]{1,5}")
_PREFIX: Final = re.compile(r"[0-9]{1,3}|[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
_IPV4_RANGE: Final = re.compile(r"[0-9]+(?:\.[0-9]+)+-[0-9.]*[0-9]")
_MAXIMUM_PORT: Final = 65535


# Of these, 100,000 Machines hold some each. So they hold texts: usually the very object that the provider's text is.


@dataclass(frozen=True, slots=True)
class Address:
    """An IP address, in canonical form: without zone, and an IPv4 address in IPv6 as IPv4."""

    text: str


@dataclass(frozen=True, slots=True)
class HostName:
    """A DNS-1123 subdomain, in lower case and without a root dot."""

    text: str


@dataclass(frozen=True, slots=True)
class UnreadableAddress:
    """A text without exactly one reading."""

    why: str
    """Continues a sentence that begins with the text."""


Reading: TypeAlias = Address | HostName | UnreadableAddress


def split_addresses(text: str) -> tuple[str, ...]:
    """The addresses in one ``address``: several if it is a list with commas.

    A text that is too long stays one, cut to one character more than the limit: a part of a name is another name.
    """
    if "," not in text or len(text) > MAXIMUM_ADDRESS_CHARACTERS:
        return (text[: MAXIMUM_ADDRESS_CHARACTERS + 1],)
    return tuple(filter(None, (item.strip(" ") for item in text.split(",")))) or ("",)


def read_address(text: str, address_type: str) -> Reading:
    """The reading of one address. ``address_type`` is its type in ``status.addresses``, such as ``InternalIP``.

    A number without dots is the name of a host, and under a type of IP addresses the number of an address.
    """
    if len(text) <= MAXIMUM_NAME_CHARACTERS and _PLAIN_NAME.fullmatch(text):  # as nearly all names are written
        return HostName(text)
    if _ADDRESS_CHARACTERS.fullmatch(text):  # ip_address() takes ten times as long to reject a name
        plain = _ip_address(text)
        if plain is not None:
            return _same_or(text, Address(_canonical_text(plain)))
    item = text.strip(" ").lower()
    if not item:
        return UnreadableAddress(EMPTY)
    if len(text) > MAXIMUM_ADDRESS_CHARACTERS:
        return UnreadableAddress(TOO_LONG)
    if not text.isascii() or not _PRINTABLE.fullmatch(item):
        return UnreadableAddress(CHARACTERS)
    found = _read(item, address_type)
    return found if isinstance(found, UnreadableAddress) else _same_or(text, found)


def _same_or(text: str, found: Address | HostName) -> Address | HostName:
    """The reading with ``text`` itself where that is canonical, which takes no memory."""
    return type(found)(text) if found.text == text else found


def _read(item: str, address_type: str) -> Reading:
    if item.startswith("[") or item.endswith("]"):
        return _in_brackets(item)
    host, slash, prefix = item.partition("/")
    if slash:
        return _with_prefix(host, prefix)
    if item.count(":") == 1:
        host, _, port = item.partition(":")
        if not _is_port(port):
            return UnreadableAddress(PORT if port else NEITHER)
    return _host(host, address_type)


def _in_brackets(item: str) -> Reading:
    """``[address]``, and the same with a port or a prefix length (RFC 3986 section 3.2.2)."""
    inside, bracket, rest = item[1:].partition("]")
    found = _ip_address(_without_zone(inside)) if bracket and item.startswith("[") else None
    if found is None:
        return UnreadableAddress(BRACKETS)
    if rest.startswith("/"):
        return _with_prefix(inside, rest[1:])
    if rest and not (rest.startswith(":") and _is_port(rest[1:])):
        return UnreadableAddress(PORT)
    return Address(_canonical_text(found))


def _with_prefix(host: str, prefix: str) -> Reading:
    """``address/length``. The first address of a network stands for the network, but not in one of two addresses (RFC
    3021, RFC 6164).
    """
    found = _ip_address(_without_zone(host))
    if found is None:
        read = _host(host, next(iter(_IP_TYPES)))
        return read if isinstance(read, UnreadableAddress) else UnreadableAddress(NEITHER)
    interface = interface_of(found, prefix)
    if interface is None:
        return UnreadableAddress(PREFIX)
    if interface.network.num_addresses > 2 and interface.ip == interface.network.network_address:
        return UnreadableAddress(NETWORK)
    return Address(_canonical_text(found))


def interface_of(address: IPAddress, prefix: str) -> IPv4Interface | IPv6Interface | None:
    """The address with its network; None if ``prefix`` is neither a prefix length nor a netmask."""
    if not _PREFIX.fullmatch(prefix):
        return None
    try:
        return ip_interface(f"{address}/{prefix}")
    except ValueError:
        return None


def _host(host: str, address_type: str) -> Reading:
    without_dot = host.removesuffix(".")
    found = _ip_address(_without_zone(without_dot))
    if found is not None:
        return Address(_canonical_text(found))
    if _IPV4_RANGE.fullmatch(without_dot):
        return UnreadableAddress(RANGE)
    if _NUMBERS.fullmatch(without_dot) and ("." in without_dot or address_type in _IP_TYPES):
        labels = without_dot.split(".")
        zeros = any(len(label) > 1 and label.startswith("0") and label.isdecimal() for label in labels)
        return UnreadableAddress(LEADING_ZEROS if zeros else NUMBERS)
    return HostName(without_dot) if is_subdomain(without_dot) else UnreadableAddress(NEITHER)


def is_subdomain(text: str) -> bool:
    """Whether ``text`` is a DNS-1123 subdomain (``IsDNS1123Subdomain``, ``apimachinery/pkg/util/validation``)."""
    return len(text) <= MAXIMUM_NAME_CHARACTERS and _SUBDOMAIN.fullmatch(text) is not None


def canonical(text: str) -> str:
    """The canonical form of a DNS name or IP address, however it is written.

    Two spellings of the same name or address give the same result. A text without a reading stays as it is, in lower
    case and without a root dot.
    """
    read = read_address(text, "")
    return text.lower().removesuffix(".") if isinstance(read, UnreadableAddress) else read.text


def is_ipv4_in_ipv6(address: IPAddress) -> bool:
    """Whether it is an IPv4 address in another spelling."""
    return isinstance(address, IPv6Address) and any(address in network for network in _IPV4_IN_IPV6)


def last_octets(address: IPv6Address) -> IPv4Address:
    """The IPv4 address in the last 32 bits."""
    return IPv4Address(int(address) & 0xFFFFFFFF)


def _canonical_text(address: IPAddress) -> str:
    return str(last_octets(address) if isinstance(address, IPv6Address) and is_ipv4_in_ipv6(address) else address)


def _without_zone(text: str) -> str:
    return text.partition("%")[0]


def _is_port(text: str) -> bool:
    return _PORT.fullmatch(text) is not None and int(text) <= _MAXIMUM_PORT


def _ip_address(text: str) -> IPAddress | None:
    try:
        return ip_address(text) if _ADDRESS_CHARACTERS.fullmatch(text) else None
    except ValueError:
        return None
