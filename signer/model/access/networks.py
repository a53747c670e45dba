"""Networks from which a grant's creator connects."""

from __future__ import annotations

import re
from ipaddress import IPv6Network, ip_network
from typing import Any, Final

from signer.model.access.reader import Reader
from signer.model.access_policy import WIDEST_PREFIX_IPV4, WIDEST_PREFIX_IPV6
from signer.model.serving_networks import IPNetwork

MAXIMUM_INGRESS: Final = 16
_NETWORK: Final = re.compile(r"[0-9a-f.:]{2,39}/[0-9]{1,3}")
_FORM: Final = "must be a network in canonical form, such as 198.51.100.7/32 or 2001:db8::/64"


def parse_cidr(value: Any) -> IPNetwork:
    """A network in canonical form: the first address as it is usually written, and the prefix length.

    Raises:
        ValueError: it has another form, is an IPv4 network in the form of IPv6, or is wider than ``/8`` or ``/16``.
            The message ends a sentence.
    """
    if not isinstance(value, str) or _NETWORK.fullmatch(value) is None:
        raise ValueError(_FORM)
    try:
        network = ip_network(value)
    except ValueError:
        raise ValueError(_FORM) from None  # the library's message quotes the value
    if isinstance(network, IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError("must be written as a network of IPv4, without ::ffff:")
    if str(network) != value:
        raise ValueError(f"is written {network}")
    widest = WIDEST_PREFIX_IPV6 if isinstance(network, IPv6Network) else WIDEST_PREFIX_IPV4
    if network.prefixlen < widest:
        raise ValueError(f"must not be wider than /{widest}")
    return network


def read_ingress(spec: Reader) -> tuple[IPNetwork, ...]:
    """``spec.ingress``: each network once, sorted, because their order means nothing."""
    found: list[IPNetwork] = []
    for rule in spec.objects("ingress", 0, MAXIMUM_INGRESS):
        network = rule.knows("ipBlock").object("ipBlock").knows("cidr").read("cidr", parse_cidr)
        if network in found:
            raise rule.invalid("ipBlock", "is there twice")
        found.append(network)
    return tuple(sorted(found, key=lambda one: (one.version, one.network_address.packed, one.prefixlen)))
