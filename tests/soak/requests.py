"""Posts CertificateSigningRequests and waits for their verdicts, retrying while the API server is down."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from signer.kube.client import Client, JsonObject
from signer.kube.errors import (
    AlreadyExists,
    Forbidden,
    Gone,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.world import Verdict

_PAUSE_SECONDS: Final = 0.3
_WATCH_SECONDS: Final = 60.0
_REQUESTS: Final = CERTIFICATE_SIGNING_REQUESTS.collection()
PASSING: Final = (Unreachable, ServerError, TooManyRequests, Gone, Unauthorized, Forbidden)
"""Temporary errors. A kube-apiserver that has just started knows neither bootstrap tokens nor grants."""

Result = TypeVar("Result")


async def patiently(call: Callable[[], Awaitable[Result]]) -> Result:
    """Repeat the call on temporary errors (``PASSING``); raises all others."""
    while True:
        try:
            return await call()
        except PASSING:
            await asyncio.sleep(_PAUSE_SECONDS)


async def create(client: Client, path: str, manifest: JsonObject) -> None:
    """Create an object once, even if a response is lost."""
    try:
        await patiently(lambda: client.create(path, manifest))
    except AlreadyExists:
        return  # by an earlier attempt: the names are unique


async def post(client: Client, manifest: JsonObject) -> None:
    """Post a CertificateSigningRequest."""
    await create(client, _REQUESTS, manifest)


async def decision(client: Client, name: str) -> Verdict:
    """Wait without a time limit until a CertificateSigningRequest is decided.

    Raises:
        NotFound: it was deleted.
    """
    selector = {"fieldSelector": f"metadata.name={name}"}
    while True:
        listed = await patiently(lambda: client.get(_REQUESTS, selector))
        if not listed["items"]:
            raise NotFound(f"{name} is gone")
        for item in listed["items"]:
            if _is_decided(verdict := Verdict.of(item)):
                return verdict
        query = {**selector, "resourceVersion": listed["metadata"]["resourceVersion"]}
        try:
            async for event in client.watch(_REQUESTS, query, timeout_seconds=_WATCH_SECONDS):
                if event["type"] == "MODIFIED" and _is_decided(verdict := Verdict.of(event["object"])):
                    return verdict
        except PASSING:
            await asyncio.sleep(_PAUSE_SECONDS)


def _is_decided(verdict: Verdict) -> bool:
    return bool(verdict.certificate) or verdict.condition in ("Denied", "Failed")
