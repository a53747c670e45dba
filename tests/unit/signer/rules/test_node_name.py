from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signer.model.cluster import InfrastructureReference, MachineAddress, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.policy import NodeNameRules, NodeNameSource
from signer.model.reasons import Reason
from signer.rules.node_name import (
    NodeNames,
    OtherNames,
    byoh_host_names,
    is_derived,
    is_node_name,
    names_in_domains,
    node_names,
    possible_names,
    require_node_name,
    scale_set_names,
)
from tests.unit.signer.builders import machine_view
from tests.unit.signer.outcomes import deferred, refused

AUTOMATIC = NodeNameSource.AUTOMATIC
fast = settings(max_examples=200, deadline=None)


def machine(provider_id: str, *addresses: tuple[str, str], **changes: str) -> MachineView:
    return machine_view(
        provider_id=provider_id, addresses=tuple(MachineAddress(*address) for address in addresses), **changes
    )


def by(source: NodeNameSource) -> NodeNameRules:
    return NodeNameRules((source,))


def not_called(name: str, rules: NodeNameRules) -> Callable[[MachineView], object]:
    return lambda view: require_node_name(name, view, rules, ())


def names(source: NodeNameSource = AUTOMATIC, attested: tuple[str, ...] = ()) -> Callable[[MachineView], object]:
    return lambda view: node_names(view, source, attested)


def asking_for(name: str) -> Callable[[MachineView], object]:
    return lambda view: require_node_name(name, view, by(AUTOMATIC), ())


