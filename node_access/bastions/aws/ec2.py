"""Calls to EC2, and their errors as the contract's. The only module of the provider that knows boto3.

Error codes: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from node_access.bastions.aws.errors import InstanceEnded, InUse, OtherRequest
from node_access.bastions.aws.rules import Rule
from node_access.bastions.contract import CallFailed, Deadline, NotPermitted, ObjectExists, ObjectNotFound, one_line

_CONNECT_SECONDS: Final = 5
_READ_SECONDS: Final = 20
_CLIENT_SECONDS: Final = 1800
"""Half as long as credentials of a role last."""
_NOT_PERMITTED: Final = frozenset(
    {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure", "OptInRequired", "Blocked"}
)
_EXISTS: Final = frozenset({"InvalidGroup.Duplicate", "InvalidPermission.Duplicate"})
_NOT_FOUND: Final = frozenset(
    {
        "InvalidAMIID.NotFound",
        "InvalidAMIID.Unavailable",
        "InvalidGroup.NotFound",
        "InvalidGroupId.Malformed",
        "InvalidInstanceID.NotFound",
        "InvalidInstanceID.Malformed",
        "InvalidPermission.NotFound",
        "InvalidSubnetID.NotFound",
        "InvalidSecurityGroupID.NotFound",
    }
)


class EC2:
    """EC2 of one account and Region."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def vpc_of(self, subnet: str, deadline: Deadline) -> str:
        """The VPC of a subnet."""
        (found,) = self._call("describe_subnets", deadline, SubnetIds=[subnet])["Subnets"]
        return str(found["VpcId"])

    def groups(self, deadline: Deadline, *, tags: Mapping[str, str]) -> list[Mapping[str, Any]]:
        """Security groups that have all these tags."""
        return self._pages("describe_security_groups", "SecurityGroups", deadline, Filters=_filters(tags))

    def group(self, group: str, deadline: Deadline) -> Mapping[str, Any]:
        """One security group."""
        (found,) = self._call("describe_security_groups", deadline, GroupIds=[group])["SecurityGroups"]
        return dict(found)

    def create_group(self, name: str, description: str, vpc: str, tags: Mapping[str, str], deadline: Deadline) -> None:
        """Make a security group."""
        specification = [{"ResourceType": "security-group", "Tags": _tags(tags)}]
        self._call(
            "create_security_group",
            deadline,
            GroupName=name,
            Description=description,
            VpcId=vpc,
            TagSpecifications=specification,
        )

    def delete_group(self, group: str, deadline: Deadline) -> None:
        """Delete a security group."""
        self._call("delete_security_group", deadline, GroupId=group)

    def change_rules(self, call: str, group: str, rules: Sequence[Rule], deadline: Deadline) -> None:
        """``call`` is such as ``revoke_security_group_ingress``."""
        permissions = [rule.permission() for rule in rules]
        self._call(call, deadline, GroupId=group, IpPermissions=permissions)

    def instances(self, deadline: Deadline, *, tags: Mapping[str, str]) -> list[Mapping[str, Any]]:
        """Instances that have all these tags, terminated ones too (EC2 shows them for about an hour)."""
        reservations = self._pages("describe_instances", "Reservations", deadline, Filters=_filters(tags))
        return [instance for reservation in reservations for instance in reservation["Instances"]]

    def volumes_of(self, image: str, deadline: Deadline) -> list[str]:
        """The device names of an image's volumes."""
        (found,) = self._call("describe_images", deadline, ImageIds=[image])["Images"]
        return sorted(str(one["DeviceName"]) for one in found.get("BlockDeviceMappings", ()) if "Ebs" in one)

    def run(self, request: Mapping[str, Any], tags: Mapping[str, str], deadline: Deadline) -> Mapping[str, Any]:
        """Start one instance; its volumes and network interfaces get the tags, too."""
        specification = [
            {"ResourceType": kind, "Tags": _tags(tags)} for kind in ("instance", "volume", "network-interface")
        ]
        answer = self._call(
            "run_instances", deadline, MinCount=1, MaxCount=1, TagSpecifications=specification, **request
        )
        return dict(answer["Instances"][0])

    def terminate(self, instances: Sequence[str], deadline: Deadline) -> None:
        """Terminate instances."""
        self._call("terminate_instances", deadline, InstanceIds=list(instances))

    def set_groups(self, instance: str, groups: Sequence[str], deadline: Deadline) -> None:
        """The security groups of an instance."""
        self._call("modify_instance_attribute", deadline, InstanceId=instance, Groups=list(groups))

    def _pages(self, call: str, field: str, deadline: Deadline, **request: Any) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = []
        token: dict[str, str] = {}
        while True:
            answer = self._call(call, deadline, MaxResults=200, **request, **token)
            found += answer[field]
            if not answer.get("NextToken"):
                return found
            token = {"NextToken": answer["NextToken"]}

    def _call(self, call: str, deadline: Deadline, **request: Any) -> Any:
        deadline.seconds()
        try:
            return getattr(self._client, call)(**request)
        except ClientError as error:
            raise _translated(call, error) from error
        except BotoCoreError as error:
            raise CallFailed(one_line(f"{call}: {type(error).__name__}")) from error


def _translated(call: str, error: ClientError) -> CallFailed:
    code, message = error.response["Error"].get("Code", ""), error.response["Error"].get("Message", "")
    text = one_line(f"{call}: {code}: {message}")
    if code in _NOT_PERMITTED:
        return NotPermitted(one_line(f"{call}: {code}"))  # the message holds an encoded copy of the policy
    if code in _EXISTS:
        return ObjectExists(text)
    if code in _NOT_FOUND:
        return ObjectNotFound(text)
    if code == "DependencyViolation":
        return InUse(text)
    if code == "IdempotentParameterMismatch":
        return OtherRequest(text)
    if code == "IdempotentInstanceTerminated":
        return InstanceEnded(text)
    return CallFailed(text)


class Connector:
    """Makes the client at the first call, and again before credentials of a role end.

    boto3's sessions are not safe to make in several threads, so one thread makes it.
    """

    def __init__(self, region: str, *, profile: str, role: str, external_id: str, endpoint: str) -> None:
        self._region = region
        self._profile = profile
        self._role = role
        self._external_id = external_id
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._made: tuple[EC2, float] | None = None

    def __call__(self) -> EC2:
        """The client."""
        with self._lock:
            if self._made is None or time.monotonic() - self._made[1] > _CLIENT_SECONDS:
                try:
                    self._made = self._client(), time.monotonic()
                except ClientError as error:
                    raise _translated("assume_role", error) from error
                except BotoCoreError as error:
                    raise CallFailed(one_line(f"credentials: {type(error).__name__}")) from error
            return self._made[0]

    def _client(self) -> EC2:
        configuration = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_READ_SECONDS,
            retries={"mode": "standard", "max_attempts": 2},
            user_agent_extra="node-access-bastions",
        )
        session = boto3.session.Session(region_name=self._region, profile_name=self._profile or None)
        named: dict[str, Any] = {}
        if self._role:
            outside = {"ExternalId": self._external_id} if self._external_id else {}
            answer = session.client("sts", config=configuration).assume_role(
                RoleArn=self._role, RoleSessionName="node-access-bastions", **outside
            )["Credentials"]
            named = {
                "aws_access_key_id": answer["AccessKeyId"],
                "aws_secret_access_key": answer["SecretAccessKey"],
                "aws_session_token": answer["SessionToken"],
            }
        return EC2(session.client("ec2", config=configuration, endpoint_url=self._endpoint or None, **named))


def _filters(tags: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items()]


def _tags(tags: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
