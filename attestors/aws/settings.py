"""Settings of the server plugin: the operator's, and those that a cluster's policy may narrow."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from attestors.aws.document import RegionCertificates, RegionCertificatesUnreadable, load_region_certificates
from attestors.aws.ec2.rules import AnyHopLimit, InstanceRules
from attestors.aws.freshness import Freshness
from attestors.aws.issuers import is_issuer
from attestors.aws.partitions import UnknownRegion, parse_region, partition_named
from attestors.contract import AttestorSettings, InvalidSettings

ALLOWED_ROLES_SETTING: Final = "allowedRoles"
ALLOWED_REGIONS_SETTING: Final = "allowedRegions"
ACCOUNT_ROLES_SETTING: Final = "accountRoles"
DESCRIBE_INSTANCES_SETTING: Final = "describeInstances"
CHECK_ROLE_TRUST_SETTING: Final = "checkRoleTrust"
CHECK_ATTACH_TIMES_SETTING: Final = "checkAttachTimes"
REQUIRE_IMDSV2_SETTING: Final = "requireIMDSv2"
HOP_LIMIT_SETTING: Final = "maximumHopLimit"
ACCEPT_PRESIGNED_SETTING: Final = "acceptPresignedRequests"
ISSUERS_SETTING: Final = "webIdentityIssuers"
MAXIMUM_AGE_SETTING: Final = "maximumEvidenceAgeSeconds"
CLOCK_SKEW_SETTING: Final = "clockSkewSeconds"
CERTIFICATES_SETTING: Final = "regionCertificatesFolder"
REPLACED_CERTIFICATES_SETTING: Final = "replacedRegionCertificates"
REQUIRED_TAGS_SETTING: Final = "requiredTags"

OPERATOR_SETTINGS: Final = frozenset(
    {
        ALLOWED_ROLES_SETTING,
        ALLOWED_REGIONS_SETTING,
        ACCOUNT_ROLES_SETTING,
        DESCRIBE_INSTANCES_SETTING,
        CHECK_ROLE_TRUST_SETTING,
        CHECK_ATTACH_TIMES_SETTING,
        REQUIRE_IMDSV2_SETTING,
        HOP_LIMIT_SETTING,
        ACCEPT_PRESIGNED_SETTING,
        ISSUERS_SETTING,
        MAXIMUM_AGE_SETTING,
        CLOCK_SKEW_SETTING,
        CERTIFICATES_SETTING,
        REPLACED_CERTIFICATES_SETTING,
    }
)
POLICY_SETTINGS: Final = frozenset({ALLOWED_ROLES_SETTING, ALLOWED_REGIONS_SETTING, REQUIRED_TAGS_SETTING})
_ROLE_ARN: Final = re.compile(
    r"arn:(?P<partition>[a-z-]{1,16}):iam::(?P<account>[0-9]{12}):role/(?:[!-~]{1,511}/)?(?P<name>[A-Za-z0-9_+=,.@-]{1,64})"
)
_ACCOUNT: Final = re.compile(r"[0-9]{12}")
_MAXIMUM_ENTRIES: Final = 256
_MAXIMUM_TAGS: Final = 16
_MAXIMUM_TAG_CHARACTERS: Final = 256
_AGE_SECONDS: Final = (30, 900)
_DEFAULT_AGE_SECONDS: Final = 300
_SKEW_SECONDS: Final = (0, 300)
_DEFAULT_SKEW_SECONDS: Final = 60
_HOP_LIMITS: Final = (1, 64)
_ANY: Final = "any"


@dataclass(frozen=True, slots=True, order=True)
class Role:
    """A role of one account: the name alone is ambiguous, as every account may have a role of that name."""

    partition: str
    account: str
    name: str


@dataclass(frozen=True, slots=True)
class AnyRegion:
    """Instances of every Region are allowed if their role is."""


@dataclass(frozen=True, slots=True)
class NotDescribed:
    """The operator turned EC2 calls off: then it is unknown whether an instance still runs, and which names it has."""


@dataclass(frozen=True, slots=True)
class AWSSettings:
    """The parsed settings of the server plugin."""

    roles: frozenset[Role]
    """The allowed roles; an instance's own role must be one of them."""
    regions: frozenset[str] | AnyRegion
    instance_rules: InstanceRules | NotDescribed
    check_role_trust: bool
    require_session_tokens: bool
    accept_presigned: bool
    issuers: Mapping[str, str]
    """The token issuer of each account that has one; tokens of other accounts are refused."""
    freshness: Freshness
    certificates: RegionCertificates
    account_roles: Mapping[str, str]
    """ARN of the role that the controller assumes in each account; it uses its own credentials for all others."""

    @property
    def asks_aws_with_credentials(self) -> bool:
        """Whether EC2 or IAM is called, which needs credentials of the controller."""
        return self.check_role_trust or not isinstance(self.instance_rules, NotDescribed)

    @classmethod
    def parse(cls, settings: AttestorSettings) -> AWSSettings:
        """Parse the settings. A policy can leave out roles and Regions, and require tags; it can allow nothing.

        Raises:
            InvalidSettings: a setting is wrong, unknown or missing, or wider than the operator's.
        """
        operator, policy = settings.operator, settings.policy
        _reject_unknown(operator, OPERATOR_SETTINGS, "the operator's settings")
        _reject_unknown(policy, POLICY_SETTINGS, "a policy's settings")
        issuers = _issuers(operator)
        accept_presigned = _switch(operator, ACCEPT_PRESIGNED_SETTING)
        if not accept_presigned and not issuers:
            raise InvalidSettings(f"without {ACCEPT_PRESIGNED_SETTING}, {ISSUERS_SETTING} is required")
        return cls(
            roles=_allowed_roles(operator, policy),
            regions=_allowed_regions(operator, policy),
            instance_rules=_instance_rules(operator, policy),
            check_role_trust=_switch(operator, CHECK_ROLE_TRUST_SETTING),
            require_session_tokens=_switch(operator, REQUIRE_IMDSV2_SETTING),
            accept_presigned=accept_presigned,
            issuers=issuers,
            freshness=Freshness(
                maximum_age=_seconds(operator, MAXIMUM_AGE_SETTING, _DEFAULT_AGE_SECONDS, _AGE_SECONDS),
                clock_skew=_seconds(operator, CLOCK_SKEW_SETTING, _DEFAULT_SKEW_SECONDS, _SKEW_SECONDS),
            ),
            certificates=_certificates(operator),
            account_roles=_account_roles(operator),
        )


