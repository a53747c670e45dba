"""Which objects of a Cluster are read, and what is said of those that are not."""

from __future__ import annotations

from typing import Any

import pytest

from signer.kube.errors import Cause, Forbidden, Unreachable
from signer.ssh.ways_in import findings, reading
from signer.ssh.ways_in.findings import WaysIn
from signer.ssh.ways_in.reading import NoReference, Reference, reference_of
from tests.unit.signer.ssh.ways_in.management import KEY, Management, reference, resource

KEYS: Any = {"users": [{"name": "capi", "sshAuthorizedKeys": ["k"]}]}
LAUNCH_KEY: Any = {"sshKeyName": "ops"}


def template(spec: Any) -> Any:
    return {"template": {"spec": spec}}


def machine(name: str, kind: str = "OpenStackMachine", bootstrap: str = "KubeadmConfig") -> Any:
    return {
        "clusterName": KEY.name,
        "infrastructureRef": reference(kind, name),
        "bootstrap": {"configRef": reference(bootstrap, name)},
    }


def owner(kind: str, name: str, bootstrap: str = "KubeadmConfigTemplate") -> Any:
    """The spec of a MachineDeployment or MachinePool."""
    configuration = {"configRef": reference(bootstrap, name)}
    return template({"infrastructureRef": reference(kind, name), "bootstrap": configuration})


def closed() -> Management:
    """A Cluster with everything, that declares nothing."""
    management = Management()
    cluster = management.objects[resource("Cluster").object(KEY.name, KEY.namespace)]["spec"]
    cluster["infrastructureRef"] = reference("OpenStackCluster", "blue")
    cluster["controlPlaneRef"] = reference("KubeadmControlPlane", "cp")
    infrastructure = {"spec": {"infrastructureRef": reference("OpenStackMachineTemplate", "cp")}}
    management.put("KubeadmControlPlane", "cp", {"kubeadmConfigSpec": {}, "machineTemplate": infrastructure})
    management.put("OpenStackMachineTemplate", "cp", template({}))
    management.put("MachineDeployment", "md", owner("OpenStackMachineTemplate", "md"))
    management.put("OpenStackMachineTemplate", "md", template({}))
    management.put("KubeadmConfigTemplate", "md", template({}))
    management.put("MachinePool", "mp", owner("AWSMachinePool", "mp", "KubeadmConfig"))
    management.put("AWSMachinePool", "mp", {})
    management.put("KubeadmConfig", "mp", {})
    management.put("Machine", "m1", machine("m1"))
    management.put("OpenStackMachine", "m1", {})
    management.put("KubeadmConfig", "m1", {})
    return management


async def ways(management: Management) -> WaysIn:
    return await management.reader().read()


async def declared(management: Management) -> list[str]:
    found = await ways(management)
    assert (found.possible, found.unread) == ((), ())
    return [f"{one.kind} {', '.join(one.names)}: {one.field}" for one in found.declared]


async def unread(management: Management) -> list[str]:
    return [str(one) for one in (await ways(management)).unread]


async def test_nothing_is_declared() -> None:
    found = await ways(closed())
    assert (found.declared, found.possible, found.unread) == ((), (), ())
    assert "Systems Manager's agent" in found.unseen
    assert "QEMU's guest agent, by the hypervisor's administrators" in found.unseen


@pytest.mark.parametrize(
    ("kind", "name", "spec", "expected"),
    [
        ("OpenStackMachineTemplate", "cp", template(LAUNCH_KEY), "spec.template.spec.sshKeyName"),
        ("OpenStackMachineTemplate", "md", template(LAUNCH_KEY), "spec.template.spec.sshKeyName"),
        ("KubeadmConfigTemplate", "md", template(KEYS), "spec.template.spec.users[0].sshAuthorizedKeys"),
        ("AWSMachinePool", "mp", {"awsLaunchTemplate": LAUNCH_KEY}, "spec.awsLaunchTemplate.sshKeyName"),
        ("KubeadmConfig", "mp", KEYS, "spec.users[0].sshAuthorizedKeys"),
        ("OpenStackMachine", "m1", LAUNCH_KEY, "spec.sshKeyName"),
        ("KubeadmConfig", "m1", KEYS, "spec.users[0].sshAuthorizedKeys"),
    ],
)
async def test_each_object_is_read(kind: str, name: str, spec: Any, expected: str) -> None:
    management = closed()
    management.put(kind, name, spec)
    assert await declared(management) == [f"{kind} {name}: {expected}"]


