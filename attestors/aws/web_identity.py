"""A token of STS GetWebIdentityToken as proof of the caller: AWS signed it for this binding, and it is not forwarded.

It needs outbound identity federation in the node's account, and the account's issuer in the operator's settings. STS
itself names the instance whose credentials were used (``ec2_source_instance_arn``), so no session name is trusted.
Source: IAM user guide, "Understanding token claims", and a recorded token's claims.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from attestors.aws import wire
from attestors.aws.document import InstanceIdentityDocument
from attestors.clouds.json_web_token import InvalidToken, UnverifiedToken
from attestors.verdict import denied
from attestors.wire.evidence import MalformedEvidence

_NAMESPACE: Final = "https://sts.amazonaws.com/"
_ROLE: Final = re.compile(
    r"arn:(?P<partition>[a-z-]{1,16}):iam::(?P<account>[0-9]{12}):role/(?:[!-~]{1,511}/)?(?P<name>[A-Za-z0-9_+=,.@-]{1,64})"
)
_SESSION_TOKEN_DELIVERY: Final = "2.0"  # noqa: S105  a version of the metadata service
_MAXIMUM_SECONDS: Final = 253402300799
"""The last second of the year 9999, the maximum of Python's datetime."""
MAXIMUM_LIFETIME: Final = timedelta(hours=1)
"""The maximum ``DurationSeconds`` of GetWebIdentityToken."""


@dataclass(frozen=True, slots=True)
class WebIdentity:
    """The token's claims; trust them only after its signature was verified with a key of ``issuer``."""

    issuer: str
    binding: bytes
    """The binding in its audience."""
    issued_at: datetime
    expires_at: datetime
    partition: str
    account: str
    role_name: str
    instance_arn: str
    """Empty if the credentials are not those of an instance."""
    delivered_to_session_token: bool
    """Whether the instance got those credentials through IMDSv2 (``ec2_role_delivery``)."""

    @classmethod
    def read(cls, token: UnverifiedToken) -> WebIdentity:
        """Parse the claims.

        Raises:
            MalformedEvidence: a claim is missing or malformed.
        """
        claims = token.claims
        role = _ROLE.fullmatch(_text(claims, "sub"))
        session = claims.get(_NAMESPACE)
        if role is None or not isinstance(session, Mapping):
            raise MalformedEvidence("the web identity token is not about a role of an AWS account")
        account = _text(session, "aws_account")
        if account != role["account"]:
            raise MalformedEvidence("the web identity token names a role of another account than its own")
        if _moment(claims, "nbf", default="iat") != _moment(claims, "iat"):
            raise MalformedEvidence("the web identity token is not valid from the moment of its issue")
        return cls(
            issuer=_text(claims, "iss"),
            binding=wire.audience_binding(_audience(claims)),
            issued_at=_moment(claims, "iat"),
            expires_at=_moment(claims, "exp"),
            partition=role["partition"],
            account=account,
            role_name=role["name"],
            instance_arn=_text(session, "ec2_source_instance_arn", default=""),
            delivered_to_session_token=_text(session, "ec2_role_delivery", default="") == _SESSION_TOKEN_DELIVERY,
        )

    def require_instance(self, document: InstanceIdentityDocument, *, session_token: bool) -> None:
        """Require that this very instance requested the token and, if required, with credentials from IMDSv2.

        Raises:
            Ended: denied.
        """
        region = document.region
        expected = (
            f"arn:{region.partition.name}:ec2:{region.name}:{document.account_id}:instance/{document.instance_id}"
        )
        if self.instance_arn != expected:
            raise denied(
                "CallerIsAnotherInstance",
                f"the web identity token was not issued to {document.instance_id}, the instance in the document",
            )
        if session_token and not self.delivered_to_session_token:
            raise denied(
                "CredentialsDeliveredOpenly",
                f"{document.instance_id} got the credentials behind its token without IMDSv2, which is required",
            )
        if self.expires_at - self.issued_at > MAXIMUM_LIFETIME:
            raise denied("WebIdentityRefused", "the web identity token is valid for longer than STS allows")


def parse_web_identity_token(text: str) -> UnverifiedToken:
    """Parse the token.

    Raises:
        MalformedEvidence: it is malformed, or uses a forbidden algorithm.
    """
    try:
        return UnverifiedToken.parse(text)
    except InvalidToken as error:
        raise MalformedEvidence(f"the web identity token: {error}") from error


def _audience(claims: Mapping[str, Any]) -> str:
    """The only audience: each of several audiences could reuse the token."""
    audience = claims.get("aud")
    if isinstance(audience, list) and len(audience) == 1:
        audience = audience[0]
    if not isinstance(audience, str):
        raise MalformedEvidence("the web identity token does not have exactly one audience")
    return audience


def _text(claims: Mapping[str, Any], name: str, *, default: str | None = None) -> str:
    value = claims.get(name, default)
    if not isinstance(value, str):
        raise MalformedEvidence(f"the web identity token has a missing or malformed {name}")
    return value


def _moment(claims: Mapping[str, Any], name: str, *, default: str = "") -> datetime:
    """A NumericDate (RFC 7519 section 2) in whole seconds, as STS writes it."""
    value = claims.get(name, claims.get(default))
    if type(value) is not int or not 0 <= value <= _MAXIMUM_SECONDS:
        raise MalformedEvidence(f"the web identity token has a missing or invalid {name}")
    return datetime.fromtimestamp(value, UTC)
