"""Provider IDs of Compute Engine, ``gce://<project>/<zone>/<name>``, in the form of its cloud provider and Cluster API.

Grammar: the parameters of ``instances.get`` in Compute Engine's API (v1 discovery document), without the equivalent
forms by number for a project or an instance.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

# RFC 1035, as Compute Engine applies it to names.
_LABEL: Final = r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?"
# `example.com:web` is a project inside a domain, which could be created in the past.
_PROJECT: Final = re.compile(rf"(?:(?:[a-z0-9](?:[-a-z0-9]{{0,61}}[a-z0-9])?\.){{1,8}}{_LABEL}:)?{_LABEL}")
_ZONE: Final = re.compile(_LABEL)
_NAME: Final = re.compile(_LABEL)
_INSTANCE_ID: Final = re.compile(r"[1-9][0-9]{0,19}")
_MAXIMUM_INSTANCE_ID: Final = 2**64 - 1
_MAXIMUM_CHARACTERS: Final = 512
_PREFIX: Final = "gce://"


class InvalidGCEProviderID(ValueError):
    """Not a provider ID of Compute Engine; the message names the error."""


class InvalidGCEName(ValueError):
    """Not a project, zone, instance name or instance ID of Compute Engine; the message says which."""


def check_project(text: str) -> str:
    """Return ``text`` if it is a project ID; a project number is not.

    Raises:
        InvalidGCEName: anything else.
    """
    return _check(text, _PROJECT, "project ID")


def check_zone(text: str) -> str:
    """Return ``text`` if it is a zone's name.

    Raises:
        InvalidGCEName: anything else.
    """
    return _check(text, _ZONE, "zone")


def check_instance_name(text: str) -> str:
    """Return ``text`` if it is an instance's name.

    Raises:
        InvalidGCEName: anything else, including a numeric ID.
    """
    return _check(text, _NAME, "instance name")


def check_instance_id(text: str) -> str:
    """Return ``text`` if it is an instance's numeric ID (uint64) in canonical form.

    Raises:
        InvalidGCEName: anything else.
    """
    if int(_check(text, _INSTANCE_ID, "numeric instance ID")) > _MAXIMUM_INSTANCE_ID:
        raise InvalidGCEName("not a numeric instance ID")
    return text


def _check(text: str, grammar: re.Pattern[str], what: str) -> str:
    if len(text) > _MAXIMUM_CHARACTERS or not grammar.fullmatch(text):
        raise InvalidGCEName(f"not a {what}")
    return text


@dataclass(frozen=True, slots=True)
class GCEProviderID:
    """A name in Compute Engine. Names are reused: only the numeric ID identifies the machine that has it now."""

    project: str
    zone: str
    name: str

    def __post_init__(self) -> None:
        check_project(self.project)
        check_zone(self.zone)
        check_instance_name(self.name)

    @classmethod
    def parse(cls, text: str) -> GCEProviderID:
        """Parse a provider ID.

        Raises:
            InvalidGCEProviderID: another scheme, not three parts, or a malformed part.
        """
        if len(text) > _MAXIMUM_CHARACTERS or not text.startswith(_PREFIX):
            raise InvalidGCEProviderID("not of the form gce://<project>/<zone>/<name>")
        parts = text.removeprefix(_PREFIX).split("/")
        if len(parts) != 3:
            raise InvalidGCEProviderID("not of the form gce://<project>/<zone>/<name>")
        try:
            return cls(*parts)
        except InvalidGCEName as error:
            raise InvalidGCEProviderID(f"not of the form gce://<project>/<zone>/<name>: {error}") from None

    def __str__(self) -> str:
        return f"{_PREFIX}{self.project}/{self.zone}/{self.name}"
