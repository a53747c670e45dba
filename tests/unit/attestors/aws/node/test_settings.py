"""The settings of the AWS attestor's agent plugin."""

from __future__ import annotations

import pytest

from attestors.aws.node.settings import MetadataEndpoint, NodeSettings, Proof
from attestors.aws.partitions import parse_region
from attestors.contract import InvalidSettings


def test_nothing_needs_to_be_set() -> None:
    parsed = NodeSettings.parse({})
    assert parsed == NodeSettings(MetadataEndpoint("169.254.169.254", 80), None, Proof.PRESIGNED)
    assert parsed == NodeSettings()


def test_everything_set() -> None:
    parsed = NodeSettings.parse({"metadata-endpoint": "ipv6", "region": "us-gov-west-1", "proof": "web-identity"})
    assert parsed.metadata_endpoint == MetadataEndpoint("fd00:ec2::254", 80)
    assert parsed.region == parse_region("us-gov-west-1")
    assert parsed.proof is Proof.WEB_IDENTITY


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("ipv4", "169.254.169.254", 80),
        ("http://169.254.169.254", "169.254.169.254", 80),
        ("http://169.254.169.254/", "169.254.169.254", 80),
        ("http://127.0.0.1:1338", "127.0.0.1", 1338),
        ("http://[::1]:8080", "::1", 8080),
        ("http://[fd00:ec2::254]", "fd00:ec2::254", 80),
    ],
)
def test_metadata_endpoint(text: str, host: str, port: int) -> None:
    assert NodeSettings.parse({"metadata-endpoint": text}).metadata_endpoint == MetadataEndpoint(host, port)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "IPv4",
        "http://169.254.169.254.attacker.example",
        "http://localhost",
        "http://192.0.2.1",
        "http://10.0.0.1",
        "http://[fd00:ec2::255]",
        "http://[2001:db8::1]",
        "https://127.0.0.1",
        "http://user@127.0.0.1",
        "http://127.0.0.1@192.0.2.1",
        "http://127.0.0.1:0",
        "http://127.0.0.1:65536",
        "http://127.0.0.1/latest",
        "http://127.0.0.1?x",
        "http://127.0.0.1\n",
        "http://127.1",
        "http://999.0.0.1",
        "http://[127.0.0.1",
        "127.0.0.1",
    ],
)
def test_credentials_come_from_this_machine_only(text: str) -> None:
    with pytest.raises(
        InvalidSettings, match="metadata-endpoint is ipv4, ipv6, or http:// with a loopback or link-loc"
    ):
        NodeSettings.parse({"metadata-endpoint": text})


def test_region() -> None:
    with pytest.raises(InvalidSettings, match="region: not the name of an AWS Region"):
        NodeSettings.parse({"region": "eu-west-1.attacker.example"})


def test_proof() -> None:
    with pytest.raises(InvalidSettings, match="proof is presigned or web-identity"):
        NodeSettings.parse({"proof": "none"})


def test_unknown_setting() -> None:
    with pytest.raises(InvalidSettings, match="no setting 'password', only metadata-endpoint, region, proof"):
        NodeSettings.parse({"password": "x"})
