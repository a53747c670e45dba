from __future__ import annotations

from collections.abc import Callable

import pytest

from signer.model.cluster import MachineAddress, MachineView
from signer.model.policy import NodeNameSource
from signer.model.reasons import Reason
from signer.rules.node_name import is_node_name, node_names
from tests.unit.signer.builders import machine_view
from tests.unit.signer.outcomes import deferred

AUTOMATIC = NodeNameSource.AUTOMATIC


def machine(provider_id: str, *addresses: tuple[str, str], **changes: str) -> MachineView:
    return machine_view(
        provider_id=provider_id, addresses=tuple(MachineAddress(*address) for address in addresses), **changes
    )


def names(source: NodeNameSource = AUTOMATIC, attested: tuple[str, ...] = ()) -> Callable[[MachineView], object]:
    return lambda view: node_names(view, source, attested)


@pytest.mark.parametrize("name", ["a", "0", "a-b", "a.b", "a--b", "10.0.0.1", "a" * 253, "a.b-c.d0"])
def test_node_name(name: str) -> None:
    assert is_node_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "-",
        "a.",
        ".a",
        "a..b",
        "a-",
        "-a",
        "a-.b",
        "a.-b",
        "A",
        "a_b",
        "a b",
        "a\n",
        "\na",
        "a" * 254,
        "\u0430",
    ],
)
def test_no_node_name(name: str) -> None:
    assert not is_node_name(name)


class TestAutomatic:
    def test_aws(self) -> None:
        view = machine(
            "aws:///a/i-1",
            ("Hostname", "not-this"),
            ("InternalDNS", "IP-10-0-0-1.ec2.internal."),
            ("ExternalDNS", "nor-this"),
            ("InternalDNS", "ip-10-0-0-1.corp.example"),
            ("InternalDNS", "ip-10-0-0-1.ec2.internal"),
        )
        assert node_names(view, AUTOMATIC, ()) == ("ip-10-0-0-1.ec2.internal", "ip-10-0-0-1.corp.example")

    def test_docker(self) -> None:
        view = machine("docker:////c", ("InternalDNS", "not-this"), ("Hostname", "c1"))
        assert node_names(view, AUTOMATIC, ()) == ("c1",)

    def test_azure(self) -> None:
        assert node_names(machine("azure:///x", ("Hostname", "not-this")), AUTOMATIC, ()) == ("prod-md-0-infra",)

    def test_others_by_host_name(self) -> None:
        view = machine("vsphere://x", ("InternalDNS", "not-this"), ("Hostname", "vm1"))
        assert node_names(view, AUTOMATIC, ()) == ("vm1",)

    @pytest.mark.parametrize("address", [("ExternalIP", "10.0.0.1"), ("Hostname", "not a name"), ("InternalDNS", "x")])
    def test_others_by_machine_name(self, address: tuple[str, str]) -> None:
        assert node_names(machine("vsphere://x", address), AUTOMATIC, ()) == ("prod-md-0-x7k2p",)

    @pytest.mark.parametrize("provider_id", ["aws:///a/i-1", "docker:////c", "azure:///x", "vsphere://x"])
    def test_attested_names_come_first(self, provider_id: str) -> None:
        view = machine(provider_id, ("Hostname", "h"), ("InternalDNS", "d"))
        assert node_names(view, AUTOMATIC, ("n1", "NOT a name", "n2")) == ("n1", "n2")

    def test_attested_nonsense_does_not_count(self) -> None:
        view = machine("docker:////c", ("Hostname", "h"))
        assert node_names(view, AUTOMATIC, ("NOT a name",)) == ("h",)

    @pytest.mark.parametrize("provider_id", ["aws:///a/i-1", "docker:////c", "vsphere://x", ""])
    def test_no_addresses_yet(self, provider_id: str) -> None:
        defer = deferred(names(), machine(provider_id))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert defer.message.startswith("Machine team-a/prod-md-0-x7k2p has no address")

    @pytest.mark.parametrize(
        ("provider_id", "address"),
        [("aws:///a/i-1", "Hostname"), ("docker:////c", "InternalDNS"), ("aws:///a/i-1", "InternalIP")],
    )
    def test_no_address_of_the_right_type_yet(self, provider_id: str, address: str) -> None:
        assert deferred(names(), machine(provider_id, (address, "x"))).reason == Reason.MACHINE_ADDRESSES_UNKNOWN

    def test_no_infrastructure_machine_yet(self) -> None:
        defer = deferred(names(), machine("azure:///x", infrastructure_name=""))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert "infrastructureRef" in defer.message


class TestChosen:
    def test_machine_name(self) -> None:
        view = machine("aws:///a/i-1", ("InternalDNS", "d"))
        assert node_names(view, NodeNameSource.MACHINE_NAME, ("attested",)) == ("prod-md-0-x7k2p",)

    def test_infrastructure_machine_name(self) -> None:
        source = NodeNameSource.INFRASTRUCTURE_MACHINE_NAME
        assert node_names(machine("aws:///a/i-1"), source, ("attested",)) == ("prod-md-0-infra",)
        view = machine("aws:///a/i-1", infrastructure_name="")
        assert deferred(names(source), view).reason == Reason.MACHINE_ADDRESSES_UNKNOWN

    def test_address(self) -> None:
        source = NodeNameSource.MACHINE_ADDRESS
        both = machine("aws:///a/i-1", ("InternalDNS", "d"), ("Hostname", "h"))
        assert node_names(both, source, ("attested",)) == ("h",)
        assert node_names(machine("aws:///a/i-1", ("InternalDNS", "d")), source, ()) == ("d",)
        view = machine("aws:///a/i-1", ("InternalIP", "10.0.0.1"), ("ExternalDNS", "x"))
        assert deferred(names(source), view).reason == Reason.MACHINE_ADDRESSES_UNKNOWN
