"""Calls of providers, which run in threads, through the event loop's client of the management cluster."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

from node_access.bastions.contract import (
    CallFailed,
    Deadline,
    NotPermitted,
    ObjectExists,
    ObjectNotFound,
    OutOfTime,
)
from signer.kube.calls import ManageDryRun
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, ApiError, Forbidden, NotFound, ResourceNotServed, Unauthorized

Answer = TypeVar("Answer")


class KubernetesCalls:
    """See :class:`node_access.bastions.contract.Kubernetes`. Its methods block, so the loop's own thread must not call
    them.
    """

    def __init__(self, client: ManageDryRun, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def get(self, path: str, deadline: Deadline) -> dict[str, Any]:
        """Read one object."""
        return self._run(self._client.get(path), deadline)

    def list(self, path: str, label_selector: str, deadline: Deadline) -> tuple[dict[str, Any], ...]:
        """Read the objects that have these labels."""
        return self._run(self._list(path, label_selector), deadline)

    async def _list(self, path: str, label_selector: str) -> tuple[JsonObject, ...]:
        return tuple(
            [
                item
                async for page in self._client.list_pages(path, {"labelSelector": label_selector})
                for item in page["items"]
            ]
        )

    def create(self, path: str, body: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Create an object."""
        return self._run(self._client.create(path, dict(body)), deadline)

    def would_create(self, path: str, body: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        """What the API server would store."""
        return self._run(self._client.create(path, dict(body), {"dryRun": "All"}), deadline)

    def patch(self, path: str, patch: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Change fields of an object."""
        return self._run(self._client.patch(path, dict(patch)), deadline)

    def delete(self, path: str, uid: str, deadline: Deadline) -> None:
        """Delete the object if it still has this UID."""
        self._run(self._client.delete(path, uid=uid), deadline)

    def _run(self, call: Coroutine[Any, Any, Answer], deadline: Deadline) -> Answer:
        try:
            seconds = deadline.seconds()
        except OutOfTime:
            call.close()
            raise
        future = asyncio.run_coroutine_threadsafe(call, self._loop)
        try:
            return future.result(seconds)
        except concurrent.futures.TimeoutError:
            future.cancel()
            raise OutOfTime from None
        except (NotFound, ResourceNotServed) as error:
            raise ObjectNotFound(str(error)) from error
        except AlreadyExists as error:
            raise ObjectExists(str(error)) from error
        except (Forbidden, Unauthorized) as error:
            raise NotPermitted(str(error)) from error
        except ApiError as error:
            raise CallFailed(str(error)) from error
