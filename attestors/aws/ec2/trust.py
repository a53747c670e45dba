"""Who may assume an instance's role, as its trust policy says.

A presigned request shows a session's name, and whoever calls AssumeRole chooses it. EC2's own word is only believed of
a role that nobody but EC2 may assume (aws-iam-authenticator documents the same for ``EC2PrivateDNSName``).
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
    """The trust policy is not of IAM's form."""


@dataclass(frozen=True, slots=True)
class RoleTrust:
    """What IAM says of a role: which one it is at the moment, and whether EC2 alone may assume it."""

    role_id: str
    ec2_only: bool


def read_trust(role_id: str, policy: str | Mapping[str, Any], *, partition: str) -> RoleTrust:
    """``Role.RoleId`` and ``Role.AssumeRolePolicyDocument`` of GetRole; boto3 has decoded the latter, usually.

    Raises:
        UnexpectedTrustPolicy: the policy is not of IAM's form.
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
    """The session is of this very role, and only EC2 makes sessions of it.

    Raises:
        Ended: not until somebody mends the role.
    """
    if trust.role_id != role_id:
        raise not_until_fixed(
            "RoleWasReplaced", f"role {role_name} was deleted and made anew since the instance got its credentials"
        )
    if not trust.ec2_only:
        raise not_until_fixed(
            "RoleTrustTooWide",
            f"others than EC2 may assume role {role_name}, and could name their session after any instance:"
            " let its trust policy name EC2 alone",
        )


def _document(policy: str) -> Mapping[str, Any]:
    if len(policy) > 3 * _MAXIMUM_POLICY_CHARACTERS:
        raise UnexpectedTrustPolicy("the trust policy is longer than IAM allows")
    try:
        document = json.loads(unquote(policy))
    except (ValueError, RecursionError) as error:
        raise UnexpectedTrustPolicy("the trust policy is no JSON") from error
    if not isinstance(document, Mapping):
        raise UnexpectedTrustPolicy("the trust policy is no JSON object")
    return document


def _is_ec2_alone(statement: Mapping[str, Any], principals: tuple[str, ...]) -> bool:
    """Whether a statement lets in EC2 and nobody else; one that denies lets in nobody."""
    if statement.get("Effect") == "Deny":
        return True
    principal = statement.get("Principal")
    if not isinstance(principal, Mapping) or set(principal) != {"Service"} or "NotPrincipal" in statement:
        return False
    services = principal["Service"]
    named = [services] if isinstance(services, str) else services
    return isinstance(named, list) and bool(named) and all(service in principals for service in named)
