"""EC2 and IAM: moto's server on 127.0.0.1. It accepts any credentials, and derives the account from them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Final, Self

ACCOUNT: Final = "123456789012"
"""moto's default account, used without AssumeRole."""
EC2_TRUST: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}],
    }
)


@dataclass(frozen=True, slots=True)
class Launched:
    """A running instance of the fake EC2."""

    instance_id: str
    zone: str
    private_dns_name: str
    private_ip: str


class FakeEC2:
    """EC2 and IAM in one region."""

    NETWORK: Final = "10.132.0.0/16"
    """The subnet of every instance. By default moto uses 10.0.0.0/8, of which one in 16 addresses is a Service's."""

    def __init__(self, region: str = "eu-west-1") -> None:
        from moto.server import ThreadedMotoServer

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self.region = region
        self._server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)

    def __enter__(self) -> Self:
        import boto3

        self._server.start()
        host, port = self._server.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        session = boto3.Session(aws_access_key_id="AKIAIOSFODNN7EXAMPLE", aws_secret_access_key="x" * 40)
        self.ec2 = session.client("ec2", endpoint_url=self.endpoint, region_name=self.region)
        self.iam = session.client("iam", endpoint_url=self.endpoint, region_name=self.region)
        # moto loads its images on the first request, which takes longer than EC2 clients wait.
        self.ec2.describe_instances()
        network = self.ec2.create_vpc(CidrBlock=self.NETWORK)["Vpc"]["VpcId"]
        self._subnet = self.ec2.create_subnet(VpcId=network, CidrBlock=self.NETWORK)["Subnet"]["SubnetId"]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ec2.close()
        self.iam.close()
        self._server.stop()

    @property
    def endpoints(self) -> Mapping[str, str]:
        """The endpoints, for the server plugin."""
        return MappingProxyType(dict.fromkeys(("ec2", "iam", "sts"), self.endpoint))

    def launch(
        self, *, tokens: str = "required", hop_limit: int = 1, tags: Mapping[str, str] = MappingProxyType({})
    ) -> Launched:
        """Run an instance."""
        answer = self.ec2.run_instances(
            ImageId="ami-03cf127a",
            SubnetId=self._subnet,
            MinCount=1,
            MaxCount=1,
            MetadataOptions={"HttpTokens": tokens, "HttpPutResponseHopLimit": hop_limit},
            TagSpecifications=[
                {"ResourceType": "instance", "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
            ]
            if tags
            else [],
        )
        [instance] = answer["Instances"]
        return Launched(
            instance["InstanceId"],
            instance["Placement"]["AvailabilityZone"],
            instance["PrivateDnsName"],
            instance["PrivateIpAddress"],
        )

    def create_role(self, name: str, trust: Mapping[str, Any] = EC2_TRUST) -> str:
        """Create a role; returns its ID."""
        answer = self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(dict(trust)))
        return str(answer["Role"]["RoleId"])
