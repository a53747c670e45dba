"""The identity of a virtual machine in records: its project's number and its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from attestors.clouds.google.provider_id import InvalidGCEName, check_instance_id

_IDENTITY: Final = re.compile(r"gcp:([1-9][0-9]{0,19}):([0-9]{1,20})")


class InvalidIdentity(ValueError):
    """The text is not the identity of a virtual machine."""


@dataclass(frozen=True, slots=True)
class InstanceIdentity:
    """Google never uses either number again, so the identity is of one instance for ever."""

    project_number: int
    instance_id: str

    def __str__(self) -> str:
        return f"gcp:{self.project_number}:{self.instance_id}"

    @classmethod
    def parse(cls, text: str) -> InstanceIdentity:
        """Read what ``str`` wrote.

        Raises:
            InvalidIdentity: it is something else.
        """
        found = _IDENTITY.fullmatch(text)
        try:
            if found is None:
                raise InvalidIdentity("not the identity of a virtual machine of Google Cloud")
            return cls(int(found[1]), check_instance_id(found[2]))
        except InvalidGCEName as error:
            raise InvalidIdentity("not the identity of a virtual machine of Google Cloud") from error
