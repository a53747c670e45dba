"""A sink that remembers, and the objects that lists and watches carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from signer.kube.client import JsonObject
from signer.kube.errors import (
    ApiError,
)
from signer.kube.watch import DEFAULT_BACKOFF

PATH = "/api/v1/secrets"
LEAST_DELAY = DEFAULT_BACKOFF.base_seconds * (1 - DEFAULT_BACKOFF.jitter)


class Recorder:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.failures: list[tuple[ApiError, float]] = []

    def replaced(self, objects: Sequence[JsonObject]) -> None:
        self.calls.append(("replaced", [o["metadata"]["name"] for o in objects]))

    def applied(self, item: JsonObject) -> None:
        self.calls.append(("applied", item["metadata"]["name"]))

    def removed(self, item: JsonObject) -> None:
        self.calls.append(("removed", item["metadata"]["name"]))

    def synced(self) -> None:
        self.calls.append(("synced", None))

    def failed(self, error: ApiError, retry_in_seconds: float) -> None:
        self.calls.append(("failed", type(error).__name__))
        self.failures.append((error, retry_in_seconds))

    def of(self, *kinds: str) -> list[tuple[str, Any]]:
        return [call for call in self.calls if call[0] in kinds]


def item(name: str, version: int | str) -> JsonObject:
    return {"metadata": {"name": name, "resourceVersion": str(version)}}


def event(kind: str, name: str, version: int | str) -> JsonObject:
    return {"type": kind, "object": item(name, version)}


def error_event(code: Any, **fields: Any) -> JsonObject:
    return {"type": "ERROR", "object": {"kind": "Status", "code": code, **fields}}


def page(version: int | str, *names: str) -> JsonObject:
    return {"metadata": {"resourceVersion": str(version)}, "items": [item(name, 1) for name in names]}
