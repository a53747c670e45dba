"""What the core knows of the composite attestor: which attestors it asks, and which of them an identity is from.

The composite attestor passes one request to several attestors. RFC 9334, section 3.3, calls such evidence that of a
composite device.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from attestors.contract.plugins import INSECURE_PROVIDER
from attestors.contract.settings import InvalidSettings
from attestors.wire.names import InvalidProviderName, check_provider_name

COMPOSITE_PROVIDER: Final = "composite"
"""The only attestor that asks others."""
ATTESTORS_SETTING: Final = "attestors"
MINIMUM_PARTS: Final = 2
MAXIMUM_PARTS: Final = 3


class MalformedCompositeIdentity(ValueError):
    """The text is no identity of the composite attestor."""


def check_part_names(names: object, where: str) -> tuple[str, ...]:
    """The names of the composite attestor's parts, sorted. ``where`` names the setting.

    Raises:
        InvalidSettings: there are too few or too many, one is repeated or malformed, or one cannot be a part.
    """
    if not isinstance(names, list) or not MINIMUM_PARTS <= len(names) <= MAXIMUM_PARTS:
        raise InvalidSettings(f"{where} must name {MINIMUM_PARTS} or {MAXIMUM_PARTS} attestors")
    for name in names:
        try:
            check_provider_name(name if isinstance(name, str) else "")
        except InvalidProviderName as error:
            raise InvalidSettings(f"{where}: {error}") from error
        if name in (COMPOSITE_PROVIDER, INSECURE_PROVIDER):
            raise InvalidSettings(f"{where}: {name} cannot be a part of the composite attestor: remove it")
    if len(set(names)) != len(names):
        raise InvalidSettings(f"{where} names an attestor twice")
    return tuple(sorted(names))


def part_settings(operator: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The operator's settings of each part, by the sorted names of the parts. ``operator`` are those of the whole.

    Raises:
        InvalidSettings: a setting is missing, malformed or unknown.
    """
    if set(operator) != {ATTESTORS_SETTING}:
        raise InvalidSettings(f"the composite attestor has the setting {ATTESTORS_SETTING} and no other")
    stated = operator[ATTESTORS_SETTING]
    if not isinstance(stated, Mapping) or not all(isinstance(settings, Mapping) for settings in stated.values()):
        raise InvalidSettings(
            f"{ATTESTORS_SETTING} must map each attestor to its settings, such as {{gcp: {{projects: …}}, tpm: {{…}}}}"
        )
    return MappingProxyType({name: stated[name] for name in check_part_names(list(stated), ATTESTORS_SETTING)})


@dataclass(frozen=True, slots=True)
class CompositeIdentity:
    """The identities that the parts proved, by the parts' names.

    The text is canonical JSON, so that no two sets of identities have the same one.
    """

    parts: Mapping[str, str]

    def __str__(self) -> str:
        return json.dumps(dict(self.parts), sort_keys=True, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> CompositeIdentity:
        """Parse an identity that the composite attestor proved.

        Raises:
            MalformedCompositeIdentity: it is anything else.
        """
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise MalformedCompositeIdentity("not JSON") from error
        if not isinstance(found, dict) or not all(isinstance(one, str) for one in found.values()):
            raise MalformedCompositeIdentity("not an object of texts")
        parsed = cls(MappingProxyType(found))
        if str(parsed) != text:
            raise MalformedCompositeIdentity("not canonical")
        return parsed


def attestors_of_identity(provider: str, identity: str) -> frozenset[str]:
    """The attestors that proved an identity of the attestor ``provider``: itself, and for the composite one its parts.

    An identity of the composite attestor that cannot be parsed is that of no part.
    """
    if provider != COMPOSITE_PROVIDER:
        return frozenset({provider})
    try:
        parts = CompositeIdentity.parse(identity).parts
    except MalformedCompositeIdentity:
        parts = {}
    return frozenset({provider, *parts})
