"""The principals that may assume an instance's role, by its trust policy.

A presigned request shows a session name, which the caller of AssumeRole chooses. The name proves the instance only if
no principal but EC2 may assume the role (aws-iam-authenticator documents the same for ``EC2PrivateDNSName``).
Source: IAM user guide, "IAM JSON policy elements: Principal".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote

from attestors.aws.partitions import partition_named
from attestors.verdict import not_until_fixed

_MAXIMUM_POLICY_CHARACTERS: Final = 8192
"""IAM's own limit is 4,096 without white space."""


class UnexpectedTrustPolicy(ValueError):
    """The trust policy is not in IAM's form."""


@dataclass(frozen=True, slots=True)
class RoleTrust:
    """A role according to IAM: its current ID, and whether only EC2 may assume it."""

    role_id: str
    ec2_only: bool


def read_trust(role_id: str, policy: str | Mapping[str, Any], *, partition: str) -> RoleTrust:
    """Parse ``Role.RoleId`` and ``Role.AssumeRolePolicyDocument`` of GetRole; boto3 usually decodes the latter.

    Raises:
        UnexpectedTrustPolicy: the policy is not in IAM's form.
    """
    document = _document(policy) if isinstance(policy, str) else policy
    statements = document.get("Statement")
    if isinstance(statements, Mapping):
        statements = [statements]
    if not isinstance(statements, list) or not all(isinstance(statement, Mapping) for statement in statements):
        raise UnexpectedTrustPolicy("the trust policy has no statements")
    principals = partition_named(partition).ec2_principals
    return RoleTrust(role_id, all(_is_ec2_alone(statement, principals) for statement in statements))


def require_trust(trust: RoleTrust, *, role_name: str, role_id: str) -> None:
    """Require that the session belongs to this very role, and that only EC2 may create its sessions.

    Raises:
        Ended: the request waits until the role is fixed.
    """
    if trust.role_id != role_id:
        raise not_until_fixed(
            "RoleWasReplaced", f"role {role_name} was deleted and recreated since the instance got its credentials"
        )
    if not trust.ec2_only:
        raise not_until_fixed(
            "RoleTrustTooWide",
            f"principals other than EC2 may assume role {role_name}, and could choose any instance's session name:"
            " allow only EC2 in its trust policy",
        )


def _document(policy: str) -> Mapping[str, Any]:
    if len(policy) > 3 * _MAXIMUM_POLICY_CHARACTERS:
        raise UnexpectedTrustPolicy("the trust policy is longer than IAM allows")
    try:
        document = json.loads(unquote(policy))
    except (ValueError, RecursionError) as error:
        raise UnexpectedTrustPolicy("the trust policy is not JSON") from error
    if not isinstance(document, Mapping):
        raise UnexpectedTrustPolicy("the trust policy is not a JSON object")
    return document


def _is_ec2_alone(statement: Mapping[str, Any], principals: tuple[str, ...]) -> bool:
    """Whether a statement allows only EC2; a Deny statement allows nothing."""
    if statement.get("Effect") == "Deny":
        return True
    principal = statement.get("Principal")
    if not isinstance(principal, Mapping) or set(principal) != {"Service"} or "NotPrincipal" in statement:
        return False
    services = principal["Service"]
    named = [services] if isinstance(services, str) else services
    return isinstance(named, list) and bool(named) and all(service in principals for service in named)
