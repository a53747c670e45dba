"""The identity of an EC2 instance in records: partition, account, Region and instance ID."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from attestors.aws.partitions import Region, UnknownRegion, parse_region

_IDENTITY: Final = re.compile(r"aws:([a-z-]{1,16}):([0-9]{12}):([a-z0-9-]{1,32}):(i-[0-9a-f]{8,17})")


class InvalidIdentity(ValueError):
    """The text is not the identity of an EC2 instance."""


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """EC2 never uses an instance ID again, so the identity is of one instance for ever."""

    account: str
    region: Region
    instance_id: str

    def __str__(self) -> str:
        return f"aws:{self.region.partition.name}:{self.account}:{self.region.name}:{self.instance_id}"

    @classmethod
    def parse(cls, text: str) -> InstanceIdentity:
        """Read what ``str`` wrote.

        Raises:
            InvalidIdentity: it is something else.
        """
        found = _IDENTITY.fullmatch(text)
        try:
            if found is None or (region := parse_region(found[3])).partition.name != found[1]:
                raise InvalidIdentity("not the identity of an EC2 instance")
        except UnknownRegion as error:
            raise InvalidIdentity("not the identity of an EC2 instance") from error
        return cls(found[2], region, found[4])
