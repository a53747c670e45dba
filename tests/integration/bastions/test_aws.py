"""The provider ``aws``: its contract on moto with the errors that moto lacks, and what only EC2 has."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.ssh.signatures import public_key_of
from node_access.bastions.aws.provider import provider
from node_access.bastions.aws.user_data import digest, render
from node_access.bastions.contract import (
    Bastion,
    Broken,
    Deadline,
    Ensured,
    Gone,
    InvalidSettings,
    Pending,
    Place,
    SettingsDocuments,
    Target,
)
from node_access.bastions.suite import BastionSuite, FakeCloud, Fault, bring_up, make_bastion, take_down
from tests.support.bastions.aws_cloud import AWSCloud
from tests.support.openssh import private_key

WHOLE: Final = os.environ.get("NODE_ATTESTATION_ACCESS") == "1"
SETTINGS: Final = {
    "region": "eu-central-1",
    "networks": {"a": {"subnetID": "subnet-0000000a", "standingSecurityGroupID": "sg-0000000a"}},
    "imageID": "ami-12345678",
}


class TestContract(BastionSuite):
    """The contract; with ``make access``, with every fault in every call."""

    stride = 1 if WHOLE else 7

    @pytest.fixture
    def cloud(self) -> Iterator[FakeCloud]:
        with AWSCloud() as cloud:
            yield cloud


@pytest.fixture
def cloud() -> Iterator[AWSCloud]:
    with AWSCloud() as cloud:
        yield cloud


def ensure(cloud: AWSCloud, bastion: Bastion) -> Ensured:
    return cloud.open().ensure(bastion, Deadline.after(60))


def test_the_instance_as_it_is_asked_for(cloud: AWSCloud) -> None:
    bastion = make_bastion(cloud)
    ready = bring_up(cloud, bastion)
    (instance,) = cloud.instances(bastion.reference.uid)
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    assert {one["GroupId"] for one in instance["SecurityGroups"]} == {
        cloud.standing,
        cloud.groups(bastion.reference.uid)[0]["GroupId"],
    }
    assert instance["ClientToken"].startswith(bastion.reference.uid)
    assert str(ready.endpoint.ip) == instance["PublicIpAddress"]
    assert str(ready.egress[0]) == f"{instance['PrivateIpAddress']}/32"


def test_every_volume_of_the_image_ends_with_the_instance(cloud: AWSCloud) -> None:
    """Although the image says that they stay, also the one with its system."""
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    (instance,) = cloud.instances(bastion.reference.uid)
    volumes = {one["DeviceName"]: one["Ebs"]["DeleteOnTermination"] for one in instance["BlockDeviceMappings"]}
    assert volumes == {"/dev/sdb": True, "/dev/xvda": True}
    take_down(cloud, bastion)
    assert cloud.volumes(bastion.reference.uid) == []


def test_an_image_that_is_not_there(cloud: AWSCloud) -> None:
    cloud.settings = {**cloud.settings, "imageID": "ami-87654321"}
    bastion = make_bastion(cloud)
    answers = [ensure(cloud, bastion) for _ in range(4)]
    assert isinstance(answers[-1], Broken)
    assert "ami-87654321" in answers[-1].reason
    take_down(cloud, bastion)


def test_no_group_but_its_own_is_changed(cloud: AWSCloud) -> None:
    """Test 48: Cluster API's provider revokes rules that it does not know in the nodes' group. This one adds none."""
    bastion = make_bastion(cloud)
    nodes = cloud.plain.create_security_group(GroupName="production-node", Description="nodes", VpcId=cloud.vpc)
    cloud.plain.authorize_security_group_ingress(
        GroupId=nodes["GroupId"],
        IpPermissions=[
            {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "UserIdGroupPairs": [{"GroupId": cloud.standing}]}
        ],
    )

    def others() -> Any:
        groups = cloud.plain.describe_security_groups()["SecurityGroups"]
        own = [one["GroupId"] for one in cloud.groups(bastion.reference.uid)]
        return sorted((one for one in groups if one["GroupId"] not in own), key=lambda one: one["GroupId"])

    before = others()
    bring_up(cloud, bastion)
    assert others() == before
    take_down(cloud, bastion)
    assert others() == before


@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_a_standing_group_with_rules_is_refused(cloud: AWSCloud, direction: str) -> None:
    """Its rules would be the bastion's, too."""
    rule = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    getattr(cloud.plain, f"authorize_security_group_{direction}")(GroupId=cloud.standing, IpPermissions=rule)
    bastion = make_bastion(cloud)
    answer = ensure(cloud, bastion)
    assert isinstance(answer, Broken)
    assert "no rules of its own" in answer.reason
    assert list(cloud.resources(bastion.reference.uid)) == []


