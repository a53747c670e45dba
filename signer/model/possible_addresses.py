"""The readings that an unreadable address of a Machine may have.

What cannot be read still belongs to its Machine: no other Machine may have a serving certificate for any of its
readings. Programs disagree about ``10.0.0.010`` (``inet_aton`` reads octal, Go before 1.17 decimal), so both readings
count. A host may have a whole network, such as the ``/64`` that a provider delegates to a server, so all of it counts.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_address, ip_network, summarize_address_range
from typing import Final, TypeAlias

from attestors.contract import IPAddress
from signer.model.addresses import (
    NUMBER,
    Address,
    UnreadableAddress,
    canonical,
    interface_of,
    read_address,
)

MAXIMUM_READINGS: Final = 64
"""Of one text. No program writes a text with more; the limit bounds the memory that a tenant can use."""
LARGEST_NETWORKS: Final = {4: 16, 6: 48}
"""The shortest prefix length, by IP version, of a network that one host may have. An end site gets no more than a /48
(RFC 6177). A text with a larger network counts for the network's first address."""

_MAXIMUM_STEPS: Final = 2 * MAXIMUM_READINGS
"""With repetitions: an address is also the reading of its numbers."""
_MAXIMUM_RANGE_NETWORKS: Final = 8
_MAXIMUM_OCTETS: Final = 4
_OCTET: Final = 256
# Each begins where a run of address characters begins, and never gives back what it took: thousands of hostile texts
# must take no time that grows with the square of their length.
_PIECES: Final = re.compile(r"[0-9a-f]*+:[0-9a-f:.]++|[0-9a-z](?:[0-9a-z.-]*[0-9a-z])?")
_WITH_PREFIX: Final = re.compile(r"(?<![0-9a-f:.])([0-9a-f:.]++)(?:%[^/\s\]%]*+)?+\]?/([0-9.]++)")
_RANGE: Final = re.compile(r"(?<![0-9a-f:.])([0-9a-f:.]++)\s*+-\s*+([0-9a-f:.]++)")
_LONG_GROUP: Final = re.compile(r"(?<![0-9a-f.])0+(?=[0-9a-f]{1,4}(?![0-9a-f.]))")
_QUAD: Final = re.compile(r"(.*:)([0-9a-fx.]+)")

_Network: TypeAlias = IPv4Network | IPv6Network


def possible_readings(text: str, address_type: str) -> tuple[str, ...]:
    """The readings of an unreadable address: canonical names and addresses, and networks as ``address/length``.

    At most :data:`MAXIMUM_READINGS`, in the order of the text. Empty for a text that has a reading.
    """
    if not isinstance(read_address(text, address_type), UnreadableAddress):
        return ()
    lower = text.lower()
    # A number beside other text is a port, a prefix length or a word; alone, it may be an address.
    found = dict.fromkeys(_PIECES.findall(lower))
    pieces = [piece for piece in found if not piece.isdecimal() or piece == lower.strip()]
    readings = itertools.chain(
        (_text(network) for network in _networks(lower)),
        itertools.chain.from_iterable(_piece(piece) for piece in pieces),
    )
    distinct = dict.fromkeys(itertools.islice(readings, _MAXIMUM_STEPS))
    return tuple(itertools.islice(distinct, MAXIMUM_READINGS))


def _text(network: _Network) -> str:
    return str(network if network.num_addresses > 1 else network.network_address)


def _networks(text: str) -> Iterator[_Network]:
    for host, prefix in dict.fromkeys(_WITH_PREFIX.findall(text)):
        address = _ip_address(host)
        interface = None if address is None else interface_of(address, prefix)
        if interface is not None and interface.network.prefixlen >= LARGEST_NETWORKS[interface.version]:
            yield interface.network
    for first, last in dict.fromkeys(_RANGE.findall(text)):
        yield from _range(_ip_address(first), last)


def _range(first: IPAddress | None, last_text: str) -> Iterator[_Network]:
    """The networks of ``first-last``; ``last`` may be the last octet alone. Of a long range, the one around it."""
    if first is None:
        return
    short = f"{str(first).rpartition('.')[0]}.{last_text}" if isinstance(first, IPv4Address) else ""
    last = _ip_address(last_text) or _ip_address(short)
    if last is None:
        return
    if last.version != first.version or int(last) < int(first):
        yield from (ip_network(first), ip_network(last))
        return
    bits = first.max_prefixlen - (int(first) ^ int(last)).bit_length()
    around: _Network = ip_network(f"{first}/{bits}", strict=False)
    if around.prefixlen < LARGEST_NETWORKS[around.version]:
        yield from (ip_network(first), ip_network(last))
        return
    exact: list[_Network] = list(summarize_address_range(first, last))
    yield from exact if len(exact) <= _MAXIMUM_RANGE_NETWORKS else (around,)


def _piece(piece: str) -> Iterator[str]:
    """The readings of a part of the text that may be an address or a name."""
    yield from _numbers(piece)
    quad = _QUAD.fullmatch(piece)
    if quad is not None and any(_readable(f"{quad[1]}192.0.2.1")):  # an IPv4 address at the end of an IPv6 address
        for octets in _numbers(quad[2]):
            yield from _readable(f"{quad[1]}{octets}")
    yield from _readable(_LONG_GROUP.sub("", piece) if ":" in piece else piece)


def _readable(piece: str) -> Iterator[str]:
    read = read_address(piece, "")
    if not isinstance(read, UnreadableAddress):
        yield read.text


def _numbers(piece: str) -> Iterator[str]:
    """The IPv4 addresses that ``inet_aton`` or a decimal reading gives: 1 to 4 numbers, the last fills the rest."""
    labels = piece.split(".")
    if len(labels) > _MAXIMUM_OCTETS or not all(NUMBER.fullmatch(label) for label in labels):
        return
    for values in itertools.product(*(_values(label) for label in labels)):
        *octets, rest = values
        size: int = _OCTET ** (_MAXIMUM_OCTETS - len(octets))
        if rest < size and all(octet < _OCTET for octet in octets):
            number = sum(octet * _OCTET ** (3 - place) for place, octet in enumerate(octets)) + rest
            yield str(IPv4Address(number))


def _values(label: str) -> tuple[int, ...]:
    if label.startswith("0x"):
        return (int(label, 16) if label != "0x" else 0,)
    octal = (int(label, 8),) if label.startswith("0") and not set(label) & {"8", "9"} else ()
    return tuple(dict.fromkeys((int(label), *octal)))


def _ip_address(text: str) -> IPAddress | None:
    read = read_address(text, "")
    return ip_address(canonical(text)) if isinstance(read, Address) else None
