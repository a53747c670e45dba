"""The instance metadata service, version 2 only: every request carries a session token, which a PUT request created.

Version 1 is never tried: a proxy or a server-side request forgery on the node could use it, and an instance should not
enable it. No proxies and no redirects: the connection goes to one address, and only that address answers.
Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/configuring-instance-metadata-service.html.
"""

from __future__ import annotations

import contextlib
import http.client
import re
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from attestors.aws.node import deadline
from attestors.aws.node.settings import MetadataEndpoint
from attestors.contract import EvidenceUnavailable
from attestors.net.http_response import StrictResponse

IDENTITY_DOCUMENT: Final = "/latest/dynamic/instance-identity/document"
IDENTITY_DOCUMENT_PKCS7: Final = "/latest/dynamic/instance-identity/rsa2048"
ROLE_CREDENTIALS: Final = "/latest/meta-data/iam/security-credentials/"

_TOKEN_PATH: Final = "/latest/api/token"  # noqa: S105  a path
_TOKEN_HEADER: Final = "X-aws-ec2-metadata-token"  # noqa: S105  the name of a header
_TOKEN_LIFETIME_HEADER: Final = "X-aws-ec2-metadata-token-ttl-seconds"  # noqa: S105  the name of a header
TOKEN_SECONDS: Final = 60
"""Long enough to gather evidence once."""
_TOKEN: Final = re.compile(r"[\x21-\x7e]{1,1024}")
MAXIMUM_ANSWER_BYTES: Final = 64 * 1024
_RETRIED: Final = frozenset(
    {
        HTTPStatus.TOO_MANY_REQUESTS,
        HTTPStatus.INTERNAL_SERVER_ERROR,
        HTTPStatus.BAD_GATEWAY,
        HTTPStatus.SERVICE_UNAVAILABLE,
        HTTPStatus.GATEWAY_TIMEOUT,
    }
)


class MetadataMissing(EvidenceUnavailable):
    """The service works, and has nothing at the path."""


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    body: bytes = field(repr=False)


class InstanceMetadata:
    """One session with the metadata service."""

    def __init__(self, endpoint: MetadataEndpoint) -> None:
        """Sends no request."""
        self._endpoint = endpoint
        self._token: str | None = None

    def get(self, path: str) -> bytes:
        """The content at a path.

        Raises:
            MetadataMissing: there is none.
            EvidenceUnavailable: the service is unreachable or fails; the message says what a person can do.
        """
        answer = self._request_with_token(path)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            # A token is valid for its lifetime, or until the instance is moved.
            self._token = None
            answer = self._request_with_token(path)
        if answer.status == HTTPStatus.NOT_FOUND:
            raise MetadataMissing(f"the instance metadata service has no {path}")
        if answer.status != HTTPStatus.OK:
            raise self._refused(path, answer.status)
        return answer.body

    def _request_with_token(self, path: str) -> _Answer:
        if self._token is None:
            self._token = self._new_token()
        return self._request("GET", path, {_TOKEN_HEADER: self._token})

    def _new_token(self) -> str:
        answer = self._request("PUT", _TOKEN_PATH, {_TOKEN_LIFETIME_HEADER: str(TOKEN_SECONDS)})
        if answer.status != HTTPStatus.OK:
            raise self._refused(_TOKEN_PATH, answer.status)
        token = answer.body.decode("latin-1")
        if not _TOKEN.fullmatch(token):
            raise EvidenceUnavailable("the instance metadata service returns an unusable token")
        return token

    def _refused(self, path: str, status: int) -> EvidenceUnavailable:
        if status == HTTPStatus.FORBIDDEN:
            return EvidenceUnavailable(
                "the instance metadata service is turned off: enable it for this instance "
                "(aws ec2 modify-instance-metadata-options --http-endpoint enabled --http-tokens required)"
            )
        return EvidenceUnavailable(f"the instance metadata service answers {path} with HTTP status {status}")

    def _request(self, method: str, path: str, headers: dict[str, str]) -> _Answer:
        """Send one request; retry while the service is unreachable or throttles."""
        for more in deadline.attempts():
            try:
                answer = self._request_once(method, path, headers)
            except (OSError, http.client.HTTPException) as error:
                if not more:
                    raise self._unreachable(error) from error
            else:
                if answer.status not in _RETRIED or not more:
                    return answer
        raise AssertionError  # pragma: no cover - the last attempt returns or raises

    def _request_once(self, method: str, path: str, headers: dict[str, str]) -> _Answer:
        connection = http.client.HTTPConnection(
            self._endpoint.host, self._endpoint.port, timeout=deadline.REQUEST_SECONDS
        )
        connection.response_class = StrictResponse
        with contextlib.closing(connection):
            connection.request(method, path, headers=headers)
            response = connection.getresponse()
            body = response.read(MAXIMUM_ANSWER_BYTES + 1)
        if len(body) > MAXIMUM_ANSWER_BYTES:
            raise EvidenceUnavailable(f"the instance metadata service answers {path} with too many bytes")
        return _Answer(response.status, body)

    def _unreachable(self, error: OSError | http.client.HTTPException) -> EvidenceUnavailable:
        where = f"the instance metadata service cannot be reached at {self._endpoint.host} port {self._endpoint.port}"
        if isinstance(error, TimeoutError):
            return EvidenceUnavailable(
                f"{where}: no answer. In a container, the hop limit of this instance may be too small: run this "
                "program on the host's network"
            )
        return EvidenceUnavailable(f"{where} ({type(error).__name__}): is this an EC2 instance?")
