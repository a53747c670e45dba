"""Signs the STS request that identifies this instance. The node does not send it; the controller does."""

from __future__ import annotations

from urllib.parse import urlencode

from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from attestors.aws.node.credentials import RoleCredentials
from attestors.aws.partitions import Region
from attestors.aws.wire import (
    BINDING_HEADER,
    MAXIMUM_CALLER_IDENTITY_REQUEST_CHARACTERS,
    PRESIGNED_SECONDS,
    STS_ACTION,
    STS_VERSION,
    binding_text,
)
from attestors.contract import EvidenceUnavailable
from attestors.wire.binding import Binding


def presigned_caller_identity(credentials: RoleCredentials, region: Region, binding: Binding) -> str:
    """URL of a presigned GetCallerIdentity at the Region's own STS, valid for this binding only.

    A signed header holds the binding. STS accepts the request only together with the same value, so that it cannot be
    used for another key, cluster or signer. Source: "Signature Version 4 request signing", query parameters.

    Raises:
        EvidenceUnavailable: the session token is too long for a request.
    """
    operation = urlencode({"Action": STS_ACTION, "Version": STS_VERSION})
    request = AWSRequest(
        "GET", f"https://{region.sts_host}/?{operation}", headers={BINDING_HEADER: binding_text(binding.value)}
    )
    signer = Credentials(credentials.access_key_id, credentials.secret_access_key, credentials.session_token)
    SigV4QueryAuth(signer, "sts", region.name, expires=PRESIGNED_SECONDS).add_auth(request)
    url = str(request.url)
    if len(url) > MAXIMUM_CALLER_IDENTITY_REQUEST_CHARACTERS:
        raise EvidenceUnavailable("the session token of this instance's role is too long for evidence")
    return url
