"""The checks that need no cluster: the configuration, and the attestors that it names."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from attestors.contract import SettingsFinding
from attestors.registry import Registry
from signer.cli.check.findings import Finding, fine, needs_attention, not_checked
from signer.configuration import Configuration
from signer.decision.operator_attestors import BrokenSettings, SoundSettings, UndecidedSettings, check_attestors

NO_ATTESTOR: Final = "no attestor is named: the controller denies every request"
_NAME_ATTESTORS: Final = "name the attestors to allow in attestors of the file that --config names"


def configuration_findings(configuration: Configuration, registry: Registry, now: datetime) -> tuple[Finding, ...]:
    """Check a configuration that could be parsed. Call it in an event loop: server plugins may belong to one."""
    if not configuration.attestors and not configuration.insecure_enabled:
        return (needs_attention("configuration", NO_ATTESTOR, _NAME_ATTESTORS),)
    found = [fine("configuration", f"valid; attestors: {', '.join(_named(configuration))}")]
    for checked in check_attestors(configuration.attestors, registry, now):
        match checked:
            case BrokenSettings(_, field, message):
                found.append(needs_attention(field, message, f"correct {field} in the file that --config names"))
            case UndecidedSettings(field, message):
                found.append(not_checked(field, f"only a policy can complete these settings, if one can: {message}"))
            case SoundSettings(field, findings):
                found += [_of_setting(field, one) for one in findings] or [fine(field, "the server plugin is built")]
    return tuple(found)


def _of_setting(field: str, one: SettingsFinding) -> Finding:
    check, message = f"{field}.{one.setting}", one.message
    return needs_attention(check, message, one.remedy) if one.remedy else fine(check, message)


def _named(configuration: Configuration) -> list[str]:
    return sorted({*configuration.attestors, *(("insecure",) if configuration.insecure_enabled else ())})
