"""A blocking client for tests and demos: the controller's client, on an event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from signer.kube.client import Client, JsonObject
from signer.kube.connection import ClusterConnection
from signer.testing.api.thread import end_connections

Result = TypeVar("Result")
DEFAULT_WAIT_SECONDS: Final = 30.0


class LoopThread:
    """An event loop in a daemon thread, as a context manager."""

    def __init__(self, name: str = "event loop") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.run(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def start(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Start a coroutine on the loop; returns a ``concurrent.futures.Future``."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a plain function on the loop, without waiting for it."""
        self._loop.call_soon_threadsafe(function, *arguments)


async def _cancel_all() -> None:
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await end_connections()


class BlockingClient:
    """A client of one API server, as one user. Paths are those of ``signer.kube.resources``."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._thread = LoopThread("blocking client")
        self._connection = connection
        self._client: Client | None = None

    def __enter__(self) -> Self:
        self._thread.__enter__()
        self._client = self._thread.run(self._open())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.run(self._open_client.close())
        self._thread.__exit__(kind, error, trace)

    @property
    def _open_client(self) -> Client:
        if self._client is None:
            raise RuntimeError("use BlockingClient as a context manager")
        return self._client

    async def _open(self) -> Client:
        return await Client(self._connection).__aenter__()

    def get(self, path: str) -> JsonObject:
        """See :meth:`signer.kube.client.Client.get`."""
        return self._thread.run(self._open_client.get(path))

    def items(self, path: str) -> list[JsonObject]:
        """All objects of a collection."""

        async def collect() -> list[JsonObject]:
            return [item async for page in self._open_client.list_pages(path) for item in page["items"]]

        return self._thread.run(collect())

    def create(self, path: str, body: JsonObject) -> JsonObject:
        """See :meth:`signer.kube.client.Client.create`."""
        return self._thread.run(self._open_client.create(path, body))

    def create_all(self, path: str, bodies: list[JsonObject]) -> list[JsonObject]:
        """Create many objects of one collection at once."""

        async def create() -> list[JsonObject]:
            return list(await asyncio.gather(*(self._open_client.create(path, body) for body in bodies)))

        return self._thread.run(create())

    def patch_all(self, patches: list[tuple[str, JsonObject]]) -> list[JsonObject]:
        """Merge-patch many objects at once."""

        async def patch() -> list[JsonObject]:
            return list(await asyncio.gather(*(self._open_client.patch(path, body) for path, body in patches)))

        return self._thread.run(patch())

    def replace(self, path: str, body: JsonObject) -> JsonObject:
        """See :meth:`signer.kube.client.Client.replace`."""
        return self._thread.run(self._open_client.replace(path, body))

    def patch(
        self,
        path: str,
        patch: JsonObject | list[JsonObject],
        content_type: str = "application/merge-patch+json",
    ) -> JsonObject:
        """See :meth:`signer.kube.client.Client.patch`."""
        return self._thread.run(self._open_client.patch(path, patch, content_type))

    def delete(self, path: str, *, uid: str | None = None) -> JsonObject:
        """See :meth:`signer.kube.client.Client.delete`."""
        return self._thread.run(self._open_client.delete(path, uid=uid))

    def wait_for(
        self, path: str, name: str, condition: Callable[[JsonObject], bool], seconds: float = DEFAULT_WAIT_SECONDS
    ) -> JsonObject:
        """Watch the object ``name`` of the collection at ``path`` until ``condition`` holds for it.

        Raises:
            TimeoutError: it does not within ``seconds``; the message shows the object's last status.
        """
        selector = {"fieldSelector": f"metadata.name={name}"}
        return self._thread.run(self._wait_for(path, selector, name, condition, seconds))

    def wait_for_any(
        self, path: str, condition: Callable[[JsonObject], bool], seconds: float = DEFAULT_WAIT_SECONDS
    ) -> JsonObject:
        """Watch the collection at ``path`` until ``condition`` holds for one of its objects; returns that one.

        Raises:
            TimeoutError: it does not within ``seconds``; the message shows the last status seen.
        """
        return self._thread.run(self._wait_for(path, {}, path, condition, seconds))

    async def _wait_for(
        self,
        path: str,
        selector: dict[str, str],
        wanted: str,
        condition: Callable[[JsonObject], bool],
        seconds: float,
    ) -> JsonObject:
        item: JsonObject
        last: JsonObject = {}
        try:
            async with asyncio.timeout(seconds):
                while True:
                    listed = await self._open_client.get(path, selector)
                    for item in listed["items"]:
                        last = item
                        if condition(item):
                            return item
                    query = {**selector, "resourceVersion": listed["metadata"]["resourceVersion"]}
                    async for event in self._open_client.watch(path, query, timeout_seconds=seconds):
                        item = last = event["object"]
                        if event["type"] in ("ADDED", "MODIFIED") and condition(item):
                            return item
        except TimeoutError:
            raise TimeoutError(
                f"{wanted} did not reach the expected state in {seconds} s; last status: {last.get('status')}"
            ) from None
