from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from signer.model.serving_networks import (
    NO_NETWORKS,
    InvalidNetworks,
    OperatorNetworks,
    parse_networks,
)

BOUNDS = OperatorNetworks((ip_network("2001:db8::/48"),), {"team-a": (ip_network("10.0.0.0/16"),)})


@pytest.mark.parametrize("value", [None, []])
def test_none(value: Any) -> None:
    assert parse_networks(value) == ()


def test_networks() -> None:
    texts = ["10.0.1.0/24", "10.0.0.1/32", "2001:db8::/64", "0.0.0.0/0"]
    assert parse_networks(texts) == tuple(map(ip_network, texts))


@pytest.mark.parametrize(
    "item",
    [
        *("", "x", "10.0.1.1/24", "10.0.1.0", "10.0.1.0/", "10.0.1.0/33", "10.0.1.0/255.255.255.0", "10.0.1.0/24 "),
        *(
            "010.0.1.0/24",
            "10.0.1.0/-1",
            "10.0.1.0/2\u0664",
            "2001:DB8::/64",
            "fe80::%1/64",
            "10.0.1.0/24/24",
            5,
            None,
            [],
        ),
    ],
)
def test_what_is_no_network(item: Any) -> None:
    with pytest.raises(InvalidNetworks, match="must hold networks such as"):
        parse_networks([item])


@pytest.mark.parametrize("value", ["10.0.0.0/8", {}, 5, [f"10.0.{number}.0/24" for number in range(17)]])
def test_what_is_no_list(value: Any) -> None:
    assert len(parse_networks([f"10.0.{number}.0/24" for number in range(16)])) == 16
    with pytest.raises(InvalidNetworks, match="must be a list of at most 16 networks"):
        parse_networks(value)


@pytest.mark.parametrize(
    ("network", "namespace", "allowed"),
    [
        ("10.0.1.0/24", "team-a", True),
        ("10.0.0.0/16", "team-a", True),
        ("10.0.0.0/15", "team-a", False),
        ("10.1.0.0/24", "team-a", False),
        ("10.0.1.0/24", "team-b", False),
        ("2001:db8:0:1::/64", "team-a", True),
        ("2001:db8:0:1::/64", "team-b", True),
        ("2001:db8:1::/64", "team-b", False),
        ("::/0", "team-a", False),
    ],
)
def test_bounds(network: str, namespace: str, allowed: bool) -> None:
    found = ip_network(network)
    assert BOUNDS.allows(found, namespace) is allowed
    other = ip_network("192.0.2.0/24")
    assert BOUNDS.allowed((other, found), namespace) == ((found,) if allowed else ())
    assert not NO_NETWORKS.allows(found, namespace)
