"""What EC2 does and moto does not, as hooks of botocore; and faults in calls.

moto 5.2.5 ignores ClientToken, deletes security groups in use, refuses to terminate an instance twice, accepts networks
with host bits, gives no IPv6 addresses, knows no volumes of images, and starts and ends instances at once. Sources:
"Ensuring idempotency in Amazon EC2 API requests", and EC2's list of error codes.
"""

from __future__ import annotations

import copy
import ipaddress
import re
from typing import Any, Final

from botocore.exceptions import ConnectionClosedError, EndpointConnectionError

from node_access.bastions.suite import Fault, Killed

IMAGE: Final = "ami-12345678"
"""An image with two volumes, which outlive an instance unless it is told otherwise."""
_CHANGING: Final = ("CreateSecurityGroup", "DeleteSecurityGroup", "RunInstances", "TerminateInstances")


class _Response:
    """What botocore looks at of a response that no server gave."""

    def __init__(self, status: int) -> None:
        self.status_code = status
        self.headers: dict[str, str] = {}


class EC2Errors:
    """Hooks for clients of one fake EC2. ``plain`` is a client without hooks."""

    def __init__(self, plain: Any) -> None:
        self._plain = plain
        self._tokens: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {}
        self._token = ""
        self._starting: set[str] = set()
        self._ending: set[str] = set()
        self._with_ipv6: set[str] = set()
        self._forgotten: set[str] = set()
        self._fault: tuple[Fault, int] | None = None
        self.failed = False
        self.calls: list[str] = []

    def install(self, client: Any) -> None:
        """Hook into every call of that client."""
        client.meta.events.register("before-call.ec2", self._before)
        client.meta.events.register("after-call.ec2", self._after)

    def inject(self, fault: Fault, call: int) -> None:
        """See :class:`node_access.bastions.suite.FakeCloud`."""
        self._fault, self.failed = (fault, call), False

    def settle(self) -> None:
        """Instances have started and ended."""
        self._starting.clear()
        self._ending.clear()

    def forget_ended(self) -> None:
        """An hour passes: instances that are terminated now are not described any more. Their tokens stay used."""
        self._forgotten = {one["InstanceId"] for one in self._instances() if one["State"]["Name"] == "terminated"}

    def _before(self, model: Any, params: dict[str, Any], **_: Any) -> Any:
        self.calls.append(model.name)
        fault = self._due()
        if fault is Fault.NOT_REACHED:
            raise EndpointConnectionError(endpoint_url="https://ec2")
        if fault is Fault.NOT_PERMITTED:
            return self._error("UnauthorizedOperation", 403)
        body = params["body"]
        for key, value in body.items():
            if key.rpartition(".")[2] in ("CidrIp", "CidrIpv6"):
                try:
                    ipaddress.ip_network(value)
                except ValueError:
                    return self._error("InvalidParameterValue")
        if model.name == "DescribeImages":
            return self._image(body["ImageId.1"])
        if model.name == "RunInstances":
            return self._run(body)
        if model.name == "TerminateInstances":
            return self._terminate([value for key, value in body.items() if key.startswith("InstanceId.")])
        if model.name == "DeleteSecurityGroup" and self._is_in_use(body["GroupId"]):
            return self._error("DependencyViolation")
        return None

    def _image(self, image: str) -> Any:
        if image != IMAGE:
            return self._error("InvalidAMIID.NotFound")
        kept = {"DeleteOnTermination": False, "VolumeSize": 8}
        devices = [{"DeviceName": name, "Ebs": kept} for name in ("/dev/xvda", "/dev/sdb")]
        ephemeral = {"DeviceName": "/dev/sdc", "VirtualName": "ephemeral0"}
        return self._answer({"Images": [{"ImageId": image, "BlockDeviceMappings": [*devices, ephemeral]}]})

    def _run(self, body: dict[str, Any]) -> Any:
        self._token = body.get("ClientToken", "")
        if self._token and self._token in self._tokens:
            former, answer = self._tokens[self._token]
            if former != body:
                return self._error("IdempotentParameterMismatch")
            assert answer is not None
            states = {one["InstanceId"]: one["State"]["Name"] for one in self._instances()}
            if states[answer["Instances"][0]["InstanceId"]] == "terminated":
                return self._error("IdempotentInstanceTerminated")
            return self._answer(copy.deepcopy(answer))
        self._tokens[self._token] = dict(body), None
        for key in [one for one in body if re.fullmatch(r"BlockDeviceMapping\.[0-9]+\.DeviceName", one)]:
            body[key.replace("DeviceName", "Ebs.VolumeSize")] = 8  # EC2 takes it from the image
        return None

    def _terminate(self, instances: list[str]) -> Any:
        states = {one["InstanceId"]: one["State"]["Name"] for one in self._instances()}
        if any(one not in states for one in instances):
            return self._error("InvalidInstanceID.NotFound")
        self._ending |= {one for one in instances if states[one] != "terminated"}
        if all(states[one] == "terminated" for one in instances):
            return self._answer({"TerminatingInstances": []})
        return None

    def _after(self, model: Any, parsed: dict[str, Any], **_: Any) -> None:
        if model.name == "RunInstances" and "Instances" in parsed and self._tokens[self._token][1] is None:
            made = {one["InstanceId"] for one in parsed["Instances"]}
            self._starting |= made
            if "NetworkInterface.1.Ipv6AddressCount" in self._tokens[self._token][0]:
                self._with_ipv6 |= made
            self._tokens[self._token] = self._tokens[self._token][0], copy.deepcopy(parsed)
        if model.name == "DescribeInstances":
            for found in parsed.get("Reservations", ()):
                found["Instances"] = [one for one in found["Instances"] if one["InstanceId"] not in self._forgotten]
            for instance in (one for found in parsed.get("Reservations", ()) for one in found["Instances"]):
                for interface in instance.get("NetworkInterfaces", ()):
                    if instance["InstanceId"] in self._with_ipv6:
                        interface["Ipv6Addresses"] = [{"Ipv6Address": "2001:db8:9::10", "IsPrimaryIpv6": False}]
                if instance["InstanceId"] in self._ending:
                    instance["State"] = {"Code": 32, "Name": "shutting-down"}
                elif instance["InstanceId"] in self._starting:
                    instance["State"] = {"Code": 0, "Name": "pending"}
        if self._fault is None:
            return
        fault, left = self._fault
        self._fault = (fault, left - 1) if left else None
        if left or fault not in (Fault.KILLED, Fault.ANSWER_LOST):
            return
        self.failed = True
        if fault is Fault.KILLED:
            raise Killed(model.name)
        raise ConnectionClosedError(endpoint_url="https://ec2")

    def _due(self) -> Fault | None:
        """A fault that comes before the call."""
        if self._fault is None or self._fault[0] in (Fault.KILLED, Fault.ANSWER_LOST) or self._fault[1] > 0:
            return None
        fault, self._fault, self.failed = self._fault[0], None, True
        return fault

    def _instances(self) -> list[dict[str, Any]]:
        return [one for found in self._plain.describe_instances()["Reservations"] for one in found["Instances"]]

    def _is_in_use(self, group: str) -> bool:
        alive = [
            one
            for one in self._instances()
            if one["State"]["Name"] != "terminated" or one["InstanceId"] in self._ending
        ]
        if any(group == entry["GroupId"] for one in alive for entry in one["SecurityGroups"]):
            return True
        others = self._plain.describe_security_groups()["SecurityGroups"]
        pairs = [
            pair["GroupId"]
            for other in others
            if other["GroupId"] != group
            for permission in (*other["IpPermissions"], *other["IpPermissionsEgress"])
            for pair in permission["UserIdGroupPairs"]
        ]
        return group in pairs

    def _error(self, code: str, status: int = 400) -> Any:
        metadata = {"HTTPStatusCode": status, "HTTPHeaders": {}, "RetryAttempts": 0}
        return _Response(status), {"Error": {"Code": code, "Message": "of the tests"}, "ResponseMetadata": metadata}

    def _answer(self, parsed: dict[str, Any]) -> Any:
        return _Response(200), {"ResponseMetadata": {"HTTPStatusCode": 200, "RetryAttempts": 0}, **parsed}