@pytest.mark.parametrize("fault", ["the standing group has a rule", "a family without an address"])
def test_a_removed_network_is_closed_although_something_else_is_wrong(cloud: AWSCloud, fault: str) -> None:
    bastion = make_bastion(cloud, ingress=["198.51.100.7/32", "203.0.113.0/24"])
    bring_up(cloud, bastion)
    left = ["198.51.100.7/32"]
    if fault == "a family without an address":
        cloud.settings = {**cloud.settings, "ipv6": False}
        left = ["2001:db8::7/128"]
    else:
        rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "192.0.2.0/24"}]}
        cloud.plain.authorize_security_group_ingress(GroupId=cloud.standing, IpPermissions=[rule])
    changed = replace(bastion, ingress=tuple(map(ip_network, left)))
    assert isinstance(ensure(cloud, changed), Broken)
    (group,) = cloud.groups(bastion.reference.uid)
    open_to = {one["CidrIp"] for each in group["IpPermissions"] for one in each["IpRanges"]}
    assert open_to <= set(left)


def test_delete_looks_up_only_what_it_deletes(cloud: AWSCloud) -> None:
    """Test 41: Gardener's needs the subnet and the nodes' group."""
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    gone = {"a": {"subnetID": "subnet-00000000", "standingSecurityGroupID": "sg-00000000"}}
    cloud.settings = {**cloud.settings, "networks": gone}
    cloud.hooks.calls.clear()
    take_down(cloud, bastion)
    assert set(cloud.hooks.calls) == {
        "DescribeInstances",
        "TerminateInstances",
        "DescribeSecurityGroups",
        "DeleteSecurityGroup",
    }


def test_a_group_in_use_is_deleted_later(cloud: AWSCloud) -> None:
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    (group,) = cloud.groups(bastion.reference.uid)
    pair = [{"IpProtocol": "tcp", "FromPort": 1, "ToPort": 1, "UserIdGroupPairs": [{"GroupId": group["GroupId"]}]}]
    other = cloud.plain.create_security_group(GroupName="other", Description="refers", VpcId=cloud.vpc)["GroupId"]
    cloud.plain.authorize_security_group_ingress(GroupId=other, IpPermissions=pair)
    answers = []
    for _ in range(3):
        answers.append(cloud.open().delete(bastion.reference, Deadline.after(60)))
        cloud.settle()
    answer = answers[-1]
    assert isinstance(answer, Pending)
    assert "DependencyViolation" in answer.reason
    cloud.plain.revoke_security_group_ingress(GroupId=other, IpPermissions=pair)
    assert cloud.open().delete(bastion.reference, Deadline.after(60)) == Gone()


def test_an_instance_without_its_group_ends_first(cloud: AWSCloud) -> None:
    """Gone is said when nothing is left, and not when nothing more can be asked for."""
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    (instance,) = cloud.instances(bastion.reference.uid)
    cloud.plain.modify_instance_attribute(InstanceId=instance["InstanceId"], Groups=[cloud.standing])
    cloud.lose(bastion.reference.uid, "security group")
    assert isinstance(cloud.open().delete(bastion.reference, Deadline.after(60)), Pending)
    assert isinstance(cloud.open().delete(bastion.reference, Deadline.after(60)), Pending)
    cloud.settle()
    assert cloud.open().delete(bastion.reference, Deadline.after(60)) == Gone()


