"""Settings of the server plugin: the operator's, and how a cluster's policy may narrow them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from attestors.clouds.google import GoogleAccess, InvalidGCEName, check_project, parse_projects
from attestors.clouds.google.settings import ACCESS_SETTINGS, PROXY_SETTING
from attestors.contract import AttestorSettings, InvalidSettings
from attestors.gcp.claims import SERVICE_ACCOUNT

PROJECTS_SETTING: Final = "projects"
SERVICE_ACCOUNTS_SETTING: Final = "serviceAccounts"
CHECK_INSTANCE_SETTING: Final = "checkInstance"

OPERATOR_SETTINGS: Final = (
    frozenset({PROJECTS_SETTING, SERVICE_ACCOUNTS_SETTING, CHECK_INSTANCE_SETTING}) | ACCESS_SETTINGS
)
POLICY_SETTINGS: Final = frozenset({PROJECTS_SETTING, SERVICE_ACCOUNTS_SETTING})

MAXIMUM_ENTRIES: Final = 1000
"""Per list."""


@dataclass(frozen=True, slots=True)
class AnyServiceAccount:
    """Neither the operator nor the policy restricts the service accounts of nodes."""


ServiceAccounts: TypeAlias = frozenset[str] | AnyServiceAccount


@dataclass(frozen=True, slots=True)
class TokenOnly:
    """Instances are not looked up: only the token is verified."""


@dataclass(frozen=True, slots=True)
class LookUp:
    """Instances are looked up by ``instances.get``."""


@dataclass(frozen=True, slots=True)
class GCPSettings:
    """The parsed settings of the server plugin."""

    projects: Mapping[str, int]
    """Project number by project ID; instances of other projects are denied."""
    service_accounts: ServiceAccounts
    instances: TokenOnly | LookUp
    access: GoogleAccess
    """Access to Google, and the credentials for instance lookups."""

    @classmethod
    def parse(cls, settings: AttestorSettings) -> GCPSettings:
        """Parse the settings. A policy selects among what the operator allows; it can add nothing.

        Raises:
            InvalidSettings: a setting is missing, wrong or unknown, or the policy names what the operator does not
            allow.
        """
        _reject_unknown(settings.operator, OPERATOR_SETTINGS, "the operator's settings")
        _reject_unknown(settings.policy, POLICY_SETTINGS, "a policy's settings")
        return cls(
            _narrowed_projects(_projects(settings.operator), settings.policy),
            _narrowed_accounts(_service_accounts(settings.operator), settings.policy),
            _instances(settings.operator),
            GoogleAccess.parse({name: value for name, value in settings.operator.items() if name in ACCESS_SETTINGS}),
        )


def _reject_unknown(given: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    unknown = set(given) - known
    if unknown:
        raise InvalidSettings(f"{what} of the GCP attestor have no {min(unknown)!r}, only {', '.join(sorted(known))}")


def _projects(operator: Mapping[str, Any]) -> dict[str, int]:
    projects = operator.get(PROJECTS_SETTING)
    if not isinstance(projects, dict) or not 0 < len(projects) <= MAXIMUM_ENTRIES:
        raise InvalidSettings(
            f"{PROJECTS_SETTING} must have 1 to {MAXIMUM_ENTRIES} projects, each with its number: "
            "{my-project: 123456789012}"
        )
    for project, number in projects.items():
        try:
            check_project(project if isinstance(project, str) else "")
        except InvalidGCEName as error:
            raise InvalidSettings(f"{PROJECTS_SETTING}: a key is not a project ID, such as my-project") from error
        if type(number) is not int or not 0 < number < 2**64:
            raise InvalidSettings(f"{PROJECTS_SETTING}: {project} needs its project number, a whole number")
    return dict(projects)


def _narrowed_projects(allowed: dict[str, int], policy: Mapping[str, Any]) -> Mapping[str, int]:
    if PROJECTS_SETTING not in policy:
        return allowed
    chosen = parse_projects(policy[PROJECTS_SETTING], PROJECTS_SETTING)
    foreign = chosen - set(allowed)
    if foreign:
        raise InvalidSettings(f"{PROJECTS_SETTING}: the operator does not allow {min(foreign)}")
    return {project: allowed[project] for project in chosen}


def _service_accounts(settings: Mapping[str, Any]) -> ServiceAccounts:
    if SERVICE_ACCOUNTS_SETTING not in settings:
        return AnyServiceAccount()
    accounts = settings[SERVICE_ACCOUNTS_SETTING]
    if (
        not isinstance(accounts, list)
        or not 0 < len(accounts) <= MAXIMUM_ENTRIES
        or not all(isinstance(one, str) and SERVICE_ACCOUNT.fullmatch(one) for one in accounts)
    ):
        raise InvalidSettings(
            f"{SERVICE_ACCOUNTS_SETTING} must be a list of 1 to {MAXIMUM_ENTRIES} addresses of service accounts"
        )
    return frozenset(accounts)


def _narrowed_accounts(allowed: ServiceAccounts, policy: Mapping[str, Any]) -> ServiceAccounts:
    chosen = _service_accounts(policy)
    if isinstance(chosen, AnyServiceAccount):
        return allowed
    if isinstance(allowed, AnyServiceAccount):
        return chosen
    foreign = chosen - allowed
    if foreign:
        raise InvalidSettings(f"{SERVICE_ACCOUNTS_SETTING}: the operator does not allow {min(foreign)}")
    return chosen


def _instances(operator: Mapping[str, Any]) -> TokenOnly | LookUp:
    check = operator.get(CHECK_INSTANCE_SETTING, False)
    if not isinstance(check, bool):
        raise InvalidSettings(f"{CHECK_INSTANCE_SETTING} must be true or false")
    if check:
        return LookUp()
    useless = set(operator) & (ACCESS_SETTINGS - {PROXY_SETTING})
    if useless:
        raise InvalidSettings(f"{min(useless)} requires {CHECK_INSTANCE_SETTING}: true")
    return TokenOnly()
