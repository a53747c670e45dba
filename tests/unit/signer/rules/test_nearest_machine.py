"""What differs between the provider ID that a node claims and that of its Machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.rules.nearest_machine import (
    FarApart,
    NearMachine,
    NoneNear,
    differences,
    nearest_of,
    parts_to_look_up,
)
from tests.unit.signer.builders import machine_view

UUID = "4c4c4544-0051-3610-8031-b4c04f4d3533"
AZURE = "azure:///subscriptions/s1/resourceGroups/{}/providers/Microsoft.Compute/virtualMachines/vm-1"
SCALE_SET = (
    "azure:///subscriptions/s1/resourceGroups/rg/providers/Microsoft.Compute/virtualMachineScaleSets/{}"
    "/virtualMachines/{}"
)
CASE = " (upper and lower case differ)"


def said(part: str, claimed: str, actual: str, more: str = "") -> str:
    return f"the {part} is {claimed} in the request and {actual} in the Machine{more}"


@pytest.mark.parametrize(
    ("claimed", "actual", "expected"),
    [
        # OpenStack: with and without a region (kcm issue 1077).
        (f"openstack:///{UUID}", f"openstack://RegionOne/{UUID}", [said("region", "none", "RegionOne")]),
        (f"openstack://RegionOne/{UUID}", f"openstack:///{UUID}", [said("region", "RegionOne", "none")]),
        (f"openstack://RegionTwo/{UUID}", f"openstack://RegionOne/{UUID}", [said("region", "RegionTwo", "RegionOne")]),
        (
            f"openstack://regionone/{UUID}",
            f"openstack://RegionOne/{UUID}",
            [said("region", "regionone", "RegionOne", CASE)],
        ),
        (
            f"openstack:///{UUID.upper()}",
            f"openstack:///{UUID}",
            [said("server ID", UUID.upper(), UUID, CASE)],
        ),
        (
            f"openstack://{UUID}",
            f"openstack:///{UUID}",
            [said("number of slashes", f"openstack://{UUID}", f"openstack:///{UUID}")],
        ),
        # Azure: resource IDs without case (CAPZ issues 2817 and 2533).
        (AZURE.format("MyGroup"), AZURE.format("mygroup"), [said("resource group", "MyGroup", "mygroup", CASE)]),
        (AZURE.format("one"), AZURE.format("two"), [said("resource group", "one", "two")]),
        (
            AZURE.format("rg").replace("/s1/", "/s2/"),
            AZURE.format("rg"),
            [said("subscription", "s2", "s1")],
        ),
        (
            AZURE.format("rg").replace("resourceGroups", "resourcegroups"),
            AZURE.format("rg"),
            [said("path", "resourcegroups", "resourceGroups", CASE)],
        ),
        (
            AZURE.format("rg").replace("vm-1", "VM-1"),
            AZURE.format("rg"),
            [said("virtual machine", "VM-1", "vm-1", CASE)],
        ),
        (
            AZURE.format("rg").replace("Microsoft.Compute", "microsoft.compute"),
            AZURE.format("rg"),
            [said("resource provider", "microsoft.compute", "Microsoft.Compute", CASE)],
        ),
        (AZURE.format("rg").replace(":///", "://"), AZURE.format("rg"), ["number of slashes"]),
        (SCALE_SET.format("Pool", "0"), SCALE_SET.format("pool", "0"), [said("scale set", "Pool", "pool", CASE)]),
        # AWS: with and without an availability zone.
        ("aws:///i-0a1", "aws:///eu-west-1a/i-0a1", [said("availability zone", "none", "eu-west-1a")]),
        ("aws:///eu-west-1b/i-0a1", "aws:///eu-west-1a/i-0a1", [said("availability zone", "eu-west-1b", "eu-west-1a")]),
        ("aws://eu-west-1a/i-0a1", "aws:///eu-west-1a/i-0a1", ["number of slashes"]),
        (
            "aws:///eu-west-1/eu-west-1a/i-0a1",
            "aws:///eu-west-1a/i-0a1",
            [said("part number 3 from the end", "eu-west-1", "none")],
        ),
        # Google Cloud.
        ("gce://other/z1/n1", "gce://project/z1/n1", [said("project", "other", "project")]),
        ("gce://project/z2/n1", "gce://project/z1/n1", [said("zone", "z2", "z1")]),
        ("gce://other/z2/n1", "gce://project/z1/n1", [said("zone", "z2", "z1"), said("project", "other", "project")]),
        ("gce:///z1/n1", "gce://project/z1/n1", [said("project", "none", "project")]),
        # vSphere: the BIOS writes the UUID in upper case.
        (f"vsphere://{UUID.upper()}", f"vsphere://{UUID}", [said("UUID", UUID.upper(), UUID, CASE)]),
        (f"vsphere:///{UUID}", f"vsphere://{UUID}", ["number of slashes"]),
        (f"VSPHERE://{UUID}", f"vsphere://{UUID}", [said("scheme", "VSPHERE", "vsphere", CASE)]),
        # Containers.
        ("docker:///node-1", "docker:////node-1", ["number of slashes"]),
        ("docker:////node-1", "kind:////node-1", [said("scheme", "docker", "kind")]),
        ("kind://docker/one/node-1", "kind://podman/one/node-1", [said("container runtime", "docker", "podman")]),
        ("kind://docker/two/node-1", "kind://docker/one/node-1", [said("cluster", "two", "one")]),
        ("docker:////node-1/", "docker:////node-1", ["number of slashes"]),
        # Bare metal and others.
        ("metal3://ns/host", "metal3://ns/host/m3m", [said("trailing part", "none", "m3m")]),
        ("metal3://other/host/m3m", "metal3://ns/host/m3m", [said("namespace", "other", "ns")]),
        ("metal3://ns/other/m3m", "metal3://ns/host/m3m", [said("BareMetalHost", "other", "host")]),
        ("maas:///abc123", "maas:///zone-1/abc123", [said("zone", "none", "zone-1")]),
        (f"nutanix://{UUID.upper()}", f"nutanix://{UUID}", [said("UUID", UUID.upper(), UUID, CASE)]),
        ("openstack:///u/extra", "openstack:///u", [said("trailing part", "extra", "none")]),
        ("hcloud://bm-7", "hrobot://bm-7", [said("scheme", "hcloud", "hrobot")]),
        ("cn-hangzhou.i-bp1", "alicloud:///cn-hangzhou.i-bp1", [said("scheme", "none", "alicloud")]),
        ("test:///rack/m", "test:///m", [said("part before the last", "rack", "none")]),
        ("test:///M", "test:///m", [said("last part", "M", "m", CASE)]),
    ],
)
def test_what_differs(claimed: str, actual: str, expected: list[str]) -> None:
    found = differences(claimed, actual)
    assert not isinstance(found, FarApart)
    assert len(found) == len(expected)
    assert all(text in str(one) for one, text in zip(found, expected, strict=True)), [str(one) for one in found]


@pytest.mark.parametrize(
    ("claimed", "actual"),
    [
        ("aws:///eu-west-1a/i-0a1", "aws:///eu-west-1a/i-0b2"),
        ("openstack:///u1", "openstack:///u2"),
        ("docker:////node-1", "docker:////node-10"),
        ("gce://a/b/n1", "azure://c/d/n1"),
        ("test:///", "test:///m"),
        ("test:///m", ""),
        (SCALE_SET.format("pool", "0"), SCALE_SET.format("pool", "1")),
        (SCALE_SET.format("one", "0").replace("/s1/", "/s2/").replace("/rg/", "/rh/"), SCALE_SET.format("two", "0")),
    ],
)
def test_ids_of_different_machines(claimed: str, actual: str) -> None:
    assert isinstance(differences(claimed, actual), FarApart)


def test_the_nearest_is_the_one_with_the_fewest_differences() -> None:
    near = machine_view(name="near", provider_id="gce://project/z1/n1")
    far = machine_view(name="far", provider_id="gce://other/z2/n1")
    without = machine_view(name="without", provider_id="")
    found = nearest_of("gce://project/z2/n1".replace("z2", "z3"), [far, without, near])
    assert isinstance(found, NearMachine)
    assert str(found) == (
        "the nearest is Machine team-a/near with gce://project/z1/n1: "
        "the zone is z3 in the request and z1 in the Machine"
    )


def test_of_several_that_are_equally_near_none_is_named() -> None:
    """Instances of scale sets have small numbers, and zones have machines of one name."""
    machines = [machine_view(name=zone, provider_id=f"gce://project/{zone}/n1") for zone in ("z1", "z2")]
    assert nearest_of("gce://project/z3/n1", machines) == NoneNear()
    assert nearest_of("gce://project/z3/n1", []) == NoneNear()


def test_the_parts_to_look_up() -> None:
    assert parts_to_look_up("openstack://RegionOne/u") == ("u", "RegionOne")
    assert parts_to_look_up("aws:///eu-west-1a/i-0a1/") == ("i-0a1", "eu-west-1a")
    assert parts_to_look_up("vsphere://u") == ("u",)
    assert parts_to_look_up("test:///m/m") == ("m",)
    assert parts_to_look_up("test://") == ()


@given(st.text(max_size=512), st.text(max_size=512))
def test_any_texts_give_a_short_printable_message(claimed: str, actual: str) -> None:
    machine = machine_view(provider_id=actual)
    found = nearest_of(claimed, [machine])
    if isinstance(found, NearMachine):
        assert len(str(found)) <= 1600
        assert str(found).isascii()
        assert str(found).isprintable()


@given(
    st.lists(st.sampled_from(["a", "A", "b", ""]), max_size=5),
    st.lists(st.sampled_from(["a", "A", "b", ""]), max_size=5),
)
def test_a_near_machine_ends_in_a_part_that_is_looked_up(claimed: list[str], actual: list[str]) -> None:
    """Apart from one whose ID has a part more at the end: no index has it."""
    ours, theirs = f"test://{'/'.join(claimed)}", f"test://{'/'.join(actual)}"
    found = differences(ours, theirs)
    if isinstance(found, FarApart) or any(one.part == "trailing part" and not one.claimed for one in found):
        return
    last = theirs.rstrip("/").rpartition("/")[2].lower()
    assert last in [part.lower() for part in parts_to_look_up(ours)] or ours == theirs