def test_another_authority_replaces_the_instance(cloud: AWSCloud) -> None:
    """It cannot be told while it runs. Its host key stays."""
    bastion = make_bastion(cloud)
    first = bring_up(cloud, bastion)
    (before,) = cloud.instances(bastion.reference.uid)
    changed = replace(bastion, user_authorities=(public_key_of(private_key("ed25519", 5)),))
    second = bring_up(cloud, changed)
    (after,) = cloud.instances(bastion.reference.uid)
    assert after["InstanceId"] != before["InstanceId"]
    assert second.host_keys == first.host_keys
    assert cloud.file(bastion.reference.uid, "authorized_keys").count("ssh-ed25519") == 1


def test_an_instance_is_replaced_long_after_another_one(cloud: AWSCloud) -> None:
    """EC2 shows a terminated instance for an hour, and refuses its client token for a day and more."""
    bastion = make_bastion(cloud)
    for _ in range(2):
        bring_up(cloud, bastion)
        cloud.lose(bastion.reference.uid, "instance")
        cloud.settle()
        cloud.hooks.forget_ended()
    bring_up(cloud, bastion)
    assert len(cloud.instances(bastion.reference.uid)) == 1
    cloud.lose(bastion.reference.uid, "instance")
    cloud.hooks.forget_ended()
    answer = ensure(cloud, bastion)
    assert isinstance(answer, Broken)
    assert answer.final


def test_an_instance_that_keeps_ending_is_given_up(cloud: AWSCloud) -> None:
    bastion = make_bastion(cloud)
    for _ in range(3):
        bring_up(cloud, bastion)
        cloud.lose(bastion.reference.uid, "instance")
    answer = ensure(cloud, bastion)
    assert isinstance(answer, Broken)
    assert answer.final


def test_a_missing_permission_is_said(cloud: AWSCloud) -> None:
    cloud.inject(Fault.NOT_PERMITTED, 1)
    answer = ensure(cloud, make_bastion(cloud))
    assert isinstance(answer, Broken)
    assert "UnauthorizedOperation" in answer.reason


def test_groups_that_somebody_changed_are_restored(cloud: AWSCloud) -> None:
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    (instance,) = cloud.instances(bastion.reference.uid)
    wide = cloud.plain.create_security_group(GroupName="wide", Description="wide", VpcId=cloud.vpc)["GroupId"]
    cloud.plain.modify_instance_attribute(InstanceId=instance["InstanceId"], Groups=[wide])
    bring_up(cloud, bastion)
    (instance,) = cloud.instances(bastion.reference.uid)
    assert wide not in {one["GroupId"] for one in instance["SecurityGroups"]}


def test_more_addresses_than_rules(cloud: AWSCloud) -> None:
    many = tuple(ip_address(f"10.0.1.{number}") for number in range(1, 62))
    targets = tuple(Target(many[start : start + 16]) for start in range(0, len(many), 16))
    answer = ensure(cloud, replace(make_bastion(cloud), targets=targets))
    assert isinstance(answer, Broken)
    assert answer.final


def test_user_data_is_the_same_each_time_and_holds_no_text_of_others(cloud: AWSCloud) -> None:
    """Test 45: a key's comment with `"; touch /x` has no way into it; the parsed key is written again."""
    bastion = make_bastion(cloud)
    assert render(bastion, 60) == render(bastion, 60)
    later = replace(bastion, not_after=bastion.not_after + timedelta(hours=1))
    assert digest(later) == digest(bastion)
    bring_up(cloud, bastion)
    data = cloud.user_data(bastion.reference.uid)
    assert all(isinstance(word, str) for command in data["runcmd"] for word in command)
    assert all(isinstance(command, list) for command in data["runcmd"])
    (line,) = cloud.file(bastion.reference.uid, "authorized_keys").splitlines()
    options, kind, _ = line.split(" ")
    assert kind == "ssh-ed25519"
    assert options.startswith(f'cert-authority,principals="{bastion.principal}",restrict,port-forwarding,permitopen="')


