"""Injected faults, and the log of requests."""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from .identity import User
from .status import APIError

_KEPT_REQUESTS = 200_000
WRITE_METHODS = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class Request:
    """A request as seen by a fault's condition."""

    method: str
    path: str
    query: str
    user: User


Match = str | Callable[[Request], bool]
"""A shell pattern for ``METHOD path`` such as ``PUT */certificatesigningrequests/*/status``, or a predicate."""
Drop = Literal["before", "after"]


@dataclass(slots=True, eq=False)
class Fault:
    """One fault: an error response, a delay, a broken connection, or several of these."""

    match: Match
    status: int | None = None
    retry_after_seconds: int | None = None
    delay_seconds: float = 0.0
    not_served: bool = False
    """Respond like an API server that has just started and not read its CustomResourceDefinitions yet: 404,
    without a Kubernetes Status."""
    drop: Drop | None = None
    """Close the connection without a response, before the request is processed or after."""
    times: int | None = 1
    """The number of requests that it still affects; None means all."""
    hits: int = field(default=0, init=False)

    def matches(self, request: Request) -> bool:
        if callable(self.match):
            return self.match(request)
        return fnmatch.fnmatchcase(f"{request.method} {request.path}", self.match)

    def error(self) -> APIError:
        """The response of this fault; only for faults with a status."""
        status = self.status or 500
        reason, message = _REASONS.get(status, ("InternalError", "injected fault"))
        return APIError(status, reason, message, {}, self.retry_after_seconds)


_REASONS = {
    401: ("Unauthorized", "Unauthorized"),
    403: ("Forbidden", "injected fault"),
    404: ("NotFound", "injected fault"),
    409: ("Conflict", "Operation cannot be fulfilled: the object has been modified (injected fault)"),
    410: ("Expired", "too old resource version (injected fault)"),
    422: ("Invalid", "injected fault"),
    429: ("TooManyRequests", "Too many requests, please try again later."),
    503: ("ServiceUnavailable", "injected fault"),
    504: ("Timeout", "injected fault"),
}


class Faults:
    """The active faults. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def inject(
        self,
        match: Match,
        *,
        status: int | None = None,
        retry_after_seconds: int | None = None,
        not_served: bool = False,
        delay_seconds: float = 0.0,
        drop: Drop | None = None,
        times: int | None = 1,
    ) -> Fault:
        """Inject a fault into the next ``times`` matching requests. The first matching fault applies."""
        fault = Fault(match, status, retry_after_seconds, delay_seconds, not_served, drop, times)
        with self._lock:
            self._faults.append(fault)
        return fault

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()

    def take(self, request: Request) -> Fault | None:
        """The fault for this request; decrements its remaining count."""
        if not self._faults:
            return None
        with self._lock:
            for fault in self._faults:
                if fault.matches(request):
                    fault.hits += 1
                    if fault.times is not None:
                        fault.times -= 1
                        if fault.times <= 0:
                            self._faults.remove(fault)
                    return fault
        return None


@dataclass(frozen=True, slots=True)
class LoggedRequest:
    """One answered request. ``status`` 0 means that the connection was dropped."""

    method: str
    path: str
    query: str
    user: str
    status: int


class RequestLog:
    """The requests in the order of their answers (a watch is logged when it begins). Safe in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[LoggedRequest] = []

    def append(self, request: LoggedRequest) -> None:
        with self._lock:
            if len(self._requests) >= _KEPT_REQUESTS:
                del self._requests[: _KEPT_REQUESTS // 2]
            self._requests.append(request)

    def clear(self) -> None:
        with self._lock:
            self._requests.clear()

    def __len__(self) -> int:
        return len(self._requests)

    def matching(self, pattern: str = "*") -> list[LoggedRequest]:
        """Requests whose ``METHOD path`` matches a shell pattern."""
        with self._lock:
            known = list(self._requests)
        return [entry for entry in known if fnmatch.fnmatchcase(f"{entry.method} {entry.path}", pattern)]

    def writes(self, pattern: str = "*") -> list[LoggedRequest]:
        """Successful requests that may have changed something."""
        return [
            entry for entry in self.matching(pattern) if entry.method in WRITE_METHODS and entry.status in (200, 201)
        ]
