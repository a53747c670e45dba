"""Compute Engine's description of an instance, and of the keys of its virtual TPM.

https://cloud.google.com/compute/docs/reference/rest/v1/instances/get and
https://cloud.google.com/compute/docs/reference/rest/v1/instances/getShieldedInstanceIdentity
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from attestors.clouds.cache import SingleFlightCache
from attestors.clouds.calls import CloudCalls, Deadline
from attestors.clouds.errors import CloudObjectMissing, CloudRefused, CloudThrottled, CloudUnavailable, pause_from
from attestors.clouds.google.answers import INSTANCE_FIELDS, Instance, ShieldedInstanceIdentity
from attestors.clouds.google.credentials import AccessToken, GoogleCredentials
from attestors.clouds.google.provider_id import (
    InvalidGCEName,
    check_instance_id,
    check_instance_name,
    check_project,
    check_zone,
)
from attestors.clouds.google.settings import GoogleAccess
from attestors.clouds.json_objects import InvalidObject, objects_of, parse_object
from attestors.clouds.urls import Proxy, check_url

if TYPE_CHECKING:
    from attestors.clouds.exchange import Answer

_Read = TypeVar("_Read")

SERVICE: Final = "Google Compute Engine"
GET_PERMISSION: Final = "compute.instances.get"
SHIELDED_PERMISSION: Final = "compute.instances.getShieldedInstanceIdentity"

ANSWER_SECONDS: Final = 5.0
"""Maximum age of an answer. An instance may end at any moment; a request may use the answer several times."""
FAILURE_SECONDS: Final = 2.0

_QUOTA_PAUSE: Final = timedelta(minutes=1)
"""Quotas are refilled every minute (https://cloud.google.com/compute/api-quota)."""
_QUOTA_REASONS: Final = frozenset({"rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded"})
_MAXIMUM_ERRORS: Final = 16
_OK: Final = 200
_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_TOO_MANY_REQUESTS: Final = 429


class ComputeEngine:
    """The Compute Engine API. One instance serves the whole process; any asyncio task may use it.

    Args:
        access: the API's address and the credentials.
        calls: the threads for calls.
        credentials: replaces those that ``access`` names.
        clock: monotonic seconds, for the age of answers.

    Raises:
        ImportError: google-auth or requests is not installed (extra ``gcp``).
        InvalidURL: the base URL may not be called.
    """

    def __init__(
        self,
        access: GoogleAccess,
        *,
        calls: CloudCalls,
        credentials: GoogleCredentials | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from attestors.clouds.exchange import Exchange

        self._url = check_url(access.compute_url)
        self._calls = calls
        self._credentials = credentials or GoogleCredentials(access.credentials_file)
        self._exchange = Exchange(proxy=Proxy(access.proxy_url))
        self._instances: SingleFlightCache[tuple[str, str, str], Instance] = SingleFlightCache(
            lifetime_seconds=ANSWER_SECONDS, failure_seconds=FAILURE_SECONDS, clock=clock
        )

    def close(self) -> None:
        """Close the connections."""
        self._exchange.close()

    async def instance(self, project: str, zone: str, name_or_id: str) -> Instance:
        """``instances.get``, at most :data:`ANSWER_SECONDS` old.

        Raises:
            InvalidGCEName: the project, zone, name or ID is malformed.
            CloudObjectMissing: there is no such instance in that zone of that project.
            CloudRefused, CloudUnavailable: the call failed.
        """
        return await self._instances.get(
            (project, zone, name_or_id), lambda: self.instance_now(project, zone, name_or_id)
        )

    async def instance_now(self, project: str, zone: str, name_or_id: str) -> Instance:
        """``instances.get``, uncached.

        Raises:
            InvalidGCEName: the project, zone, name or ID is malformed.
            CloudObjectMissing: there is no such instance in that zone of that project.
            CloudRefused, CloudUnavailable: the call failed.
        """
        path = f"{_scope(project, zone)}/instances/{_name_or_id(name_or_id)}?fields={INSTANCE_FIELDS}"

        def read(document: Mapping[str, Any]) -> Instance:
            return Instance.read(document, project, zone, name_or_id)

        return await self._get(path, read, GET_PERMISSION, f"instance {name_or_id} in {project}/{zone}")

    async def shielded_instance_identity(self, project: str, zone: str, instance_id: str) -> ShieldedInstanceIdentity:
        """``instances.getShieldedInstanceIdentity``, uncached, for the instance with this numeric ID.

        The ID is required: another machine may have the name by now, and the answer does not name its instance.

        Raises:
            InvalidGCEName: the project, zone or ID is malformed.
            CloudObjectMissing: there is no such instance in that zone of that project.
            CloudRefused, CloudUnavailable: the call failed.
        """
        path = f"{_scope(project, zone)}/instances/{check_instance_id(instance_id)}/getShieldedInstanceIdentity"
        what = f"instance with ID {instance_id} in {project}/{zone}"
        return await self._get(path, ShieldedInstanceIdentity.read, SHIELDED_PERMISSION, what)

    async def _get(self, path: str, read: Callable[[Mapping[str, Any]], _Read], permission: str, what: str) -> _Read:
        def call(deadline: Deadline) -> _Read:
            body = self._body(path, deadline, permission, what)
            try:
                return read(parse_object(body))
            except InvalidObject as error:
                raise CloudUnavailable(SERVICE, f"its answer about {what} is unusable: {error}") from None

        return await self._calls.run(SERVICE, permission.removeprefix("compute."), call)

    def _body(self, path: str, deadline: Deadline, permission: str, what: str) -> bytes:
        answer = self._send(path, deadline)
        status = answer.status
        if status == _OK:
            return answer.body
        if status == _UNAUTHORIZED:
            raise CloudRefused(SERVICE, f"rejects the controller's credentials in a call about {what}")
        if status == _NOT_FOUND:
            raise CloudObjectMissing(SERVICE, f"there is no {what}")
        if status == _FORBIDDEN and _reasons(answer.body) & _QUOTA_REASONS:
            raise CloudThrottled(SERVICE, "a quota of requests is exhausted", retry_after=_QUOTA_PAUSE)
        if status == _FORBIDDEN:
            raise CloudRefused(
                SERVICE, f"the controller's credentials lack {permission}, or the API is not enabled, for {what}"
            )
        pause = pause_from(answer.headers.get("Retry-After"))
        kind = CloudThrottled if status == _TOO_MANY_REQUESTS else CloudUnavailable
        raise kind(SERVICE, f"answers {status} to a call about {what}", retry_after=pause)

    def _send(self, path: str, deadline: Deadline) -> Answer:
        token = self._credentials.token(self._exchange, deadline)
        answer = self._send_with(token, path, deadline)
        if answer.status != _UNAUTHORIZED:
            return answer
        # The token was revoked early, or the service account's key was changed.
        self._credentials.discard(token)
        return self._send_with(self._credentials.token(self._exchange, deadline), path, deadline)

    def _send_with(self, token: AccessToken, path: str, deadline: Deadline) -> Answer:
        headers = {"Authorization": f"Bearer {token.text}", "Accept": "application/json"}
        return self._exchange.send("GET", self._url + path, deadline=deadline, headers=headers)


@functools.cache  # each namespace may have its own settings: as many as the operator wrote
def compute_engine(access: GoogleAccess) -> ComputeEngine:
    """The instance for these settings, which the attestors of all clusters in the process share, with its cache.

    Each combination of settings has its own threads: a hanging endpoint or proxy of one namespace delays no other.

    Raises:
        ImportError: google-auth or requests is not installed (extra ``gcp``).
    """
    return ComputeEngine(access, calls=CloudCalls())


def _scope(project: str, zone: str) -> str:
    return f"/projects/{check_project(project)}/zones/{check_zone(zone)}"


def _name_or_id(text: str) -> str:
    try:
        return check_instance_id(text)
    except InvalidGCEName:
        return check_instance_name(text)


def _reasons(body: bytes) -> frozenset[str]:
    """The reasons in an error of Google's APIs (https://cloud.google.com/apis/design/errors, the older HTTP form)."""
    try:
        error = parse_object(body).get("error")
        listed = objects_of(error, "errors", maximum=_MAXIMUM_ERRORS) if isinstance(error, dict) else ()
    except InvalidObject:
        return frozenset()
    return frozenset(one["reason"] for one in listed if isinstance(one.get("reason"), str))
