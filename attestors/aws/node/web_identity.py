"""Requests an STS token that identifies this instance, for node attestation only.

Source: STS API Reference, GetWebIdentityToken; the account must have enabled outbound identity federation.
"""

from __future__ import annotations

import os
import re
from typing import Any, Final

from attestors.aws.node.credentials import RoleCredentials
from attestors.aws.partitions import Region
from attestors.aws.wire import MAXIMUM_WEB_IDENTITY_TOKEN_CHARACTERS, audience
from attestors.contract import EvidenceUnavailable
from attestors.wire.binding import Binding

SIGNING_ALGORITHM: Final = "RS256"
"""Cheaper to verify than ES384, the other algorithm that STS offers."""
TOKEN_SECONDS: Final = 300
CONNECT_SECONDS: Final = 5
READ_SECONDS: Final = 10
ATTEMPTS: Final = 3
_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+){2}")
"""JSON Web Signature, compact serialization (RFC 7515 7.1)."""
_CODE: Final = re.compile(r"[A-Za-z0-9.]{1,80}")
_REMEDIES: Final = {
    "OutboundWebIdentityFederationDisabled": (
        "enable outbound identity federation in the account (aws iam enable-outbound-web-identity-federation), or set "
        "proof to presigned"
    ),
    "AccessDenied": "allow this instance's role sts:GetWebIdentityToken, or set proof to presigned",
}


def web_identity_token(
    credentials: RoleCredentials, region: Region, binding: Binding, *, endpoint: str | None = None
) -> str:
    """A JSON Web Token whose only audience is the binding.

    ``endpoint`` is for tests: a URL in place of the Region's own STS.

    Raises:
        EvidenceUnavailable: STS is unreachable or refuses; the message says what a person can do.
    """
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    client = isolated_session().create_client(
        "sts",
        region_name=region.name,
        endpoint_url=endpoint or f"https://{region.sts_host}",
        aws_access_key_id=credentials.access_key_id,
        aws_secret_access_key=credentials.secret_access_key,
        aws_session_token=credentials.session_token,
        config=Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            proxies={},
        ),
    )
    try:
        answer = client.get_web_identity_token(
            Audience=[audience(binding.value)], SigningAlgorithm=SIGNING_ALGORITHM, DurationSeconds=TOKEN_SECONDS
        )
    except ClientError as error:
        raise _refused(str(error.response.get("Error", {}).get("Code", ""))) from error
    except BotoCoreError as error:
        raise EvidenceUnavailable(f"STS is unreachable at {region.sts_host} ({type(error).__name__})") from error
    except (ResponseParserError, KeyError) as error:
        raise EvidenceUnavailable("STS returns an unreadable answer: is a proxy in between?") from error
    finally:
        client.close()
    token = answer.get("WebIdentityToken")
    if (
        not isinstance(token, str)
        or len(token) > MAXIMUM_WEB_IDENTITY_TOKEN_CHARACTERS
        or not _COMPACT.fullmatch(token)
    ):
        raise EvidenceUnavailable("STS returns an unusable web identity token")
    return token


def isolated_session() -> Any:
    """A botocore session that ignores the profiles, files and variables of this program's user."""
    from botocore.session import Session

    from attestors.aws.dialled_clients import dial_for

    session = Session(
        session_vars={
            "profile": (None, None, None, None),
            "config_file": (None, None, os.devnull, None),
            "credentials_file": (None, None, os.devnull, None),
            "ca_bundle": (None, None, None, None),
        }
    )
    dial_for(session)
    return session


def _refused(code: str) -> EvidenceUnavailable:
    shown = code if _CODE.fullmatch(code) else "without a reason"
    remedy = _REMEDIES.get(code.removesuffix("Exception"))
    return EvidenceUnavailable(f"STS refuses a web identity token ({shown})" + (f": {remedy}" if remedy else ""))
