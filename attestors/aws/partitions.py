"""AWS partitions and Regions, with their hosts, ARNs and service names.

A Region's name becomes part of a host name that is called, so its grammar is strict, and the host is built here from
the partition, never from input. Source: ``partitions.json`` of the AWS SDKs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final


class UnknownRegion(ValueError):
    """The name is not that of a Region in any partition; the message does not repeat it."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A group of Regions with its own accounts and its own credentials."""

    name: str
    """As in ARNs: ``arn:<name>:…``."""
    dns_suffix: str
    regions: re.Pattern[str] = field(repr=False)
    ec2_principals: tuple[str, ...]
    """EC2 in the trust policy of a role (``Principal.Service``)."""


@dataclass(frozen=True, slots=True)
class Region:
    """One Region; only :func:`parse_region` creates it."""

    name: str
    partition: Partition

    @property
    def sts_host(self) -> str:
        """Host of the Region's own STS endpoint; the global one is never used."""
        return f"sts.{self.name}.{self.partition.dns_suffix}"


def _partition(name: str, dns_suffix: str, areas: str, *other_principals: str) -> Partition:
    regions = re.compile(rf"(?:{areas})-[a-z]{{2,16}}-[1-9][0-9]?")
    return Partition(name, dns_suffix, regions, ("ec2.amazonaws.com", *other_principals))


PARTITIONS: Final = (
    _partition("aws", "amazonaws.com", "us|eu|ap|sa|ca|me|af|il|mx"),
    _partition("aws-cn", "amazonaws.com.cn", "cn", "ec2.amazonaws.com.cn"),
    _partition("aws-us-gov", "amazonaws.com", "us-gov"),
    _partition("aws-eusc", "amazonaws.eu", "eusc-de", "ec2.amazonaws.eu"),
    _partition("aws-iso", "c2s.ic.gov", "us-iso", "ec2.c2s.ic.gov"),
    _partition("aws-iso-b", "sc2s.sgov.gov", "us-isob", "ec2.sc2s.sgov.gov"),
    _partition("aws-iso-e", "cloud.adc-e.uk", "eu-isoe", "ec2.cloud.adc-e.uk"),
    _partition("aws-iso-f", "csp.hci.ic.gov", "us-isof", "ec2.csp.hci.ic.gov"),
)
"""All partitions. A Region matches exactly one: ``us-gov-west-1`` does not match ``us``, for lack of a dash there."""


def parse_region(name: str) -> Region:
    """The Region of this name, if it fits a partition's grammar; it is not known here whether AWS has opened it.

    Raises:
        UnknownRegion: it fits no partition's grammar.
    """
    for partition in PARTITIONS:
        if partition.regions.fullmatch(name):
            return Region(name, partition)
    raise UnknownRegion("not the name of an AWS Region")


def partition_named(name: str) -> Partition:
    """The partition that an ARN names.

    Raises:
        UnknownRegion: there is no partition of this name.
    """
    for partition in PARTITIONS:
        if partition.name == name:
            return partition
    raise UnknownRegion("not the name of an AWS partition")
