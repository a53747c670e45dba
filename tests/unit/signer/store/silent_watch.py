"""A watch that delivers nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from signer.kube.client import JsonObject, Parameters


class SilentWatch:
    """The base of a source whose list is all that a test is about."""

    async def watch(
        self,
        path: str,
        params: Parameters | None = None,
        *,
        timeout_seconds: float,
        idle_seconds: float = 0.0,
        accepted: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[JsonObject, None]:
        await asyncio.Event().wait()
        yield {}