def test_sshd_lets_people_into_the_account(cloud: AWSCloud, tmp_path: Path) -> None:
    """cloud-init locks it, and test_sshd_lets_nobody_into_a_locked_account says what sshd does then."""
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/passwd").write_text("bastion:x:999:999::/nonexistent:/usr/sbin/nologin\n")
    (tmp_path / "etc/shadow").write_text("bastion:!:19000:0:99999:7:::\n")
    for program, *words in cloud.user_data(bastion.reference.uid)["runcmd"]:
        if program == "usermod":
            subprocess.run([program, "--prefix", tmp_path, *words], check=True, timeout=60)
    assert (tmp_path / "etc/shadow").read_text().startswith("bastion:*:")


@pytest.mark.parametrize("service", ["sshd", "ssh"])
def test_sshd_gets_no_keys_of_ec2_instance_connect(cloud: AWSCloud, tmp_path: Path, service: str) -> None:
    """Images of Amazon and Ubuntu have it on sshd's command line, which counts before its file."""
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    units = tmp_path / "usr/lib/systemd/system"
    image = units / f"{service}.service.d/ec2-instance-connect.conf"
    image.parent.mkdir(parents=True)
    (units / f"{service}.service").write_text("[Service]\nType=notify\nExecStart=/usr/sbin/sshd -D\n")
    command = 'ExecStart=/usr/sbin/sshd -D -o "AuthorizedKeysCommand /usr/bin/eic_run_authorized_keys %%u %%f"'
    image.write_text(f"[Service]\nExecStart=\n{command}\n")
    for file in cloud.user_data(bastion.reference.uid)["write_files"]:
        path = tmp_path / file["path"].removeprefix("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(file["content"]))
    words = ["systemd-analyze", f"--root={tmp_path}", "cat-config", f"systemd/system/{service}.service"]
    ran = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("ExecStart")]
    assert command in lines
    assert lines[-2:] == ["ExecStart=", "ExecStart=/usr/sbin/sshd -D -f /etc/ssh/node-access/sshd_config"]


def test_systemd_takes_the_timer(cloud: AWSCloud, tmp_path: Path) -> None:
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    for name in ("node-access-end.timer", "node-access-end.service"):
        (tmp_path / name).write_text(cloud.file(bastion.reference.uid, name))
    unit = tmp_path / "node-access-end.timer"
    ran = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.parametrize(
    ("operator", "policy"),
    [
        ({}, {"network": "b"}),
        ({}, {"roleARN": "arn:aws:iam::111122223333:role/admin"}),
        ({"imageID": "ami; touch /x"}, {}),
        ({"networks": {}}, {}),
        ({"network": "b"}, {}),
        ({"ipv6": "yes"}, {}),
        ({"networks": {"a": {"subnetID": "subnet-00000000"}}}, {}),
    ],
)
def test_settings_are_strict(operator: dict[str, Any], policy: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        provider.settings(SettingsDocuments({**SETTINGS, **operator}, policy))


def test_a_policy_chooses_among_the_operators_networks() -> None:
    networks = {
        "a": {"subnetID": "subnet-0000000a", "standingSecurityGroupID": "sg-0000000a"},
        "b": {"subnetID": "subnet-0000000b", "standingSecurityGroupID": "sg-0000000b"},
    }
    documents = SettingsDocuments({**SETTINGS, "networks": networks}, {"network": "b"})
    assert provider.settings(documents).network.subnet == "subnet-0000000b"


def test_another_role_or_profile_of_the_same_account_is_the_same_place(cloud: AWSCloud) -> None:
    def place(**changed: str) -> Place:
        return provider.place(provider.settings(SettingsDocuments({**cloud.settings, **changed})))

    role = "arn:aws:iam::111122223333:role/bastions"
    assert place(roleARN=role) == place(roleARN=f"{role}-2", profile="other", externalID="7")
    assert place(roleARN=role) != place(roleARN=role.replace("1111", "4444"))
    assert place(roleARN=role) == place(roleARN=role, instanceType="t3.micro", imageID="ami-87654321")
