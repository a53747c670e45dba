"""The controller's own key: Secret ``node-attestation-controller-key`` in the controller's namespace.

As precious as a CA's key: who has it writes records that are believed. It is made once, by whichever replica comes
first, and never changed by a controller. To rotate it, an operator moves ``current`` to ``previous`` and sets a new
``current``: what was sealed with the previous one stays good, and is sealed anew whenever it is next written. Rotating
twice within the life of a certificate makes nodes attest again.

Whatever is wrong with the Secret, nothing is overwritten, and everything waits until it has been mended.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import secrets
from collections.abc import Mapping
from random import SystemRandom
from typing import Any, Final

from signer.kube.backoff import Backoff
from signer.kube.calls import GetCreate
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, ApiError, NotFound
from signer.kube.resources import SECRETS
from signer.model.seal import KEY_BYTES, ControllerKeys, InvalidControllerKey, NoPreviousKey
from signer.store.authentic_records import AuthenticRecords, KeysUnavailable

_LOG = logging.getLogger(__name__)
SECRET_NAME: Final = "node-attestation-controller-key"  # noqa: S105 - the name of a Secret
WHERE_MISSING: Final = (
    "has the controller run, and is --controller-namespace its namespace? If it was deleted, put its copy back before "
    "a controller starts: that makes a new one"
)
"""What to ask where it does not exist."""
READ_AGAIN_SECONDS: Final = 180.0
AT_MOST_EVERY_SECONDS: Final = 5.0
"""Records with unknown keys are other people's to write: they do not make us ask the API server without end."""
_FAILED: Final = Backoff(base_seconds=1.0, maximum_seconds=60.0, jitter=0.5)


class MalformedControllerKey(Exception):
    """The Secret is there and does not hold what it must; the message says what, and nothing of its content."""


class ControllerKey:
    """Keeps records under the keys that the Secret holds."""

    def __init__(self, namespace: str, records: AuthenticRecords) -> None:
        self._namespace = namespace
        self._records = records
        self._was_read = False
        self.readable = False
        """Whether the last look at the Secret found keys in it, whatever was read before."""
        self.settled = asyncio.Event()
        """Set once the Secret has been looked at, whatever came of it."""

    async def run(self, client: GetCreate) -> None:
        """Read the keys, or make them, then look again every few minutes and when a record needs it."""
        attempt = 0
        while True:
            attempt = 0 if await self.refresh(client) else attempt + 1
            self.settled.set()
            if attempt:
                await asyncio.sleep(_FAILED.delay(attempt - 1, SystemRandom()))
                continue
            await asyncio.sleep(AT_MOST_EVERY_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(READ_AGAIN_SECONDS):
                    await self._records.key_wanted.wait()

    async def refresh(self, client: GetCreate) -> bool:
        """Read the keys once; returns whether they were had. What went wrong is logged, and everything waits."""
        secret = f"Secret {self._namespace}/{SECRET_NAME}"
        self._records.reading_keys()
        self.readable = await self._refresh(client, secret)
        return self.readable

    async def _refresh(self, client: GetCreate, secret: str) -> bool:
        try:
            keys = await self._read_or_create(client)
        except MalformedControllerKey as error:
            _LOG.error(
                "the controller key cannot be used: nothing is decided until it is mended",
                extra={"secret": secret, "error": str(error)},
            )
            self._records.use_no_keys(KeysUnavailable(f"{secret}: {error}"))
            return False
        except ApiError as error:
            deleted = self._was_read and isinstance(error, NotFound)
            remedy = "the controller key was deleted: put its copy back before this controller ends"
            _LOG.log(
                logging.ERROR if deleted else logging.WARNING,
                remedy if deleted else "cannot read the controller key",
                extra={"secret": secret, "error": str(error)},
            )
            if not self._was_read:  # else the keys that were read stay good
                self._records.use_no_keys(KeysUnavailable(f"{secret} cannot be read: {error}"))
            return False
        self._was_read = True
        self._records.use_keys(keys)
        return True

    async def _read_or_create(self, client: GetCreate) -> ControllerKeys:
        path = SECRETS.object(SECRET_NAME, self._namespace)
        try:
            return parse_controller_keys(await client.get(path))
        except NotFound:
            if self._was_read:
                raise  # somebody deleted it; another key in its place would make every record worthless
        body = controller_key_secret(self._namespace, ControllerKeys(secrets.token_bytes(KEY_BYTES)))
        try:
            created = await client.create(SECRETS.collection(self._namespace), body)
        except AlreadyExists:
            created = await client.get(path)  # another replica was first
        else:
            _LOG.info("made the controller key", extra={"namespace": self._namespace, "secret": SECRET_NAME})
        return parse_controller_keys(created)


def parse_controller_keys(manifest: Mapping[str, Any]) -> ControllerKeys:
    """Read the Secret.

    Raises:
        MalformedControllerKey: ``current`` is missing, or a key is not ``KEY_BYTES`` long.
    """
    data = manifest.get("data")
    if not isinstance(data, Mapping) or "current" not in data:
        raise MalformedControllerKey("it has no data.current")
    current = _key_bytes(data, "current")
    try:
        return ControllerKeys(current, _key_bytes(data, "previous") if "previous" in data else NoPreviousKey())
    except InvalidControllerKey as error:
        raise MalformedControllerKey(str(error)) from error


def controller_key_secret(namespace: str, keys: ControllerKeys) -> JsonObject:
    """The Secret that holds those keys."""
    generations = {"current": keys.current}
    if not isinstance(keys.previous, NoPreviousKey):
        generations["previous"] = keys.previous
    return {
        "apiVersion": SECRETS.api_version,
        "kind": "Secret",
        "metadata": {"name": SECRET_NAME, "namespace": namespace},
        "type": "Opaque",
        "data": {name: base64.b64encode(key).decode("ascii") for name, key in generations.items()},
    }


def _key_bytes(data: Mapping[str, Any], name: str) -> bytes:
    value = data[name]
    if not isinstance(value, str):
        raise MalformedControllerKey(f"data.{name} is not text")
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise MalformedControllerKey(f"data.{name} is not base64") from None
