"""Whether the attestors that the operator names can be used with the operator's settings, before any request.

A policy may still narrow the settings; a fault that only a policy causes is in that policy's conditions.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from attestors.contract import InvalidSettings, SettingsFinding
from attestors.registry import AttestorFailed, AttestorNotInstalled, AttestorUnavailable, PolicyMayBeNeeded, Registry
from signer.configuration import OperatorAttestor

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SoundSettings:
    """The attestor can be used with these settings."""

    field: str
    """The field of the configuration file, such as ``attestors.tpm.settings``."""
    findings: tuple[SettingsFinding, ...] = ()


@dataclass(frozen=True, slots=True)
class UndecidedSettings:
    """The attestor does not say whether a policy can complete these settings."""

    field: str
    message: str


@dataclass(frozen=True, slots=True)
class BrokenSettings:
    """No request can be attested with these settings."""

    provider: str
    field: str
    message: str
    """Names the setting, the fault and the remedy. It quotes no secret."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


CheckedSettings: TypeAlias = SoundSettings | UndecidedSettings | BrokenSettings


def check_attestors(
    attestors: Mapping[str, OperatorAttestor], registry: Registry, now: datetime
) -> tuple[CheckedSettings, ...]:
    """Check every attestor that the operator names, with the settings of each namespace that has its own.

    Call it in an event loop: server plugins may belong to one.
    """
    return tuple(
        _checked(f"attestors.{provider}.{field}", provider, attestor.settings_in(namespace), registry, now)
        for provider, attestor in sorted(attestors.items())
        for field, namespace in _fields(attestor)
    )


def broken_attestors(
    attestors: Mapping[str, OperatorAttestor], registry: Registry, now: datetime
) -> tuple[BrokenSettings, ...]:
    """Those of :func:`check_attestors` that are broken."""
    return tuple(one for one in check_attestors(attestors, registry, now) if isinstance(one, BrokenSettings))


def _fields(attestor: OperatorAttestor) -> list[tuple[str, str]]:
    """Each field with settings, and the namespace in which they apply; "" is that of all others."""
    own = [(f"settingsByNamespace.{namespace}", namespace) for namespace in sorted(attestor.settings_by_namespace)]
    in_all_their_own = attestor.namespaces and attestor.namespaces <= attestor.settings_by_namespace.keys()
    return own if in_all_their_own else [("settings", ""), *own]


def _checked(
    field: str, provider: str, settings: Mapping[str, object], registry: Registry, now: datetime
) -> CheckedSettings:
    try:
        return SoundSettings(field, registry.check_operator_settings(provider, settings, now))
    except PolicyMayBeNeeded as error:
        return UndecidedSettings(field, str(error))
    except AttestorNotInstalled as error:
        return BrokenSettings(provider, f"attestors.{provider}", str(error))  # the name is wrong, not the settings
    except (InvalidSettings, AttestorUnavailable) as error:
        return BrokenSettings(provider, field, str(error))
    except AttestorFailed as failed:
        _LOG.error("an attestor cannot be prepared", exc_info=failed.fault, extra={"provider": provider})
        return BrokenSettings(
            provider, field, f"attestor {provider} failed with {failed}: see the log, and ask its author"
        )
