"""Which targets the operator allows."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from node_access.bastions.contract import Target
from signer.bastions.targets import OperatorTargets, TargetNotAllowed, left_out_message, within
from tests.unit.node_access.bastions.test_contract import BASTION


def target(*addresses: str, port: int = 22) -> Target:
    return Target(tuple(map(ip_address, addresses)), port)


@pytest.mark.parametrize("address", ["10.0.0.5", "172.31.0.5", "192.168.7.5", "100.64.0.5", "fd00::5"])
def test_private_addresses_are_allowed(address: str) -> None:
    bastion = replace(BASTION, targets=(target(address),))
    assert within(bastion, OperatorTargets()).bastion == bastion


@pytest.mark.parametrize("address", ["172.32.0.5", "198.18.0.5", "192.0.2.5", "8.8.8.8", "240.0.0.1", "2001:db8::5"])
def test_other_addresses_are_not(address: str) -> None:
    bastion = replace(BASTION, targets=(target("10.0.0.5"), target(address)))
    with pytest.raises(TargetNotAllowed, match="targetNetworks"):
        within(bastion, OperatorTargets())
    allowed = OperatorTargets(networks=(ip_network("10.0.0.0/8"), ip_network(address)))
    assert within(bastion, allowed).left_out == ()


def test_each_port_is_looked_at() -> None:
    bastion = replace(BASTION, targets=(target("10.0.0.5"), target("10.0.0.5", port=2379)))
    with pytest.raises(TargetNotAllowed, match=r"port 2379 .* targetPorts"):
        within(bastion, OperatorTargets())


def test_what_is_left_out_is_told() -> None:
    public = [f"8.8.8.{number}" for number in range(1, 8)]
    bounded = within(replace(BASTION, targets=(target("10.0.0.5", *public),)), OperatorTargets())
    assert bounded.bastion.targets == (target("10.0.0.5"),)
    assert left_out_message(bounded.left_out).startswith(
        "It does not reach 8.8.8.1, 8.8.8.2, 8.8.8.3, 8.8.8.4 and 3 more"
    )
    assert left_out_message(()) == ""


def test_a_namespace_of_its_own_networks_has_no_others() -> None:
    namespace = BASTION.reference.namespace
    allowed = OperatorTargets(networks_by_namespace={namespace: (ip_network("10.7.0.0/16"),)})
    with pytest.raises(TargetNotAllowed):
        within(replace(BASTION, targets=(target("10.0.0.5"),)), allowed)
