"""Access tokens through google-auth, from the operator's own credentials only.

This supports the part of Application Default Credentials that belongs to a controller, in this order: the file of the
operator's settings, the file that ``GOOGLE_APPLICATION_CREDENTIALS`` names, the metadata server (an instance's service
account, or GKE's workload identity). A person's login (``gcloud auth application-default login``) is rejected.

google-auth's loader for any kind of file is deprecated: a file may name a command to run or an address to which tokens
are sent. This module therefore reads the file's type itself. It passes only a service account's key, and workload
identity federation with a file or URL as source, to google-auth's loader for that type. All requests of google-auth go
through our exchange.

This module imports google-auth only where it is used.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from attestors.clouds.calls import Deadline, too_slow
from attestors.clouds.errors import CloudError, CloudRefused, CloudUnavailable, pause_from
from attestors.clouds.google.settings import CREDENTIALS_FILE_SETTING
from attestors.clouds.json_objects import InvalidObject, parse_object
from attestors.clouds.urls import InvalidURL, PlainHosts

if TYPE_CHECKING:
    from attestors.clouds.exchange import Exchange

SCOPES: Final = ("https://www.googleapis.com/auth/compute.readonly",)
SERVICE: Final = "Google's credentials service"
CREDENTIALS_VARIABLE: Final = "GOOGLE_APPLICATION_CREDENTIALS"

_MAXIMUM_FILE_BYTES: Final = 64 * 1024
_MARGIN_SECONDS: Final = 240.0
"""A token is not used in its last minutes; from then on the metadata server returns a new one."""
_MAXIMUM_LIFETIME_SECONDS: Final = 3600.0
_FAILURE_SECONDS: Final = 5.0
_ERROR_CODE: Final = re.compile(r"[a-z_]{1,40}")
_TOO_MANY_REQUESTS: Final = 429


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A bearer token."""

    text: str = field(repr=False)
    usable_until: float = field(repr=False)
    """On the monotonic clock."""


@dataclass(frozen=True, slots=True)
class _Failure:
    error: CloudError
    until: float


