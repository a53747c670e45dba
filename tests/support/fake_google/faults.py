"""Injectable faults of the fake Google, and its log of requests."""

from __future__ import annotations

import asyncio
import enum
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from aiohttp import web

_CHUNK: Final = b" " * 65536

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Service(enum.Enum):
    """The parts of the fake, which fail independently."""

    METADATA = "metadata server"
    CERTIFICATES = "certificates"
    TOKEN = "token endpoint"
    COMPUTE = "compute"


@dataclass(frozen=True, slots=True)
class Fault:
    """A faulty response to a request."""

    answer: Handler = field(repr=False)

    @classmethod
    def status(cls, status: int, body: str = "", headers: Mapping[str, str] | None = None) -> Self:
        """This status, body and headers."""

        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(status=status, text=body, headers=headers, content_type="application/json")

        return cls(answer)

    @classmethod
    def throttled(cls, retry_after: str = "7") -> Self:
        """429 with a ``Retry-After``."""
        return cls.status(429, '{"error":{"code":429,"message":"quota"}}', {"Retry-After": retry_after})

    @classmethod
    def redirect(cls, location: str) -> Self:
        """302 to somewhere else."""
        return cls.status(302, "", {"Location": location})

    @classmethod
    def content(cls, body: bytes, content_type: str = "application/json") -> Self:
        """200 with another body."""

        async def answer(request: web.Request) -> web.StreamResponse:
            return web.Response(body=body, content_type=content_type)

        return cls(answer)

    @classmethod
    def hangs(cls) -> Self:
        """No response until the client or the fake closes the connection."""

        async def answer(request: web.Request) -> web.StreamResponse:
            await asyncio.Event().wait()
            raise AssertionError("the event is never set")

        return cls(answer)

    @classmethod
    def dribbles(cls, pause_seconds: float = 0.05) -> Self:
        """An endless response, byte by byte, so that no single read takes long."""

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            while True:
                await response.write(b" ")
                await asyncio.sleep(pause_seconds)

        return cls(answer)

    @classmethod
    def endless(cls) -> Self:
        """An endless response at full speed."""

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            while True:
                await response.write(_CHUNK)
                await asyncio.sleep(0)

        return cls(answer)

    @classmethod
    def breaks_off(cls) -> Self:
        """The connection is closed without a response."""

        async def answer(request: web.Request) -> web.StreamResponse:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionResetError

        return cls(answer)


@dataclass(frozen=True, slots=True)
class Seen:
    """One received request."""

    service: Service
    method: str
    path: str
    query: str
    headers: Mapping[str, str] = field(repr=False)


class Faults:
    """The active faults by service, and the log of requests; may be used from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failing: dict[Service, list[tuple[Fault, str, int | None]]] = {service: [] for service in Service}
        self._seen: list[Seen] = []

    def set(self, service: Service, fault: Fault, *, path: str, times: int | None) -> None:
        with self._lock:
            self._failing[service].append((fault, path, times))

    def clear(self, service: Service) -> None:
        with self._lock:
            self._failing[service].clear()

    def seen(self, service: Service) -> list[Seen]:
        with self._lock:
            return [one for one in self._seen if one.service is service]

    def counts(self) -> Counter[Service]:
        with self._lock:
            return Counter(one.service for one in self._seen)

    def guarded(self, service: Service, handler: Handler) -> Handler:
        """A handler that applies the service's fault, or else calls ``handler``."""

        async def answer(request: web.Request) -> web.StreamResponse:
            headers = {name: request.headers[name] for name in request.headers}
            with self._lock:
                self._seen.append(Seen(service, request.method, request.path, request.query_string, headers))
                failing = self._next(service, request.path)
            return await (failing.answer if failing else handler)(request)

        return answer

    def _next(self, service: Service, path: str) -> Fault | None:
        for index, (fault, part, times) in enumerate(self._failing[service]):
            if part not in path:
                continue
            if times is not None:
                if times == 1:
                    del self._failing[service][index]
                else:
                    self._failing[service][index] = (fault, part, times - 1)
            return fault
        return None