async def test_the_control_plane_is_read_in_both_versions() -> None:
    management = closed()
    infrastructure = {"infrastructureRef": reference("OpenStackMachineTemplate", "cp", v1beta1=True)}
    management.put("KubeadmControlPlane", "cp", {"kubeadmConfigSpec": KEYS, "machineTemplate": infrastructure})
    management.put("OpenStackMachineTemplate", "cp", template(LAUNCH_KEY))
    assert await declared(management) == [
        "KubeadmControlPlane cp: spec.kubeadmConfigSpec.users[0].sshAuthorizedKeys",
        "OpenStackMachineTemplate cp: spec.template.spec.sshKeyName",
    ]


async def test_objects_of_another_cluster_are_not_read() -> None:
    management = closed()
    management.put("OpenStackMachine", "of-red", LAUNCH_KEY, cluster="red")
    management.put("KubeadmConfig", "of-red", KEYS, cluster="red")
    management.put("OpenStackMachineTemplate", "of-nobody", template(LAUNCH_KEY))
    assert await declared(management) == []


@pytest.mark.parametrize(
    ("spec", "expected"), [({"sshKeyName": ""}, []), ({}, ["AWSMachine m2: spec.sshKeyName"])], ids=["closed", "open"]
)
async def test_the_infra_cluster_counts(spec: Any, expected: list[str]) -> None:
    management = closed()
    cluster = management.objects[resource("Cluster").object(KEY.name, KEY.namespace)]["spec"]
    cluster["infrastructureRef"] = reference("AWSCluster", "blue")
    management.put("AWSCluster", "blue", spec)
    management.put("Machine", "m2", machine("m2", "AWSMachine"))
    management.put("AWSMachine", "m2", {})
    assert await declared(management) == expected
    management.refuse("AWSCluster", "blue")
    found = await ways(management)
    assert [one.field for one in found.possible] == ["spec.sshKeyName"]
    assert [str(one) for one in found.unread] == ["AWSCluster blue: 403 Forbidden: may not"]


@pytest.mark.parametrize(
    ("kind", "name", "what"),
    [
        ("KubeadmControlPlane", "cp", "KubeadmControlPlane cp"),
        ("OpenStackMachineTemplate", "md", "OpenStackMachineTemplate md"),
        ("KubeadmConfigTemplate", "md", "KubeadmConfigTemplate md"),
        ("AWSMachinePool", "mp", "AWSMachinePool mp"),
        ("MachineDeployment", "", "machinedeployments.cluster.x-k8s.io"),
        ("MachinePool", "", "machinepools.cluster.x-k8s.io"),
        ("Machine", "", "machines.cluster.x-k8s.io"),
        ("KubeadmConfig", "", "kubeadmconfigs.bootstrap.cluster.x-k8s.io"),
        ("OpenStackMachine", "", "openstackmachines.infrastructure.cluster.x-k8s.io"),
    ],
)
async def test_what_may_not_be_read_is_named(kind: str, name: str, what: str) -> None:
    management = closed()
    management.refuse(kind, name)
    assert await unread(management) == [f"{what}: 403 Forbidden: may not"]


async def test_what_does_not_exist_is_named() -> None:
    management = closed()
    del management.objects[resource("KubeadmConfigTemplate").object("md", KEY.namespace)]
    management.kinds.remove("AWSMachinePool")
    assert await unread(management) == [
        "KubeadmConfigTemplate md: does not exist",
        "AWSMachinePool in API group infrastructure.cluster.x-k8s.io: is not served",
    ]


async def test_discovery_that_fails_is_named_once() -> None:
    management = closed()
    management.refused["/apis/infrastructure.cluster.x-k8s.io"] = Unreachable("away", cause=Cause.RESET)
    assert await unread(management) == ["API group infrastructure.cluster.x-k8s.io: Unreachable: away"]


async def test_the_cluster_itself() -> None:
    management = closed()
    management.refuse("Cluster", KEY.name)
    with pytest.raises(Forbidden):
        await ways(management)


