"""Requests encoded before a measurement, so that making them costs nothing during it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import aiohttp
import msgspec

from attestors.wire.names import NODE_USER_PREFIX, NODES_GROUP
from signer.kube.client import JsonObject
from signer.kube.connection import ClusterConnection
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.kube.tls import client_context
from tests.bench.load import Load, for_builtin_signer
from tests.support.control_plane import ControlPlane

CONNECTIONS: Final = 8


@dataclass(frozen=True, slots=True)
class Submission:
    """One encoded CSR, and the headers that name its requester."""

    name: str
    body: bytes
    headers: Mapping[str, str]


class NotCreated(Exception):
    """The API server refused a request, so the measurement is invalid."""


def first_joins(load: Load, prefix: str, token: str) -> list[Submission]:
    """A first join per node, with a bootstrap token."""
    return _with_token(load.requests(prefix), token)


def for_peer(load: Load, prefix: str, token: str) -> list[Submission]:
    """A request per node to the built-in signer, which kube-controller-manager decides."""
    return _with_token(for_builtin_signer(load.requests(prefix), "builtin"), token)


def renewals(load: Load, prefix: str) -> list[Submission]:
    """A renewal per node, posted as that node; the poster must be allowed to impersonate it."""
    return [
        _submission(manifest, {"Impersonate-User": NODE_USER_PREFIX + name, "Impersonate-Group": NODES_GROUP})
        for name, manifest in zip(load.names(), load.requests(prefix), strict=True)
    ]


def _with_token(manifests: Iterable[JsonObject], token: str) -> list[Submission]:
    return [_submission(manifest, {"Authorization": f"Bearer {token}"}) for manifest in manifests]


def _submission(manifest: JsonObject, headers: Mapping[str, str]) -> Submission:
    return Submission(manifest["metadata"]["name"], msgspec.json.encode(manifest), headers)


class Poster:
    """Posts submissions to one API server: ``async with Poster(control_plane) as poster``.

    With a bootstrap token it uses no client certificate, which would take precedence over the token.
    """

    def __init__(self, control_plane: ControlPlane) -> None:
        administrator = control_plane.connection()
        anonymous = ClusterConnection(administrator.server, administrator.certificate_authority)
        self._url = administrator.server + CERTIFICATE_SIGNING_REQUESTS.collection()
        self._connections = (administrator, anonymous)
        self._sessions: tuple[aiohttp.ClientSession, ...] = ()

    async def __aenter__(self) -> Self:
        connectors = (aiohttp.TCPConnector(ssl=client_context(one), limit=64) for one in self._connections)
        self._sessions = tuple(aiohttp.ClientSession(connector=connector) for connector in connectors)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in self._sessions:
            await session.close()

    async def post(self, submission: Submission) -> None:
        """Post one request.

        Raises:
            NotCreated: the API server refused it.
        """
        administrator, anonymous = self._sessions
        session = anonymous if "Authorization" in submission.headers else administrator
        headers = {"Content-Type": "application/json", **submission.headers}
        async with session.post(self._url, data=submission.body, headers=headers) as answer:
            text = await answer.text()
            if answer.status != 201:
                raise NotCreated(f"{submission.name}: {answer.status} {text[:500]}")

    async def post_all(self, submissions: Sequence[Submission]) -> None:
        """Post all requests, a few at a time.

        Raises:
            NotCreated: the API server refused one.
        """
        left = iter(submissions)

        async def post() -> None:
            for submission in left:
                await self.post(submission)

        await asyncio.gather(*(post() for _ in range(CONNECTIONS)))


def post_all(control_plane: ControlPlane, submissions: Sequence[Submission]) -> None:
    """Post all requests.

    Raises:
        NotCreated: the API server refused one.
    """

    async def post() -> None:
        async with Poster(control_plane) as poster:
            await poster.post_all(submissions)

    asyncio.run(post())
