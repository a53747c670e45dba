from __future__ import annotations

from collections.abc import Callable

import pytest

from signer.model.cluster import MachineAddress, MachineView
from signer.model.policy import NodeNameSource
from signer.model.reasons import Reason
from signer.rules.node_name import NodeNames, is_node_name, node_names, require_node_name
from tests.unit.signer.builders import machine_view
from tests.unit.signer.outcomes import deferred, refused

AUTOMATIC = NodeNameSource.AUTOMATIC


def machine(provider_id: str, *addresses: tuple[str, str], **changes: str) -> MachineView:
    return machine_view(
        provider_id=provider_id, addresses=tuple(MachineAddress(*address) for address in addresses), **changes
    )


def names(source: NodeNameSource = AUTOMATIC, attested: tuple[str, ...] = ()) -> Callable[[MachineView], object]:
    return lambda view: node_names(view, source, attested)


def final(view: MachineView, source: NodeNameSource = AUTOMATIC, attested: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The names, of which no other will come."""
    found = node_names(view, source, attested)
    assert found.final
    return found.names


def instance(provider_id: str) -> MachineView:
    return machine(provider_id, kind="MachinePool", name="pool", infrastructure_name="")


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
        assert final(view) == ("ip-10-0-0-1.ec2.internal", "ip-10-0-0-1.corp.example")

    def test_docker(self) -> None:
        view = machine("docker:////c", ("InternalDNS", "not-this"), ("Hostname", "c1"))
        assert final(view) == ("c1",)

    def test_azure(self) -> None:
        assert final(machine("azure:///x", ("Hostname", "not-this"))) == ("prod-md-0-infra",)

    def test_others_by_host_name(self) -> None:
        view = machine("vsphere://x", ("InternalDNS", "not-this"), ("Hostname", "vm1"))
        assert final(view) == ("vm1",)

    @pytest.mark.parametrize("address", [("ExternalIP", "10.0.0.1"), ("Hostname", "not a name"), ("InternalDNS", "x")])
    def test_others_by_machine_name(self, address: tuple[str, str]) -> None:
        """Which denies nobody: the Hostname may come later."""
        assert node_names(machine("vsphere://x", address), AUTOMATIC, ()) == NodeNames(
            ("prod-md-0-x7k2p",), final=False
        )

    @pytest.mark.parametrize("provider_id", ["aws:///a/i-1", "docker:////c", "azure:///x", "vsphere://x"])
    def test_attested_names_come_first(self, provider_id: str) -> None:
        view = machine(provider_id, ("Hostname", "h"), ("InternalDNS", "d"))
        assert final(view, attested=("n1", "NOT a name", "n2")) == ("n1", "n2")

    def test_attested_nonsense_does_not_count(self) -> None:
        view = machine("docker:////c", ("Hostname", "h"))
        assert final(view, attested=("NOT a name",)) == ("h",)

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
        assert final(view, NodeNameSource.MACHINE_NAME, ("attested",)) == ("prod-md-0-x7k2p",)

    def test_infrastructure_machine_name(self) -> None:
        source = NodeNameSource.INFRASTRUCTURE_MACHINE_NAME
        assert final(machine("aws:///a/i-1"), source, ("attested",)) == ("prod-md-0-infra",)
        view = machine("aws:///a/i-1", infrastructure_name="")
        assert deferred(names(source), view).reason == Reason.MACHINE_ADDRESSES_UNKNOWN

    def test_address(self) -> None:
        source = NodeNameSource.MACHINE_ADDRESS
        both = machine("aws:///a/i-1", ("InternalDNS", "d"), ("Hostname", "h"))
        assert final(both, source, ("attested",)) == ("h",)
        only = node_names(machine("aws:///a/i-1", ("InternalDNS", "d")), source, ())
        assert only == NodeNames(("d",), final=False)
        view = machine("aws:///a/i-1", ("InternalIP", "10.0.0.1"), ("ExternalDNS", "x"))
        assert deferred(names(source), view).reason == Reason.MACHINE_ADDRESSES_UNKNOWN

    @pytest.mark.parametrize("view", [machine("aws:///a/i-1", ("InternalDNS", "d")), instance("aws:///a/i-1")])
    def test_provider_id(self, view: MachineView) -> None:
        assert final(view, NodeNameSource.PROVIDER_ID, ("attested",)) == ("i-1",)

    @pytest.mark.parametrize("provider_id", ["aws:///a/I-1", "aws:///a/", "x:///a/i_1", "x:///" + "a" * 254])
    def test_provider_id_that_ends_with_no_node_name(self, provider_id: str) -> None:
        defer = deferred(names(NodeNameSource.PROVIDER_ID), machine(provider_id))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert "nodeNameSource" in defer.message


class TestInstanceOfMachinePool:
    """It has no Machine: what a Machine says of itself is nobody's, or the pool's."""

    @pytest.mark.parametrize("provider_id", ["aws:///a/i-1", "docker:////c", "azure:///x", "vsphere://x"])
    def test_attested_names(self, provider_id: str) -> None:
        assert final(instance(provider_id), attested=("n1", "NOT a name")) == ("n1",)

    def test_docker(self) -> None:
        assert final(instance("docker:////pool-worker-1")) == ("pool-worker-1",)

    @pytest.mark.parametrize("provider_id", ["aws:///a/i-1", "azure:///x/virtualMachines/0", "vsphere://x", "x"])
    def test_nothing_else_is_guessed(self, provider_id: str) -> None:
        defer = deferred(names(attested=("NOT a name",)), instance(provider_id))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert "nodeNameSource: ProviderID" in defer.message
        assert f"instance {provider_id} of MachinePool team-a/pool" in defer.message

    @pytest.mark.parametrize(
        "source",
        [NodeNameSource.MACHINE_NAME, NodeNameSource.INFRASTRUCTURE_MACHINE_NAME, NodeNameSource.MACHINE_ADDRESS],
    )
    def test_what_only_machines_have(self, source: NodeNameSource) -> None:
        """The pool's own name would be one name for all of its instances."""
        defer = deferred(names(source, attested=("n1",)), instance("docker:////c"))
        assert "nodeNameSource" in defer.message


class TestRequired:
    def test_one_of_the_names(self) -> None:
        view = machine("aws:///a/i-1", ("InternalDNS", "d1"), ("InternalDNS", "d2"))
        for name in ("d1", "d2"):
            require_node_name(name, view, AUTOMATIC, ())

    def test_another_name(self) -> None:
        view = machine("aws:///a/i-1", ("InternalDNS", "d1"), ("InternalDNS", "d2"))
        deny = refused(lambda one: require_node_name("d3", one, AUTOMATIC, ()), view)
        assert deny.reason == Reason.NODE_NAME_MISMATCH
        assert deny.message.endswith("is node d1 or d2")

    def test_addresses_arrive_in_stages(self) -> None:
        """A Machine shows its InternalIP first; its node knows its host name from the start, and is not denied."""
        early, later = (("InternalIP", "10.0.0.1"),), (("InternalIP", "10.0.0.1"), ("Hostname", "vm1"))
        defer = deferred(lambda one: require_node_name("vm1", one, AUTOMATIC, ()), machine("vsphere://x", *early))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert "nodeNameSource" in defer.message
        require_node_name("vm1", machine("vsphere://x", *later), AUTOMATIC, ())
        require_node_name("prod-md-0-x7k2p", machine("vsphere://x", *early), AUTOMATIC, ())
        impostor = refused(lambda one: require_node_name("vm2", one, AUTOMATIC, ()), machine("vsphere://x", *later))
        assert impostor.reason == Reason.NODE_NAME_MISMATCH

    def test_addresses_that_are_chosen_arrive_in_stages(self) -> None:
        """The InternalDNS may be there before the Hostname, by which the node is called."""
        source = NodeNameSource.MACHINE_ADDRESS
        early, later = (("InternalDNS", "vm1.corp"),), (("InternalDNS", "vm1.corp"), ("Hostname", "vm1"))
        defer = deferred(lambda one: require_node_name("vm1", one, source, ()), machine("vsphere://x", *early))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        require_node_name("vm1.corp", machine("vsphere://x", *early), source, ())
        require_node_name("vm1", machine("vsphere://x", *later), source, ())
        impostor = refused(lambda one: require_node_name("vm1.corp", one, source, ()), machine("vsphere://x", *later))
        assert impostor.reason == Reason.NODE_NAME_MISMATCH
