"""The person in whose name the gateway acts in a workload cluster (Kubernetes "User impersonation")."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Final, Self

from signer.gateway.websocket import QueryFields, Upgraded, WebSocketSession
from signer.kube.client import Client, JsonObject, Parameters
from signer.kube.connection import ClusterConnection, bearer
from signer.kube.tls import client_context

USERNAME_PREFIX: Final = "node-access:"
"""A name of the management cluster may belong to somebody else in the workload cluster; with this prefix to nobody."""
CONTAINERS_GROUP: Final = "node-access:containers"
"""The group that the workload cluster gives its rights to; the gateway's credential may impersonate no other."""
RESERVED_PREFIX: Final = "system:"
"""Kubernetes' own names, such as ``system:masters``."""
MAXIMUM_NAME_CHARACTERS: Final = 1024
MAXIMUM_GROUPS: Final = 16
MAXIMUM_BODY_BYTES: Final = 4 * 1024 * 1024
"""The gateway reads single objects and lists of the Pods of one workload."""
USER_AGENT: Final = "node-access-gateway"

_NAME: Final = re.compile(r"[!-~](?:[ -~]*[!-~])?", re.ASCII)


class InvalidPerson(ValueError):
    """No API server would take this name as it is, or the gateway must never use it."""


@dataclass(frozen=True, slots=True)
class Person:
    """Whom to impersonate: values of ``Impersonate-User`` and ``Impersonate-Group`` (apiserver
    ``pkg/endpoints/filters/impersonation.go``).

    The API server takes the bytes of a field as they are: it decodes no percent signs and splits no commas. But Go's
    ``net/textproto`` drops spaces at both ends of a value, so that ``"alice "`` would act as ``"alice"``. Characters
    outside ASCII have no encoding that all HTTP software agrees on (RFC 9110 section 5.5). Both are refused.
    """

    username: str
    groups: tuple[str, ...]

    def __post_init__(self) -> None:
        """Raises InvalidPerson."""
        if not 1 <= len(self.groups) <= MAXIMUM_GROUPS:
            # Without a group, the API server would look up the groups of some names itself.
            raise InvalidPerson(f"a person has 1 to {MAXIMUM_GROUPS} groups")
        _check("the user name", self.username)
        for group in self.groups:
            _check("the name of a group", group)

    @classmethod
    def of_creator(cls, creator: str) -> Person:
        """The person who made an access grant, by the user name in the management cluster.

        Raises:
            InvalidPerson: the name is empty, or has characters that impersonation cannot carry.
        """
        if not creator:
            raise InvalidPerson("the creator of the grant has no name, so that nobody can be impersonated")
        return cls(USERNAME_PREFIX + creator, (CONTAINERS_GROUP,))

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The header fields of each request; a group has a field of its own."""
        return ("Impersonate-User", self.username), *(("Impersonate-Group", group) for group in self.groups)


def _check(what: str, name: str) -> None:
    if len(name) > MAXIMUM_NAME_CHARACTERS or _NAME.fullmatch(name) is None:
        raise InvalidPerson(
            f"{what} cannot be impersonated: it must be 1 to {MAXIMUM_NAME_CHARACTERS} printable ASCII characters, "
            "without a space at either end"
        )
    if name.startswith(RESERVED_PREFIX):
        raise InvalidPerson(f"{what} must not begin with {RESERVED_PREFIX}")


class PersonAPI:
    """The API of one workload cluster as one person sees it: ``async with PersonAPI(...) as api``."""

    def __init__(self, connection: ClusterConnection, person: Person, session: WebSocketSession) -> None:
        """Raises TlsMaterialRefused for unusable certificates, Unauthorized for a token that no header can carry, and
        ValueError for an address that is not https.
        """
        self.person = person
        self._tls = connection.tls if connection.tls is not None else client_context(connection)
        self._connection = replace(connection, tls=self._tls)
        self._session = session
        self._client = Client(
            self._connection, user_agent=USER_AGENT, maximum_body_bytes=MAXIMUM_BODY_BYTES, fields=person.fields
        )

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def get(self, path: str, params: Parameters | None = None) -> JsonObject:
        """Get one object, or a list that is known to be small. Raises ApiError."""
        return await self._client.get(path, params)

    async def patch(self, path: str, patch: JsonObject, content_type: str) -> JsonObject:
        """Change fields of one object. Raises ApiError."""
        return await self._client.patch(path, patch, content_type)

    async def websocket(self, path: str, params: QueryFields, protocols: Sequence[str]) -> Upgraded:
        """Open a WebSocket with one of ``protocols``, the first being preferred. The caller must close it. For ``path``
        and ``params`` see :meth:`~signer.gateway.websocket.WebSocketSession.connect`.

        Raises:
            ApiError: the server refused, with its own message; or it could not be reached.
            ValueError: no API call can have this path.
        """
        token = self._connection.bearer_token
        authorization = () if token is None else (("Authorization", bearer(token)),)
        fields = (("User-Agent", USER_AGENT), *authorization, *self.person.fields)
        return await self._session.connect(self._connection, self._tls, path, params, protocols, fields)