async def test_other_kinds_are_named() -> None:
    management = closed()
    cluster = management.objects[resource("Cluster").object(KEY.name, KEY.namespace)]["spec"]
    cluster["controlPlaneRef"] = {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "RKE2ControlPlane", "name": "r"}
    other = {"apiGroup": "example.org", "kind": "Secret", "name": "s"}
    management.put("Machine", "m2", {"infrastructureRef": reference("NewMachine", "m2"), "bootstrap": {}})
    management.put("NewMachine", "m2", {"sshKeys": ["k"]})
    management.put("Machine", "m3", {"infrastructureRef": other, "bootstrap": {"configRef": other}})
    management.put("MachinePool", "mp", template({}))
    found = await ways(management)
    assert [str(one) for one in found.declared] == ["NewMachine m2: spec.sshKeys speaks of SSH keys, and is not empty"]
    assert [str(one) for one in found.unread] == [
        "RKE2ControlPlane r: the fields of that kind are not known",
        "an infrastructureRef: names no object",
        "bootstrap data without a configRef: only their Secret has them",
        "NewMachine: only fields whose names speak of SSH keys are known",
        "Secret in API group example.org: is not read",
        "Secret in API group example.org: the fields of that kind are not known",
    ]
    assert not [path for path in management.asked if "secret" in path or "example.org" in path]


@pytest.mark.parametrize("kind", ["KamajiControlPlane", "K0smotronControlPlane"])
async def test_control_planes_without_machines(kind: str) -> None:
    management = closed()
    cluster = management.objects[resource("Cluster").object(KEY.name, KEY.namespace)]["spec"]
    cluster["controlPlaneRef"] = {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": kind, "name": "r"}
    assert await unread(management) == []


async def test_machines_without_fields_are_not_listed() -> None:
    management = closed()
    management.put("Machine", "m2", machine("m2", "VSphereMachine"))
    found = await ways(management)
    assert found.unread == ()
    assert "VMware Tools, by vSphere's administrators" in found.unseen
    assert not [path for path in management.asked if "vsphere" in path]


async def test_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    management = closed()
    for number in range(6):
        management.put("MachineDeployment", f"d{number}", owner("OpenStackMachineTemplate", f"d{number}"))
        management.put("Machine", f"n{number}", machine("m1", f"New{number}Machine"))
        management.put("OpenStackMachineTemplate", f"d{number}", template({}))
        management.put("KubeadmConfigTemplate", f"d{number}", template({}))
        management.put(f"New{number}Machine", "m1", {f"sshKey{'s' * (number % 2)}": "x"})
    monkeypatch.setattr(reading, "MAXIMUM_REFERENCES", 5)
    monkeypatch.setattr(reading, "MAXIMUM_KINDS", 2)
    monkeypatch.setattr(reading, "MAXIMUM_OBJECTS", 8)
    said = await unread(management)
    assert "templates and pools: there are more than 5" in said
    assert "infrastructure machines: they are of more than 2 kinds" in said
    assert "machinedeployments.cluster.x-k8s.io: there are more than 8" in said
    asked = [path for path in management.asked if path.count("/") > 3]
    assert sum("templates/" in path or "pools/" in path for path in asked) == 5
    assert sum(path.endswith("machines") and "infrastructure" in path for path in asked) == 2
    monkeypatch.setattr(findings, "MAXIMUM_UNREAD", 2)
    assert len(await unread(management)) == 2


async def test_a_second_pass_begins_anew() -> None:
    management = closed()
    management.put("OpenStackMachine", "m1", LAUNCH_KEY)
    reader = management.reader()
    assert (await reader.read()).declared
    management.put("OpenStackMachine", "m1", {})
    assert await reader.read() == await ways(closed())


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"apiGroup": "g.x", "kind": "K", "name": "n"}, Reference("g.x", "K", "n")),
        ({"apiVersion": "g.x/v1", "kind": "K", "name": "n"}, Reference("g.x", "K", "n")),
        ({"apiVersion": "v1", "kind": "Secret", "name": "n"}, NoReference()),
        ({"apiGroup": "g.x", "kind": "K", "name": "../n"}, NoReference()),
        ({"apiGroup": "g.x", "kind": "K/x", "name": "n"}, NoReference()),
        ({"apiGroup": "g/../x", "kind": "K", "name": "n"}, NoReference()),
        ({"apiGroup": 5, "kind": [], "name": None}, NoReference()),
        ({}, NoReference()),
    ],
)
def test_references(found: Any, expected: Any) -> None:
    assert reference_of(found) == expected
