"""moto's EC2, with the errors that it lacks, as the cloud of the provider ``aws``."""

from __future__ import annotations

import base64
import ipaddress
import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import boto3
import pytest
from moto import mock_aws

from attestors.wire.ssh.options import parse_network
from node_access.bastions.aws.ec2 import EC2
from node_access.bastions.aws.provider import provider
from node_access.bastions.aws.resources import AWSBastions
from node_access.bastions.contract import (
    Bastion,
    BastionProvider,
    IPAddress,
    Network,
    Scope,
    SettingsDocuments,
    Surroundings,
)
from node_access.bastions.owned import BASTION_MARK, CLUSTER_MARK, OWNER_MARK, UID_MARK
from node_access.bastions.suite import OWNER, Fault
from tests.support.bastions.ec2_errors import IMAGE, EC2Errors
from tests.support.closing import ClosedAtTheEnd

REGION: Final = "eu-central-1"
_FILTER_OF_UID: Final = f"tag:{UID_MARK}"


class AWSCloud(ClosedAtTheEnd):
    """See :class:`node_access.bastions.suite.FakeCloud`."""

    faults = frozenset(Fault)
    kinds: tuple[str, ...] = ("instance", "security group", "instance and security group")
    rules_can_be_widened = True
    families = frozenset({4, 6})

    def __init__(self) -> None:
        self._patch = pytest.MonkeyPatch()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            self._patch.setenv(name, "testing")
        self._patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        self._patch.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # it takes a second, and images are not looked at
        self._mock = mock_aws()
        self._mock.start()
        self.plain = boto3.client("ec2", region_name=REGION)
        vpc = self.plain.create_vpc(CidrBlock="10.0.0.0/16", AmazonProvidedIpv6CidrBlock=True)["Vpc"]["VpcId"]
        self.vpc = vpc
        self.subnet = self._subnet()
        self.standing = self._standing_group()
        self.hooks = EC2Errors(self.plain)
        self._hooked = boto3.client("ec2", region_name=REGION)
        self.hooks.install(self._hooked)
        self.settings: Mapping[str, Any] = {
            "region": REGION,
            "networks": {"a": {"subnetID": self.subnet, "standingSecurityGroupID": self.standing}},
            "imageID": IMAGE,
            "instanceType": "t3.nano",
            "ipv6": True,
        }
        self.without_ipv6: Mapping[str, Any] = {**self.settings, "ipv6": False}
        self.elsewhere: Sequence[Mapping[str, Any]] = [
            {**self.settings, name: value}
            for name, value in (
                ("region", "eu-west-1"),
                ("roleARN", "arn:aws:iam::111122223333:role/bastions"),
                ("profile", "other"),
                ("endpointURL", "https://ec2.example.com"),
            )
        ]

    def _subnet(self) -> str:
        vpc = self.plain.describe_vpcs(VpcIds=[self.vpc])["Vpcs"][0]
        six = ipaddress.ip_network(vpc["Ipv6CidrBlockAssociationSet"][0]["Ipv6CidrBlock"])
        network = str(next(iter(six.subnets(new_prefix=64))))
        made = self.plain.create_subnet(VpcId=self.vpc, CidrBlock="10.0.9.0/24", Ipv6CidrBlock=network)
        return str(made["Subnet"]["SubnetId"])

    def _standing_group(self) -> str:
        made = self.plain.create_security_group(GroupName="node-access", Description="standing", VpcId=self.vpc)
        (group,) = self.plain.describe_security_groups(GroupIds=[made["GroupId"]])["SecurityGroups"]
        self.plain.revoke_security_group_egress(GroupId=group["GroupId"], IpPermissions=group["IpPermissionsEgress"])
        return str(group["GroupId"])

    @property
    def provider(self) -> BastionProvider:
        return provider

    def open(self, owner: str = OWNER) -> AWSBastions:
        settings = provider.settings(SettingsDocuments(self.settings))
        return AWSBastions(settings, Surroundings(Scope(owner), now=self.now), lambda: EC2(self._hooked))

    def now(self) -> datetime:
        return datetime.now(UTC)

    def inject(self, fault: Fault, call: int) -> None:
        self.hooks.inject(fault, call)

    def has_failed(self) -> bool:
        return self.hooks.failed

    def settle(self) -> None:
        self.hooks.settle()

    def instances(self, uid: str) -> list[dict[str, Any]]:
        """The bastion's instances that are not terminated."""
        found = self.plain.describe_instances(Filters=[{"Name": _FILTER_OF_UID, "Values": [uid]}])["Reservations"]
        return [one for each in found for one in each["Instances"] if one["State"]["Name"] != "terminated"]

    def groups(self, uid: str) -> list[dict[str, Any]]:
        """The bastion's security groups."""
        found = self.plain.describe_security_groups(Filters=[{"Name": _FILTER_OF_UID, "Values": [uid]}])
        groups: list[dict[str, Any]] = found["SecurityGroups"]
        return groups

    def resources(self, uid: str) -> Sequence[str]:
        return [
            *(f"instance {one['InstanceId']}" for one in self.instances(uid)),
            *(f"security group {one['GroupId']}" for one in self.groups(uid)),
            *(f"volume {one['VolumeId']}" for one in self.volumes(uid)),
        ]

    def volumes(self, uid: str) -> list[dict[str, Any]]:
        """The volumes of the bastion's instances."""
        found: list[dict[str, Any]] = self.plain.describe_volumes(Filters=[{"Name": _FILTER_OF_UID, "Values": [uid]}])[
            "Volumes"
        ]
        return found

    def complete(self) -> int:
        return 4

    def user_data(self, uid: str) -> dict[str, Any]:
        """What the instance was told, parsed."""
        (instance,) = self.instances(uid)
        answer = self.plain.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute="userData")
        text = base64.b64decode(answer["UserData"]["Value"]).decode()
        head, _, body = text.partition("\n")
        assert head == "#cloud-config"
        parsed: dict[str, Any] = json.loads(body)
        return parsed

    def file(self, uid: str, name: str) -> str:
        """A file that the instance was told to write."""
        (content,) = (one["content"] for one in self.user_data(uid)["write_files"] if one["path"].endswith(name))
        return base64.b64decode(content).decode()

    def open_to(self, uid: str) -> frozenset[Network]:
        if not self.instances(uid):
            return frozenset()
        (instance,) = self.instances(uid)
        groups = [one["GroupId"] for one in instance["SecurityGroups"]]
        found: set[Network] = set()
        for group in self.plain.describe_security_groups(GroupIds=groups)["SecurityGroups"]:
            for permission in group["IpPermissions"]:
                assert (permission["IpProtocol"], permission["FromPort"], permission["ToPort"]) == ("tcp", 22, 22)
                found |= _networks(permission)
        return frozenset(found)

    def destinations(self, uid: str) -> frozenset[tuple[IPAddress, int]]:
        (instance,) = self.instances(uid)
        groups = [one["GroupId"] for one in instance["SecurityGroups"]]
        found: set[tuple[IPAddress, int]] = set()
        for group in self.plain.describe_security_groups(GroupIds=groups)["SecurityGroups"]:
            for permission in group["IpPermissionsEgress"]:
                assert permission["IpProtocol"] == "tcp", permission
                assert permission["FromPort"] == permission["ToPort"]
                for network in _networks(permission):
                    assert network.num_addresses == 1
                    found.add((network.network_address, permission["FromPort"]))
        permitted = re.findall(r'permitopen="([^"]+)"', self.file(uid, "authorized_keys"))
        assert len(permitted) == len(found)
        return frozenset(found)

    def widen(self, uid: str) -> None:
        (group,) = self.groups(uid)
        wide = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "203.0.113.0/24"}]}]
        self.plain.authorize_security_group_ingress(GroupId=group["GroupId"], IpPermissions=wide)

    def lose(self, uid: str, kind: str) -> None:
        if "instance" in kind:
            self.plain.terminate_instances(InstanceIds=[one["InstanceId"] for one in self.instances(uid)])
        if "security group" in kind:
            for group in self.groups(uid):
                self.plain.delete_security_group(GroupId=group["GroupId"])

    def add_foreign(self, bastion: Bastion) -> Callable[[], bool]:
        names, name = bastion.reference, f"node-access-{bastion.reference.uid}"
        others = [
            {"Name": name, BASTION_MARK: f"{names.namespace}/{names.name}", CLUSTER_MARK: names.cluster},
            {"Name": name, UID_MARK: names.uid, OWNER_MARK: "another-owner"},
        ]
        group_ids, instance_ids = [], []
        for number, tags in enumerate(others):
            listed = [{"Key": key, "Value": value} for key, value in tags.items()]
            group = self.plain.create_security_group(
                GroupName=f"{name}-{number}",
                Description="somebody else's",
                VpcId=self.vpc,
                TagSpecifications=[{"ResourceType": "security-group", "Tags": listed}],
            )["GroupId"]
            run = self.plain.run_instances(
                ImageId=self.settings["imageID"],
                MinCount=1,
                MaxCount=1,
                SubnetId=self.subnet,
                SecurityGroupIds=[group],
                TagSpecifications=[{"ResourceType": "instance", "Tags": listed}],
            )
            group_ids.append(group)
            instance_ids.append(run["Instances"][0]["InstanceId"])

        def seen() -> Any:
            groups = self.plain.describe_security_groups(GroupIds=group_ids)["SecurityGroups"]
            instances = self.plain.describe_instances(InstanceIds=instance_ids)["Reservations"]
            return groups, [(one["State"], one["SecurityGroups"]) for each in instances for one in each["Instances"]]

        before = seen()
        return lambda: seen() == before

    def ends_at(self, uid: str) -> datetime:
        (instance,) = self.instances(uid)
        attribute = "instanceInitiatedShutdownBehavior"
        answer = self.plain.describe_instance_attribute(InstanceId=instance["InstanceId"], Attribute=attribute)
        assert answer["InstanceInitiatedShutdownBehavior"]["Value"] == "terminate"
        (end,) = re.findall(r"^OnCalendar=(.+) UTC$", self.file(uid, "node-access-end.timer"), re.MULTILINE)
        return datetime.fromisoformat(end).replace(tzinfo=UTC)

    def close(self) -> None:
        """Forget everything."""
        self._mock.stop()
        self._patch.undo()


def _networks(permission: Mapping[str, Any]) -> set[Network]:
    assert not permission["UserIdGroupPairs"]
    four = {parse_network(one["CidrIp"]) for one in permission["IpRanges"]}
    return four | {parse_network(one["CidrIpv6"]) for one in permission["Ipv6Ranges"]}
