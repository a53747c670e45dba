"""The parts of the composite attestor: installed attestors, each with its own settings."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeVar

from attestors.composite.wire import EVIDENCE_VERSION
from attestors.contract import (
    AnswerForm,
    Attestor,
    AttestorSettings,
    Auditable,
    Freshness,
    InvalidSettings,
    RecordedCalls,
    ServerPlugin,
    SettingsFinding,
)
from attestors.contract.composite import part_settings
from attestors.registry import AttestorFailed, AttestorUnavailable, PolicyMayBeNeeded, Registry

T = TypeVar("T")

_CHALLENGE_CONTEXT: Final = b"composite attestor, challenges of part "
_METHODS: Final = ("pre_filter", "verify_client", "verify_serving")


@dataclass(frozen=True, slots=True)
class Part:
    """One of the attestors that the composite attestor asks."""

    name: str
    plugin: ServerPlugin
    challenges: bool
    """Whether it is fresh by challenges, so that it may issue one."""
    names_hardware: bool
    """Whether its identity is one that no provider ID determines, such as a chip's."""


def load_part(registry: Registry, name: str) -> Attestor:
    """The attestor of that name, if it can be a part.

    Raises:
        InvalidSettings: it is not installed, or cannot be a part.
    """
    try:
        attestor = registry.load(name)
    except AttestorUnavailable as error:
        raise InvalidSettings(str(error)) from error
    described = attestor.description
    if EVIDENCE_VERSION not in described.evidence_versions:
        raise InvalidSettings(f"{name} does not read evidence {EVIDENCE_VERSION}: upgrade it")
    return attestor


def server_parts(settings: AttestorSettings, registry: Registry) -> tuple[Part, ...]:
    """The parts with their server plugins, sorted by name.

    Raises:
        InvalidSettings: a setting is missing, wrong or unknown, or the attestors cannot be parts of one request.
    """
    configured = part_settings(settings.operator)
    unknown = set(settings.policy) - set(configured)
    if unknown or not all(isinstance(one, Mapping) for one in settings.policy.values()):
        raise InvalidSettings(f"a policy's settings of the composite attestor are objects by {', '.join(configured)}")
    parts = tuple(_part(name, operator, settings, registry) for name, operator in configured.items())
    _require_one_of_a_kind([part.challenges for part in parts], [part.names_hardware for part in parts])
    return parts


def check_parts(operator: Mapping[str, Any], registry: Registry, now: datetime) -> tuple[SettingsFinding, ...]:
    """Check the operator's settings of the whole, and by each part's own check those of the parts.

    Raises:
        InvalidSettings: as :func:`server_parts`, whatever a policy says.
    """
    configured = part_settings(operator)
    described = [_auditable(load_part(registry, name), name).description for name in configured]
    _require_one_of_a_kind(
        [one.freshness is Freshness.CHALLENGE for one in described],
        [one.attests_without_provider_id for one in described],
    )
    found: list[SettingsFinding] = []
    for name, settings in configured.items():
        try:
            checked = registry.check_operator_settings(name, settings, now)
        except PolicyMayBeNeeded:
            continue
        except (AttestorUnavailable, AttestorFailed, InvalidSettings) as error:
            raise InvalidSettings(f"{name}: {error}") from error
        found += [replace(one, setting=f"{name}.{one.setting}") for one in checked]
    return tuple(found)


def _require_one_of_a_kind(challenges: Sequence[bool], names_hardware: Sequence[bool]) -> None:
    if sum(challenges) > 1:
        raise InvalidSettings("two of the attestors issue challenges, and a node answers one challenge: remove one")
    if sum(names_hardware) > 1:
        raise InvalidSettings(
            "two of the attestors identify hardware, and one name of hardware is reserved: remove one"
        )


def _auditable(attestor: Attestor, name: str) -> Attestor:
    if not isinstance(attestor, Auditable):
        raise InvalidSettings(
            f"{name} has no redacted_fields, so the audit log could not replay it as a part: remove it"
        )
    return attestor


def _part(name: str, operator: Mapping[str, Any], settings: AttestorSettings, registry: Registry) -> Part:
    attestor = _auditable(load_part(registry, name), name)
    own = AttestorSettings(operator, settings.policy.get(name, {}), _PartKeys(name, settings.challenge_keys))
    try:
        plugin = attestor.server_plugin(own)
    except InvalidSettings as error:
        raise InvalidSettings(f"{name}: {error}") from error
    except ImportError as error:
        raise InvalidSettings(str(registry.missing_extra(name, error))) from error
    missing = next((method for method in _METHODS if not callable(getattr(plugin, method, None))), "")
    if missing:
        raise InvalidSettings(f"the server plugin of {name} has no {missing}")
    described = attestor.description
    return Part(name, plugin, described.freshness is Freshness.CHALLENGE, described.attests_without_provider_id)


@dataclass(frozen=True, slots=True)
class _PartKeys:
    """The keys for one part's challenges: no two attestors share a key."""

    name: str
    keys: Callable[[], tuple[bytes, ...]]

    def __call__(self) -> tuple[bytes, ...]:
        return tuple(hmac.digest(key, _CHALLENGE_CONTEXT + self.name.encode("ascii"), "sha256") for key in self.keys())


@dataclass(frozen=True, slots=True)
class PartCalls:
    """The recorded calls of one part. Questions have the part's name, because two parts may ask the same question."""

    name: str
    calls: RecordedCalls

    def look(self, question: str, answer: Callable[[], T], form: AnswerForm[T]) -> T:
        """See :class:`attestors.contract.RecordedCalls`."""
        return self.calls.look(f"{self.name}: {question}", answer, form)

    async def ask(self, question: str, answer: Callable[[], Awaitable[T]], form: AnswerForm[T]) -> T:
        """See :class:`attestors.contract.RecordedCalls`."""
        return await self.calls.ask(f"{self.name}: {question}", answer, form)