def _reject_unknown(given: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    unknown = set(given) - known
    if unknown:
        raise InvalidSettings(f"{what} of the AWS attestor have no {min(unknown)!r}, only {', '.join(sorted(known))}")


def _switch(given: Mapping[str, Any], name: str) -> bool:
    """True unless the operator turns it off."""
    value = given.get(name, True)
    if not isinstance(value, bool):
        raise InvalidSettings(f"{name} must be true or false")
    return value


def _integer(given: Mapping[str, Any], name: str, default: int, bounds: tuple[int, int]) -> int:
    value = given.get(name, default)
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        raise InvalidSettings(f"{name} must be a whole number from {bounds[0]} to {bounds[1]}")
    return value


def _seconds(given: Mapping[str, Any], name: str, default: int, bounds: tuple[int, int]) -> timedelta:
    return timedelta(seconds=_integer(given, name, default, bounds))


def _texts(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = given[name]
    if not isinstance(values, list) or not 0 < len(values) <= _MAXIMUM_ENTRIES:
        raise InvalidSettings(f"{name} must be a list of 1 to {_MAXIMUM_ENTRIES} texts")
    if not all(isinstance(value, str) for value in values):
        raise InvalidSettings(f"{name} must be a list of texts")
    return tuple(values)


def _mapping(given: Mapping[str, Any], name: str, maximum: int = _MAXIMUM_ENTRIES) -> Mapping[str, str]:
    values = given.get(name, {})
    if not isinstance(values, dict) or len(values) > maximum:
        raise InvalidSettings(f"{name} must be an object with at most {maximum} entries")
    if not all(isinstance(text, str) for pair in values.items() for text in pair):
        raise InvalidSettings(f"{name} must be an object of texts; accounts must be quoted")
    return MappingProxyType(dict(values))


def _role(name: str, arn: str) -> Role:
    found = _ROLE_ARN.fullmatch(arn)
    try:
        if found is None:
            raise UnknownRegion
        return Role(partition_named(found["partition"]).name, found["account"], found["name"])
    except UnknownRegion:
        raise InvalidSettings(f"{name}: write a role as arn:aws:iam::<account>:role/<name>, without *") from None


def _allowed_roles(operator: Mapping[str, Any], policy: Mapping[str, Any]) -> frozenset[Role]:
    if ALLOWED_ROLES_SETTING not in operator:
        raise InvalidSettings(f"{ALLOWED_ROLES_SETTING} is missing: which instances' roles may join?")
    allowed = frozenset(_role(ALLOWED_ROLES_SETTING, arn) for arn in _texts(operator, ALLOWED_ROLES_SETTING))
    if ALLOWED_ROLES_SETTING not in policy:
        return allowed
    wanted = frozenset(_role(ALLOWED_ROLES_SETTING, arn) for arn in _texts(policy, ALLOWED_ROLES_SETTING))
    if not wanted <= allowed:
        role = min(wanted - allowed)
        raise InvalidSettings(
            f"{ALLOWED_ROLES_SETTING}: the operator does not allow role {role.name} of account {role.account}"
        )
    return wanted


def _allowed_regions(operator: Mapping[str, Any], policy: Mapping[str, Any]) -> frozenset[str] | AnyRegion:
    allowed, wanted = _regions(operator), _regions(policy)
    if isinstance(wanted, AnyRegion) or isinstance(allowed, AnyRegion):
        return allowed if isinstance(wanted, AnyRegion) else wanted
    if not wanted <= allowed:
        raise InvalidSettings(f"{ALLOWED_REGIONS_SETTING}: the operator does not allow {min(wanted - allowed)}")
    return wanted


def _regions(given: Mapping[str, Any]) -> frozenset[str] | AnyRegion:
    if ALLOWED_REGIONS_SETTING not in given:
        return AnyRegion()
    try:
        return frozenset(parse_region(name).name for name in _texts(given, ALLOWED_REGIONS_SETTING))
    except UnknownRegion as error:
        raise InvalidSettings(f"{ALLOWED_REGIONS_SETTING} holds a value that is not an AWS Region") from error


def _instance_rules(operator: Mapping[str, Any], policy: Mapping[str, Any]) -> InstanceRules | NotDescribed:
    tags = _mapping(policy, REQUIRED_TAGS_SETTING, _MAXIMUM_TAGS)
    if any(not 0 < len(key) <= _MAXIMUM_TAG_CHARACTERS or len(tags[key]) > _MAXIMUM_TAG_CHARACTERS for key in tags):
        raise InvalidSettings(
            f"{REQUIRED_TAGS_SETTING}: keys and values have up to {_MAXIMUM_TAG_CHARACTERS} characters"
        )
    check_attach_times = _switch(operator, CHECK_ATTACH_TIMES_SETTING)
    require_session_tokens = _switch(operator, REQUIRE_IMDSV2_SETTING)
    hop_limit = (
        AnyHopLimit()
        if operator.get(HOP_LIMIT_SETTING) == _ANY
        else _integer(operator, HOP_LIMIT_SETTING, 1, _HOP_LIMITS)
    )
    if not _switch(operator, DESCRIBE_INSTANCES_SETTING):
        if tags:
            raise InvalidSettings(f"{REQUIRED_TAGS_SETTING}: the operator turned EC2 calls off, so tags cannot be read")
        return NotDescribed()
    return InstanceRules(require_session_tokens, hop_limit, check_attach_times, tags)


def _issuers(operator: Mapping[str, Any]) -> Mapping[str, str]:
    issuers = _mapping(operator, ISSUERS_SETTING)
    for account, issuer in issuers.items():
        if not _ACCOUNT.fullmatch(account) or not is_issuer(issuer):
            raise InvalidSettings(f"{ISSUERS_SETTING} must name an issuer, https://<host>, for accounts of 12 digits")
    return issuers


def _account_roles(operator: Mapping[str, Any]) -> Mapping[str, str]:
    roles = _mapping(operator, ACCOUNT_ROLES_SETTING)
    for account, arn in roles.items():
        if _role(ACCOUNT_ROLES_SETTING, arn).account != account:
            raise InvalidSettings(
                f"{ACCOUNT_ROLES_SETTING}: the role for account {account} must belong to that account"
            )
    return roles


def _certificates(operator: Mapping[str, Any]) -> RegionCertificates:
    folder = operator.get(CERTIFICATES_SETTING)
    if folder is not None and (not isinstance(folder, str) or not folder.startswith("/")):
        raise InvalidSettings(f"{CERTIFICATES_SETTING} must be the absolute path of a folder")
    replaced = (
        frozenset(_texts(operator, REPLACED_CERTIFICATES_SETTING))
        if REPLACED_CERTIFICATES_SETTING in operator
        else frozenset()
    )
    try:
        return load_region_certificates(None if folder is None else Path(folder), replacing=replaced)
    except RegionCertificatesUnreadable as error:
        raise InvalidSettings(f"{CERTIFICATES_SETTING}: {error}") from error
