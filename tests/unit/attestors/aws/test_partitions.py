"""Regions and partitions, compared with what the AWS SDK says of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import botocore
import pytest

from attestors.aws.partitions import PARTITIONS, UnknownRegion, parse_region, partition_named

_SDK = json.loads((Path(botocore.__file__).parent / "data/partitions.json").read_bytes())["partitions"]
_REGIONS = [
    (partition, region)
    for partition in _SDK
    for region in partition["regions"]
    if not region.endswith("-global")  # those stand for services without a Region
]


def test_there_are_the_partitions_of_the_sdk() -> None:
    ours = {partition.name: partition.dns_suffix for partition in PARTITIONS}
    assert ours == {partition["id"]: partition["outputs"]["dnsSuffix"] for partition in _SDK}


@pytest.mark.parametrize(("partition", "region"), _REGIONS, ids=[region for _, region in _REGIONS])
def test_every_region_of_the_sdk(partition: dict[str, Any], region: str) -> None:
    parsed = parse_region(region)
    assert parsed.partition.name == partition["id"]
    assert parsed.sts_host == f"sts.{region}.{partition['outputs']['dnsSuffix']}"
    matching = [candidate.name for candidate in PARTITIONS if candidate.regions.fullmatch(region)]
    assert matching == [partition["id"]]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "us-east-1 ",
        "us-east-1\n",
        "us-east-1.attacker.example",
        "us-east-1/",
        "us-east-1@attacker.example",
        "us-east-1#",
        "us-EAST-1",
        "us-east-",
        "us-east-0",
        "us-east-100",
        "us-east-\uff11",
        "us-east-1a",
        "xx-east-1",
        "aws-global",
        "us--1",
        "us-gov-east-north-1",
        "us-" + "e" * 60 + "-1",
    ],
)
def test_nothing_else_becomes_part_of_a_host_name(name: str) -> None:
    with pytest.raises(UnknownRegion, match=r"^not the name of an AWS Region$"):
        parse_region(name)


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda partition: partition.name)
def test_a_partition_is_found_by_its_name(partition: Any) -> None:
    assert partition_named(partition.name) is partition
    assert "ec2.amazonaws.com" in partition.ec2_principals


@pytest.mark.parametrize("name", ["", "AWS", "aws-other"])
def test_another_partition(name: str) -> None:
    with pytest.raises(UnknownRegion, match=r"^not the name of an AWS partition$"):
        partition_named(name)