class GoogleCredentials:
    """Provides access tokens to many threads; one thread fetches while the others wait.

    The operator's file is read for each new token, so that a new key takes effect within the hour without a restart.

    Args:
        file: the operator's file; empty for the defaults.
        environment: for ``GOOGLE_APPLICATION_CREDENTIALS``.
        clock: monotonic seconds.

    Raises:
        ImportError: google-auth is not installed (extra ``gcp``).
    """

    def __init__(
        self,
        file: str = "",
        *,
        environment: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        import google.auth.exceptions  # noqa: F401 - to be told now, not at the first request

        self._file = file
        self._environment = environment
        self._clock = clock
        self._lock = threading.Lock()
        self._token = AccessToken("", float("-inf"))
        self._failure: _Failure | None = None

    def token(self, exchange: Exchange, deadline: Deadline) -> AccessToken:
        """A token that is valid for some minutes.

        Raises:
            CloudUnavailable: the token service is unavailable.
            CloudRefused: the credentials are missing, of an unsupported kind, or rejected.
        """
        token = self._token
        if self._clock() < token.usable_until:
            return token
        if not self._lock.acquire(timeout=deadline.remaining()):
            raise too_slow(SERVICE)
        try:
            if self._clock() < self._token.usable_until:
                return self._token
            if self._failure is not None and self._clock() < self._failure.until:
                raise self._failure.error.with_traceback(None)
            try:
                self._token = self._fetch(exchange, deadline)
            except CloudError as error:
                self._failure = _Failure(error, self._clock() + _FAILURE_SECONDS)
                raise
            self._failure = None
            return self._token
        finally:
            self._lock.release()

    def discard(self, token: AccessToken) -> None:
        """Stop using this token: it was rejected before its expiry."""
        with self._lock:
            if self._token is token:
                self._token = AccessToken("", float("-inf"))

    def _fetch(self, exchange: Exchange, deadline: Deadline) -> AccessToken:
        import google.auth.exceptions

        try:
            credentials = self._load()
            credentials.refresh(_Transport(exchange, deadline))
        except google.auth.exceptions.TransportError:
            raise CloudUnavailable(SERVICE, "does not answer as it should") from None
        except google.auth.exceptions.GoogleAuthError as error:
            if error.retryable:
                raise CloudUnavailable(SERVICE, "cannot issue a token now") from None
            raise CloudRefused(SERVICE, f"the controller's credentials are rejected{_code(error)}") from None
        except InvalidURL as error:
            raise CloudRefused(SERVICE, f"a URL in the credentials file {error}") from None
        except (ValueError, TypeError, KeyError, AttributeError, OSError):
            # Errors of google-auth for an invalid key, or for an answer or a token file in another form.
            raise CloudRefused(SERVICE, "the credentials, or the answer to them, are unusable") from None
        return self._token_of(credentials.token, credentials.expiry)

    def _token_of(self, text: Any, expiry: datetime | None) -> AccessToken:
        if not isinstance(text, str) or not text.isascii() or not text.isprintable() or not text:
            raise CloudUnavailable(SERVICE, "returns an invalid token")
        lifetime = 0.0
        if expiry is not None:
            # google-auth's times are naive, in UTC.
            lifetime = (expiry.replace(tzinfo=UTC) - datetime.now(UTC)).total_seconds()
        usable = min(lifetime, _MAXIMUM_LIFETIME_SECONDS) - _MARGIN_SECONDS
        return AccessToken(text, self._clock() + usable)

    def _load(self) -> Any:
        path = self._file or self._environment.get(CREDENTIALS_VARIABLE, "")
        if not path:
            from google.auth import compute_engine

            return compute_engine.Credentials(scopes=list(SCOPES))
        named = CREDENTIALS_FILE_SETTING if self._file else CREDENTIALS_VARIABLE
        return _from_file(named, path)


def _from_file(named: str, path: str) -> Any:
    from google.auth import identity_pool
    from google.oauth2 import service_account

    try:
        with open(path, "rb") as file:
            content = file.read(_MAXIMUM_FILE_BYTES + 1)
        if len(content) > _MAXIMUM_FILE_BYTES:
            raise InvalidObject("too large")
        document = parse_object(content)
    except (OSError, InvalidObject):
        raise CloudRefused(SERVICE, f"the file that {named} names is unreadable, or not a JSON object") from None
    kind = document.get("type")
    if kind == "service_account":
        return service_account.Credentials.from_service_account_info(document, scopes=list(SCOPES))
    if kind == "external_account":
        source = document.get("credential_source")
        if not isinstance(source, dict) or len({"file", "url"} & set(source)) != 1 or set(source) - _SOURCE_KEYS:
            raise CloudRefused(
                SERVICE,
                f"{named}: workload identity federation is supported only with a file or a url as its source",
            )
        return identity_pool.Credentials.from_info(document, scopes=list(SCOPES))
    raise CloudRefused(
        SERVICE, f"{named} must name a service account's key or a workload identity federation's configuration"
    )


_SOURCE_KEYS: Final = frozenset({"file", "url", "headers", "format"})


def _code(error: Exception) -> str:
    """The OAuth error code (RFC 6749 5.2), if any; nothing else of the answer is quoted."""
    details = error.args[1] if len(error.args) > 1 else None
    code = details.get("error") if isinstance(details, Mapping) else None
    return f" ({code})" if isinstance(code, str) and _ERROR_CODE.fullmatch(code) else ""


@dataclass(frozen=True, slots=True)
class _Response:
    """The response type that google-auth expects (``google.auth.transport.Response``)."""

    status: int
    headers: Mapping[str, str]
    data: bytes = field(repr=False)


class _Transport:
    """google-auth's requests through our exchange (``google.auth.transport.Request``)."""

    def __init__(self, exchange: Exchange, deadline: Deadline) -> None:
        self._exchange = exchange
        self._deadline = deadline

    def __call__(
        self,
        url: str,
        method: str = "GET",
        body: bytes | str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: object = None,
        **options: object,
    ) -> _Response:
        # google-auth would retry by itself, for longer than its caller waits: a failure ends here.
        answer = self._exchange.send(
            method,
            url,
            deadline=self._deadline,
            headers=headers or {},
            body=body,
            plain_hosts=PlainHosts.LOOPBACK_AND_METADATA,
        )
        if answer.status >= 500 or answer.status == _TOO_MANY_REQUESTS:
            pause = pause_from(answer.headers.get("Retry-After"), timedelta(seconds=10))
            raise CloudUnavailable(SERVICE, f"answers {answer.status}", retry_after=pause)
        return _Response(answer.status, answer.headers, answer.body)