def final(view: MachineView, source: NodeNameSource = AUTOMATIC, attested: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The names, of which no other will come."""
    found = node_names(view, source, attested)
    assert found.others is OtherNames.WRONG
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
        assert node_names(view, AUTOMATIC, ()) == NodeNames(
            ("ip-10-0-0-1.ec2.internal", "ip-10-0-0-1.corp.example"), OtherNames.WRONG_EXCEPT_DOMAIN
        )

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
            ("prod-md-0-x7k2p",), OtherNames.UNKNOWN
        )

    @pytest.mark.parametrize("provider_id", ["aws", "azure", "docker", "cn-hangzhou.i-bp1"])
    def test_what_has_no_scheme_is_of_no_known_provider(self, provider_id: str) -> None:
        view = machine(provider_id, ("InternalDNS", "d"), ("Hostname", "h"))
        assert final(view) == ("h",)

    @pytest.mark.parametrize("provider_id", ["gce://p/z/n1", "docker:////c", "azure:///x", "vsphere://x"])
    def test_attested_names_come_first(self, provider_id: str) -> None:
        view = machine(provider_id, ("Hostname", "h"), ("InternalDNS", "d"), ("InternalDNS", "n1.example"))
        assert final(view, attested=("n1", "NOT a name", "n2")) == ("n1", "n2")

    @pytest.mark.parametrize("shown", ["byoh://host-1/x7mz5a", ""])
    def test_byoh_host_is_a_name_only_if_it_is_proven(self, shown: str) -> None:
        view = machine(shown).claiming("byoh://host-1/x7mz5a")
        assert final(view, attested=("host-1",)) == ("host-1",)
        for unproven in ((), ("HOST-1",)):
            defer = deferred(names(attested=unproven), view)
            assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
            assert "an inventory that has a line for the host" in defer.message

    def test_attested_nonsense_does_not_count(self) -> None:
        view = machine("docker:////c", ("Hostname", "h"))
        assert final(view, attested=("NOT a name",)) == ("h",)

    @pytest.mark.parametrize("provider_id", ["aws:///a/i-1", "docker:////c", "vsphere://x", ""])
    def test_no_addresses_yet(self, provider_id: str) -> None:
        defer = deferred(names(), machine(provider_id))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert defer.message.startswith("Machine team-a/prod-md-0-x7k2p has no address")

    def test_an_empty_address_is_none(self) -> None:
        assert deferred(names(), machine("vsphere://x", ("InternalIP", ""))).reason == Reason.MACHINE_ADDRESSES_UNKNOWN

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


PROVEN = "ip-10-0-1-17.eu-west-1.compute.internal"
CUSTOM = "ip-10-0-1-17.corp.example"
OTHER_INTERFACE = "ip-10-0-2-99.corp.example"


def on_aws(*internal_dns: str) -> MachineView:
    return machine("aws:///a/i-1", ("InternalIP", "10.0.1.17"), *(("InternalDNS", name) for name in internal_dns))


class TestDomainOfDHCPOptions:
    """EC2 says an instance's name in AWS's domain, also where its host calls itself by another one."""

    @staticmethod
    def ask(name: str, view: MachineView) -> None:
        require_node_name(name, view, by(AUTOMATIC), (PROVEN,))

    @pytest.mark.parametrize("name", [PROVEN, CUSTOM])
    def test_that_the_machine_shows(self, name: str) -> None:
        self.ask(name, on_aws(PROVEN, CUSTOM.upper() + "."))

    @pytest.mark.parametrize("view", [machine("aws:///a/i-1"), on_aws(), on_aws(PROVEN), on_aws(OTHER_INTERFACE)])
    def test_that_the_machine_does_not_show_yet(self, view: MachineView) -> None:
        """Its provider leaves the domain out while it cannot look it up, and before v2.4."""
        defer = deferred(lambda one: self.ask(CUSTOM, one), view)
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert f"is for node {CUSTOM}; Machine team-a/prod-md-0-x7k2p is node {PROVEN}: another domain" in defer.message
        assert "DHCP options" in defer.message
        self.ask(PROVEN, view)

    @pytest.mark.parametrize("name", [OTHER_INTERFACE, "ip-10-0-1-1.corp.example", "corp.example", "ip-10-0-1-170"])
    def test_of_another_host(self, name: str) -> None:
        """Even where the Machine shows it: a second interface's name is not what the instance is called."""
        for view in (machine("aws:///a/i-1"), on_aws(PROVEN, CUSTOM, name)):
            deny = refused(lambda one: self.ask(name, one), view)
            assert deny.reason == Reason.NODE_NAME_MISMATCH

    @pytest.mark.parametrize("kind", ["Hostname", "ExternalDNS", "InternalIP"])
    def test_that_is_another_kind_of_address(self, kind: str) -> None:
        deferred(lambda one: self.ask(CUSTOM, one), machine("aws:///a/i-1", ("InternalDNS", PROVEN), (kind, CUSTOM)))

    def test_without_an_attestor_that_proves_names(self) -> None:
        """The addresses alone decide, and the domain's may come after the platform's own."""
        require_node_name(CUSTOM, on_aws(PROVEN, CUSTOM), by(AUTOMATIC), ())
        assert deferred(asking_for(CUSTOM), on_aws(PROVEN)).reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert refused(asking_for(OTHER_INTERFACE), on_aws(PROVEN)).reason == Reason.NODE_NAME_MISMATCH

    def test_instance_of_a_pool(self) -> None:
        """It has no addresses; its Machine may still come, and show them."""
        assert deferred(lambda one: self.ask(CUSTOM, one), instance("aws:///a/i-1")).reason == (
            Reason.MACHINE_ADDRESSES_UNKNOWN
        )
        deny = refused(lambda one: self.ask(OTHER_INTERFACE, one), instance("aws:///a/i-1"))
        assert deny.reason == Reason.NODE_NAME_MISMATCH
        self.ask(PROVEN, instance("aws:///a/i-1"))

    @pytest.mark.parametrize("provider_id", ["gce://p/z/n1", "vsphere://x", "azure:///x", "docker:////c"])
    def test_elsewhere_a_proven_name_is_the_whole_name(self, provider_id: str) -> None:
        view = machine(provider_id, ("InternalDNS", CUSTOM))
        assert refused(lambda one: self.ask(CUSTOM, one), view).reason == Reason.NODE_NAME_MISMATCH

    def test_all_that_it_may_be_called(self) -> None:
        view = on_aws(CUSTOM, PROVEN, OTHER_INTERFACE)
        assert node_names(view, AUTOMATIC, (PROVEN,)) == NodeNames((PROVEN, CUSTOM), OtherNames.WRONG_EXCEPT_DOMAIN)


SCALE_SET = "azure:///subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets"


class TestScaleSet:
    @pytest.mark.parametrize(
        ("end", "name"),
        [
            ("pool/virtualMachines/0", "pool000000"),
            ("pool/virtualMachines/10", "pool00000a"),
            ("nsgvmss/virtualMachines/85", "nsgvmss00002d"),
            ("Pool-1/virtualMachines/1146", "pool-10000vu"),
            ("pool/virtualMachines/2176782335", "poolzzzzzz"),
        ],
    )
    def test_uniform(self, end: str, name: str) -> None:
        assert scale_set_names(f"{SCALE_SET}/{end}") == (name,)
        assert scale_set_names(f"{SCALE_SET.lower()}/{end.lower()}") == (name,)

    @pytest.mark.parametrize(
        "provider_id",
        [
            f"{SCALE_SET}/pool/virtualMachines/2176782336",
            f"{SCALE_SET}/pool/virtualMachines/00",
            f"{SCALE_SET}/pool/virtualMachines/\u0663",
            f"{SCALE_SET}/pool/virtualMachines/",
            f"{SCALE_SET}/pool/virtualMachines/pool_0",
            f"{SCALE_SET}/pool/virtualMachines/0/x",
            f"{SCALE_SET}/-pool/virtualMachines/0",
            f"{SCALE_SET}/poo\u212a/virtualMachines/0",
            f"{SCALE_SET}//virtualMachines/0",
            f"{SCALE_SET}/{'p' * 248}/virtualMachines/0",
            SCALE_SET.replace("azure", "aws") + "/pool/virtualMachines/0",
            SCALE_SET.removesuffix("virtualMachineScaleSets") + "virtualMachines/pool_1a2b3c4d",
            "",
        ],
    )
    def test_nothing_such(self, provider_id: str) -> None:
        assert scale_set_names(provider_id) == ()

    @fast
    @given(st.integers(0, 36**6 - 1))
    def test_its_number_can_be_read_back(self, number: int) -> None:
        (name,) = scale_set_names(f"{SCALE_SET}/pool/virtualMachines/{number}")
        assert len(name) == len("pool") + 6
        assert int(name.removeprefix("pool"), 36) == number


class TestHetznerBareMetal:
    """The host is called after its InfraMachine, or after the Cluster and its server, and the Hostname address lies."""

    @staticmethod
    def server(provider_id: str, *addresses: tuple[str, str], kind: str = "HetznerBareMetalMachine") -> MachineView:
        reference = InfrastructureReference("infrastructure.cluster.x-k8s.io", "", kind, "md-0-x7k2p")
        return replace(machine(provider_id, *addresses), infrastructure=reference)

    @pytest.mark.parametrize("provider_id", ["hrobot://1357111", "hcloud://bm-1357111"])
    def test_that_shows_its_provider_id(self, provider_id: str) -> None:
        view = self.server(provider_id, ("Hostname", "md-0-x7k2p"))
        assert final(view) == ("bm-md-0-x7k2p", "bm-prod-1357111")

    @pytest.mark.parametrize(
        "name", ["md-0-x7k2p", "bm-prod-1357112", "bm-other-1357111", "bm-md-0-zzzzz", "bm-1357111"]
    )
    def test_another_name(self, name: str) -> None:
        refused(asking_for(name), self.server("hrobot://1357111", ("Hostname", "md-0-x7k2p")))

    def test_that_shows_none_yet(self) -> None:
        """A provider ID that the node claims is no source of names."""
        view = self.server("").claiming("hrobot://1357111")
        asking_for("bm-md-0-x7k2p")(view)
        assert deferred(asking_for("bm-prod-1357111"), view).reason is Reason.MACHINE_ADDRESSES_UNKNOWN

    @pytest.mark.parametrize("provider_id", ["hcloud://1357111", "hrobot://", "hrobot://x", "hrobot://1357111/2"])
    def test_provider_id_of_another_form_has_no_number(self, provider_id: str) -> None:
        assert final(self.server(provider_id)) == ("bm-md-0-x7k2p",)

    def test_cloud_server(self) -> None:
        view = self.server("hcloud://bm-1357111", ("Hostname", "md-0-x7k2p"), kind="HCloudMachine")
        assert final(view) == ("md-0-x7k2p",)

    def test_name_that_is_none(self) -> None:
        reference = InfrastructureReference("infrastructure.cluster.x-k8s.io", "", "HetznerBareMetalMachine", "-" * 253)
        view = replace(machine("", ("Hostname", "md-0")), infrastructure=reference)
        assert final(view) == ("md-0",)


class TestAzurePool:
    """What its Machines are called is a guess: their infrastructure machines are called otherwise than their nodes."""

    @staticmethod
    def of_a_pool(provider_id: str, *addresses: tuple[str, str]) -> MachineView:
        return replace(
            machine(provider_id, *addresses, name="pool-0", infrastructure_name="pool-0"),
            of_a_pool=True,
            owner_pool="pool",
        )

    def test_uniform(self) -> None:
        view = self.of_a_pool(f"{SCALE_SET}/pool/virtualMachines/0")
        require_node_name("pool000000", view, by(AUTOMATIC), ())
        for other in ("pool000001", "pool-0", "prefix000000"):
            defer = deferred(asking_for(other), view)
            assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
            assert "until it has one its node is pool000000" in defer.message
            assert "set nodeNames in the policy" in defer.message

    def test_flexible(self) -> None:
        """Its computer's name ends in characters that nothing in Cluster API shows."""
        view = self.of_a_pool("azure:///subscriptions/s/virtualMachines/pool_1a2b3c4d")
        deferred(lambda one: require_node_name("pool1a2b3c", one, by(AUTOMATIC), ()), view)
        require_node_name("pool-0", view, by(AUTOMATIC), ())

    def test_a_host_name_decides(self) -> None:
        view = self.of_a_pool(f"{SCALE_SET}/pool/virtualMachines/0", ("Hostname", "prefix000000"))
        assert final(view) == ("prefix000000",)
        refused(lambda one: require_node_name("pool000000", one, by(AUTOMATIC), ()), view)

    def test_instance_without_a_machine(self) -> None:
        """It may get one, whose Hostname then decides: until then another prefix is no ground to deny it."""
        provider_id = f"{SCALE_SET}/pool/virtualMachines/10"
        require_node_name("pool00000a", instance(provider_id), by(AUTOMATIC), ())
        defer = deferred(asking_for("prefix00000a"), instance(provider_id))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert "set nodeNames in the policy" in defer.message
        require_node_name("prefix00000a", self.of_a_pool(provider_id, ("Hostname", "prefix00000a")), by(AUTOMATIC), ())

    def test_of_no_pool(self) -> None:
        """The virtual machine is called as its infrastructure machine, and so is its node."""
        deny = refused(lambda one: require_node_name("vm2", one, by(AUTOMATIC), ()), machine("azure:///x"))
        assert "is node prod-md-0-infra by nodeNames Automatic (if that is wrong, set" in deny.message


NOBODYS = ["localhost", "LOCALHOST.", "localhost.localdomain", "localhost4.localdomain4", "localhost6", "vm.localhost"]


class TestNamesOfEveryHost:
    """What an inspected host calls itself before it has a name is no address."""

    @pytest.mark.parametrize("name", NOBODYS)
    @pytest.mark.parametrize("provider_id", ["metal3://default/node-1/m", "vsphere://x"])
    def test_guess_stands(self, provider_id: str, name: str) -> None:
        view = machine(provider_id, ("InternalIP", "172.22.0.86"), ("Hostname", name), ("InternalDNS", name))
        require_node_name("prod-md-0-x7k2p", view, by(AUTOMATIC), ())
        for other in ("vm1", "localhost", "localhost.localdomain"):
            deferred(asking_for(other), view)

    @pytest.mark.parametrize("name", NOBODYS)
    def test_nothing_else(self, name: str) -> None:
        """As if there were no address at all."""
        view = machine("metal3://x", ("Hostname", name), ("InternalDNS", name))
        assert deferred(names(), view).reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert deferred(names(NodeNameSource.MACHINE_ADDRESS), view).reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        for provider_id in ("aws:///a/i-1", "docker:////c"):
            assert deferred(names(), replace(view, provider_id=provider_id)).reason == Reason.MACHINE_ADDRESSES_UNKNOWN

    def test_a_name_beside_it(self) -> None:
        view = machine("metal3://x", ("Hostname", "localhost.localdomain"), ("Hostname", "vm1"))
        assert final(view) == ("vm1",)
        assert final(view, NodeNameSource.MACHINE_ADDRESS) == ("vm1",)

    @pytest.mark.parametrize(
        "name", ["localhost-1", "localhost40", "vm1.localdomain", "a.localhost.example", "my-localhost"]
    )
    def test_names_of_one_host(self, name: str) -> None:
        assert final(machine("metal3://x", ("Hostname", name))) == (name,)


# Whatever may be proven and shown, nobody is called by another host's name, and a guess denies nobody.

HOSTS = st.sampled_from(["ip-10-0-1-17", "ip-10-0-2-99", "i-0abc", "localhost", "vm1"])
DOMAINS = st.sampled_from(["", ".eu-west-1.compute.internal", ".corp.example", ".localdomain"])
SOME_NAMES = st.builds("{}{}".format, HOSTS, DOMAINS)
VIEWS = st.builds(
    machine,
    st.sampled_from(["aws:///a/i-1", "gce://p/z/vm1", "metal3://x", "azure:///x", "docker:////vm1"]),
    st.tuples(st.sampled_from(["InternalDNS", "Hostname", "InternalIP", "ExternalDNS"]), SOME_NAMES),
    st.tuples(st.sampled_from(["InternalDNS", "Hostname", "InternalIP", "ExternalDNS"]), SOME_NAMES),
)


@settings(fast, max_examples=500)
@given(SOME_NAMES, VIEWS, st.lists(SOME_NAMES, max_size=2).map(tuple))
def test_automatic(asked: str, view: MachineView, attested: tuple[str, ...]) -> None:
    shown = {address.address for address in view.addresses}
    try:
        require_node_name(asked, view, by(AUTOMATIC), attested)
    except Refused:
        # Proven or shown otherwise, or by the one convention that nothing comes after.
        assert attested or shown or view.provider_id.startswith("azure")
        if attested and view.provider_id.startswith("aws"):
            assert asked.partition(".")[0] not in {name.partition(".")[0] for name in attested}
    except Deferred:
        assert asked not in attested
    else:
        if attested:
            assert asked in attested or (
                asked in shown and asked.partition(".")[0] in {name.partition(".")[0] for name in attested}
            )
        else:
            assert asked in shown | {view.name, view.infrastructure_name}
            assert not asked.startswith("localhost")


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
        assert only == NodeNames(("d",), OtherNames.UNKNOWN)
        view = machine("aws:///a/i-1", ("InternalIP", "10.0.0.1"), ("ExternalDNS", "x"))
        assert deferred(names(source), view).reason == Reason.MACHINE_ADDRESSES_UNKNOWN

    @pytest.mark.parametrize("view", [machine("aws:///a/i-1", ("InternalDNS", "d")), instance("aws:///a/i-1")])
    def test_provider_id(self, view: MachineView) -> None:
        assert final(view, NodeNameSource.PROVIDER_ID, ("attested",)) == ("i-1",)

    @pytest.mark.parametrize("provider_id", ["aws:///a/I-1", "aws:///a/", "x:///a/i_1", "x:///" + "a" * 254])
    def test_provider_id_that_ends_with_no_node_name(self, provider_id: str) -> None:
        defer = deferred(names(NodeNameSource.PROVIDER_ID), machine(provider_id))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert "nodeNames" in defer.message


class TestInstanceOfMachinePool:
    """It has no Machine: what a Machine says of itself is nobody's, or the pool's."""

    @pytest.mark.parametrize("provider_id", ["gce://p/z/n", "docker:////c", "azure:///x", "vsphere://x"])
    def test_attested_names(self, provider_id: str) -> None:
        assert final(instance(provider_id), attested=("n1", "NOT a name")) == ("n1",)

    def test_docker(self) -> None:
        assert final(instance("docker:////pool-worker-1")) == ("pool-worker-1",)

    @pytest.mark.parametrize("provider_id", ["aws:///a/i-1", "azure:///x/virtualMachines/0", "vsphere://x", "x"])
    def test_nothing_else_is_guessed(self, provider_id: str) -> None:
        defer = deferred(names(attested=("NOT a name",)), instance(provider_id))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert "add ProviderID to nodeNames.sources" in defer.message
        assert f"instance {provider_id} of MachinePool team-a/pool" in defer.message

    @pytest.mark.parametrize(
        "source",
        [NodeNameSource.MACHINE_NAME, NodeNameSource.INFRASTRUCTURE_MACHINE_NAME, NodeNameSource.MACHINE_ADDRESS],
    )
    def test_what_only_machines_have(self, source: NodeNameSource) -> None:
        """The pool's own name would be one name for all of its instances."""
        defer = deferred(names(source, attested=("n1",)), instance("docker:////c"))
        assert "nodeNames" in defer.message


@pytest.mark.parametrize(
    ("provider_id", "found"),
    [
        ("byoh://host-1/x7mz5a", ("host-1",)),
        ("byoh://host-1.corp.example/x", ("host-1.corp.example",)),
        ("byoh://HOST-1/x7mz5a", ()),
        ("byoh://host-1", ()),
        ("byoh://host-1/", ()),
        ("byoh://host-1/a/b", ()),
        ("byoh:///x7mz5a", ()),
        ("xbyoh://host-1/x", ()),
        ("metal3://host-1/x", ()),
    ],
)
def test_host_of_byoh(provider_id: str, found: tuple[str, ...]) -> None:
    assert byoh_host_names(provider_id) == found


class TestRequired:
    def test_one_of_the_names(self) -> None:
        view = machine("aws:///a/i-1", ("InternalDNS", "d1"), ("InternalDNS", "d2"))
        for name in ("d1", "d2"):
            require_node_name(name, view, by(AUTOMATIC), ())

    def test_another_name(self) -> None:
        view = machine("aws:///a/i-1", ("InternalDNS", "d1"), ("InternalDNS", "d2"))
        deny = refused(lambda one: require_node_name("d3", one, by(AUTOMATIC), ()), view)
        assert deny.reason == Reason.NODE_NAME_MISMATCH
        assert deny.message == (
            "the request is for node d3; Machine team-a/prod-md-0-x7k2p is node d1 or d2 by nodeNames Automatic "
            "(if that is wrong, set other sources in the policy)"
        )

    def test_another_name_than_was_chosen(self) -> None:
        """What was chosen is what the operator wants: nothing is proposed."""
        deny = refused(
            lambda one: require_node_name("d1", one, by(NodeNameSource.MACHINE_NAME), ()),
            machine("aws:///a/i-1", ("InternalDNS", "d1")),
        )
        assert deny.message.endswith("is node prod-md-0-x7k2p by nodeNames MachineName")

    def test_addresses_arrive_in_stages(self) -> None:
        """A Machine shows its InternalIP first; its node knows its host name from the start, and is not denied."""
        early, later = (("InternalIP", "10.0.0.1"),), (("InternalIP", "10.0.0.1"), ("Hostname", "vm1"))
        defer = deferred(lambda one: require_node_name("vm1", one, by(AUTOMATIC), ()), machine("vsphere://x", *early))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert "nodeNames" in defer.message
        require_node_name("vm1", machine("vsphere://x", *later), by(AUTOMATIC), ())
        require_node_name("prod-md-0-x7k2p", machine("vsphere://x", *early), by(AUTOMATIC), ())
        impostor = refused(lambda one: require_node_name("vm2", one, by(AUTOMATIC), ()), machine("vsphere://x", *later))
        assert impostor.reason == Reason.NODE_NAME_MISMATCH

    def test_addresses_that_are_chosen_arrive_in_stages(self) -> None:
        """The InternalDNS may be there before the Hostname, by which the node is called."""
        source = NodeNameSource.MACHINE_ADDRESS
        early, later = (("InternalDNS", "vm1.corp"),), (("InternalDNS", "vm1.corp"), ("Hostname", "vm1"))
        defer = deferred(lambda one: require_node_name("vm1", one, by(source), ()), machine("vsphere://x", *early))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        require_node_name("vm1.corp", machine("vsphere://x", *early), by(source), ())
        require_node_name("vm1", machine("vsphere://x", *later), by(source), ())
        impostor = refused(
            lambda one: require_node_name("vm1.corp", one, by(source), ()), machine("vsphere://x", *later)
        )
        assert impostor.reason == Reason.NODE_NAME_MISMATCH


class TestSeveralSources:
    RULES = NodeNameRules((NodeNameSource.MACHINE_ADDRESS, NodeNameSource.MACHINE_NAME))

    def test_a_name_of_any_source(self) -> None:
        view = machine("vsphere://x", ("Hostname", "vm1"))
        for name in ("vm1", "prod-md-0-x7k2p"):
            require_node_name(name, view, self.RULES, ())
        deny = refused(lambda one: require_node_name("vm2", one, self.RULES, ()), view)
        assert deny.reason == Reason.NODE_NAME_MISMATCH
        assert deny.message.endswith(
            "is node vm1 (MachineAddress) or prod-md-0-x7k2p (MachineName) by nodeNames MachineAddress, MachineName"
        )

    def test_a_source_that_is_not_known_yet_may_still_have_the_name(self) -> None:
        """Whatever the order of the sources."""
        view = machine("vsphere://x", ("InternalIP", "10.0.0.1"))
        for rules in (self.RULES, NodeNameRules(self.RULES.sources[::-1])):
            require_node_name("prod-md-0-x7k2p", view, rules, ())
            defer = deferred(not_called("vm1", rules), view)
            assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
            assert "is node prod-md-0-x7k2p (MachineName) so far; " in defer.message
            assert "has no address that gives its node's name yet" in defer.message

    def test_a_guess_of_one_source_makes_another_name_wait(self) -> None:
        view = machine("vsphere://x", ("InternalDNS", "vm1.corp"))
        for rules in (self.RULES, NodeNameRules((NodeNameSource.MACHINE_NAME, AUTOMATIC))):
            defer = deferred(not_called("vm2", rules), view)
            assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN

    def test_none_is_known(self) -> None:
        rules = NodeNameRules((NodeNameSource.MACHINE_ADDRESS, AUTOMATIC))
        assert deferred(lambda one: possible_names(one, rules, ()), machine("vsphere://x")).reason == (
            Reason.MACHINE_ADDRESSES_UNKNOWN
        )

    def test_many_names_are_not_all_shown(self) -> None:
        view = machine("vsphere://x", *(("Hostname", f"vm{number}") for number in range(8)))
        assert str(possible_names(view, by(AUTOMATIC), ())).endswith("vm5 or one of 2 more")


class TestDomains:
    """Guests that are called by their FQDN, where the Machine shows the short name, and the reverse."""

    RULES = NodeNameRules((NodeNameSource.MACHINE_NAME,), ("corp.example", "lab.example"))

    @pytest.mark.parametrize("name", ["prod-md-0-x7k2p", "prod-md-0-x7k2p.corp.example", "prod-md-0-x7k2p.lab.example"])
    def test_a_short_name_in_each_domain(self, name: str) -> None:
        require_node_name(name, machine("vsphere://x"), self.RULES, ())

    @pytest.mark.parametrize(
        "name",
        [
            *("other.corp.example", "prod-md-0-x7k2p.other.example", "prod-md-0-x7k2p.corp.example.other"),
            *("prod-md-0-x7k2p.x.corp.example", "corp.example", "x.prod-md-0-x7k2p.corp.example"),
        ],
    )
    def test_no_other_host_and_no_other_domain(self, name: str) -> None:
        deny = refused(lambda one: require_node_name(name, one, self.RULES, ()), machine("vsphere://x"))
        assert deny.reason == Reason.NODE_NAME_MISMATCH
        assert "prod-md-0-x7k2p.corp.example (as prod-md-0-x7k2p, by domain)" in deny.message
        assert "by nodeNames MachineName; domains corp.example, lab.example" in deny.message
        hint = "add the domain to nodeNames.domains in the policy" in deny.message
        assert hint is name.startswith("prod-md-0-x7k2p.")

    def test_a_fully_qualified_name(self) -> None:
        """Its host in each domain; and alone, if its own domain is one of them."""
        own, other = (machine("vsphere://x", ("Hostname", name)) for name in ("vm1.corp.example", "vm1.other.example"))
        rules = NodeNameRules((NodeNameSource.MACHINE_ADDRESS,), ("corp.example", "lab.example"))
        for view in (own, other):
            require_node_name("vm1.lab.example", view, rules, ())
        require_node_name("vm1", own, rules, ())
        require_node_name("vm1.corp.example", other, rules, ())
        refused(lambda one: require_node_name("vm1", one, rules, ()), other)

    @pytest.mark.parametrize("domains", [(), ("corp.example",)])
    def test_which_names_are_derived(self, domains: tuple[str, ...]) -> None:
        rules = NodeNameRules((NodeNameSource.MACHINE_NAME,), domains)
        view = machine("vsphere://x")
        assert is_derived("prod-md-0-x7k2p.corp.example", view, rules, ()) is bool(domains)
        assert not is_derived("prod-md-0-x7k2p", view, rules, ())
        assert not is_derived("x", machine("vsphere://x"), NodeNameRules((AUTOMATIC,), domains), ())

    def test_an_ip_address_has_no_domain(self) -> None:
        assert names_in_domains(("10.0.0.1",), ("corp.example",)) == {}

    def test_only_names(self) -> None:
        assert names_in_domains(("a" * 250, "localhost", "x."), ("corp.example",)) == {"x.corp.example": "x."}


@fast
@given(
    st.lists(st.sampled_from(["a", "b", "a.x", "b.y", "a.z", "10.0.0.1"]), max_size=4),
    st.lists(st.sampled_from(["x", "y"]), max_size=2, unique=True),
)
def test_derived_names_have_the_host_of_a_name_and_a_domain_of_the_policy(names: list[str], domains: list[str]) -> None:
    derived = names_in_domains(names, tuple(domains))
    for name, derived_from in derived.items():
        host, _, domain = name.partition(".")
        assert derived_from in names
        assert name not in names
        assert derived_from.partition(".")[0] == host
        assert domain in domains or (not domain and derived_from.partition(".")[2] in domains)
    for name in names:
        if name != "10.0.0.1":
            host = name.partition(".")[0]
            assert all(f"{host}.{domain}" in {*names, *derived} for domain in domains)
