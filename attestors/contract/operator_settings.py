"""The check of an operator's settings without a policy, before the first request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class SettingsFinding:
    """What an operator's setting leads to, for a person."""

    setting: str
    message: str
    """What was found. It quotes no secret."""
    remedy: str = ""
    """What to do about it; empty if it is as it should be."""


@runtime_checkable
class ChecksOperatorSettings(Protocol):
    """Optional interface of an :class:`~attestors.contract.Attestor` whose server plugin needs more than the operator's
    settings.

    The controller at its start, and the command ``check``, build each server plugin with the operator's settings and an
    empty policy. If some valid settings of an operator do not fit an empty policy, only this method can tell whether
    the settings are valid.
    """

    def check_operator_settings(self, operator: Mapping[str, Any], now: datetime) -> tuple[SettingsFinding, ...]:
        """Check the settings, and the files that they name. It calls no other service.

        Raises:
            InvalidSettings: no policy makes the settings usable; the message names the setting and the remedy.
        """
        ...
