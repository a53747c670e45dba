"""What a command's user may not read in the management cluster, so that the command can say what it does not know."""

from __future__ import annotations

import contextlib

from signer.kube.calls import Get
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Forbidden
from signer.kube.resources import SECRETS
from signer.store.caches import Caches
from signer.store.controller_key import SECRET_NAME


async def key_is_refused(source: Get, caches: Caches, namespace: str) -> bool:
    """Whether the controller key, which was not readable before, is refused to this user."""
    reads = NotingReads(source)
    if not caches.controller_key.readable:
        with contextlib.suppress(ApiError):
            await reads.get(SECRETS.object(SECRET_NAME, namespace))
    return reads.refused


class NotingReads:
    """Reads objects, and notes whether the API server refused one to the user."""

    def __init__(self, source: Get) -> None:
        self._source = source
        self._refused = False

    @property
    def refused(self) -> bool:
        """Whether a read was refused."""
        return self._refused

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        try:
            return await self._source.get(path)
        except Forbidden:
            self._refused = True
            raise
