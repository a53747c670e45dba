"""Parses the answer of STS to GetCallerIdentity, in JSON.

One form is accepted, a few error codes are the node's fault, and everything else is the fault of AWS or the network. A
redirect, a page of XML, an answer to another action or an oversized answer is never held against the node: it comes
from a host that the controller chose, and that presented its certificate.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from attestors.aws.caller_identity.role_session import CallerIdentity, ContradictoryAnswer, NotARoleSession
from attestors.clouds.errors import CloudUnavailable
from attestors.clouds.json_objects import InvalidObject, parse_object
from attestors.verdict import Ended, denied

MAXIMUM_ANSWER_BYTES: Final = 64 * 1024
SERVICE: Final = "AWS STS"

_OK: Final = 200
_THROTTLED_PAUSE: Final = timedelta(seconds=20)
_SERVERS_FAULT: Final = 500
_CONTENT_TYPE: Final = "application/json"
_NODES_FAULT: Final = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "RequestExpired",
        "SignatureDoesNotMatch",
    }
)
"""Credentials that do not exist or have expired, and signatures that are not theirs or too old (IAM user guide, "Common
errors"). An unknown code makes the request wait, like a denial by a network's policy."""
_THROTTLING: Final = frozenset(
    {"RequestLimitExceeded", "Throttling", "ThrottlingException", "TooManyRequestsException"}
)
_CODE_CHARACTERS: Final = 64


def read_answer(status: int, content_type: str, body: bytes) -> CallerIdentity:
    """The caller.

    Raises:
        Ended: denied, because STS blames the request or the caller is not an instance.
        CloudUnavailable: anything else; the request must wait.
    """
    if status == _OK:
        return _caller(content_type, body)
    raise _refusal(status, content_type, body)


def _caller(content_type: str, body: bytes) -> CallerIdentity:
    try:
        result = _only(_only(_object(content_type, body), "GetCallerIdentityResponse"), "GetCallerIdentityResult")
        account, arn, user_id = (_text(result, name) for name in ("Account", "Arn", "UserId"))
    except _NotUnderstood as error:
        raise _not_understood(str(error)) from error
    try:
        return CallerIdentity.parse(account=account, arn=arn, user_id=user_id)
    except ContradictoryAnswer as error:
        raise _not_understood(str(error)) from error
    except NotARoleSession as error:
        raise denied("CallerIsNoInstance", f"{error}; only an instance's own role is accepted") from error


def _refusal(status: int, content_type: str, body: bytes) -> Ended | CloudUnavailable:
    try:
        code = _text(_only(_object(content_type, body), "Error"), "Code")[:_CODE_CHARACTERS]
    except _NotUnderstood as error:
        return _not_understood(f"status {status} and {error}")
    if code in _THROTTLING:
        return CloudUnavailable(SERVICE, "too many requests at the moment", retry_after=_THROTTLED_PAUSE)
    if code in _NODES_FAULT and status < _SERVERS_FAULT:
        return denied("CallerIdentityRefused", f"{SERVICE} does not accept the caller identity request: {code}")
    return _not_understood(f"status {status} and code {code}")


class _NotUnderstood(ValueError):
    """The answer is malformed; the message describes it without quoting it."""


def _object(content_type: str, body: bytes) -> Any:
    if content_type.partition(";")[0].strip().lower() != _CONTENT_TYPE:
        raise _NotUnderstood("something else than JSON")
    if len(body) > MAXIMUM_ANSWER_BYTES:
        raise _NotUnderstood(f"more than {MAXIMUM_ANSWER_BYTES} bytes")
    try:
        return parse_object(body)
    except InvalidObject as error:
        raise _NotUnderstood("something that is not a JSON object, or has a repeated key") from error


def _only(value: Any, name: str) -> Any:
    """The member ``name`` of an object that otherwise holds only metadata of STS about the answer."""
    if not isinstance(value, dict) or not {name} <= set(value) <= {name, "ResponseMetadata", "RequestId"}:
        raise _NotUnderstood("an answer to another question")
    return value[name]


def _text(value: Any, name: str) -> str:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, str):
        raise _NotUnderstood(f"an answer without {name}")
    return found


def _not_understood(what: str) -> CloudUnavailable:
    return CloudUnavailable(SERVICE, f"answers with {what}")
