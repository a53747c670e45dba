"""The controller key: Secret ``node-attestation-controller-key`` in the controller's namespace.

It is as sensitive as a CA's key: its holder can forge records. The first replica creates it; a controller never changes
it. To rotate it, an operator moves ``current`` to ``previous`` and sets a new ``current``. Records sealed with the
previous key stay valid, and are sealed with the new one at their next write. Two rotations within the life of a
certificate make nodes attest again.

If the Secret is malformed, the controller overwrites nothing, and every decision waits until an operator has repaired
it.
"""

from __future__ import annotations

import asyncio
import base64
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
from signer.kube.supervision import until_wanted
from signer.model.seal import KEY_BYTES, ControllerKeys, InvalidControllerKey, NoPreviousKey
from signer.model.seal import SECRET_NAME as SECRET_NAME
from signer.store.authentic_records import AuthenticRecords, KeysUnavailable

_LOG = logging.getLogger(__name__)
MISSING_KEY_REMEDY: Final = (
    "has the controller run, and is --controller-namespace its namespace? If it was deleted, restore its copy before "
    "a controller starts, because that creates a new key"
)
"""Remedy for a missing Secret."""
READ_INTERVAL_SECONDS: Final = 180.0
MINIMUM_READ_INTERVAL_SECONDS: Final = 5.0
"""Minimum interval: any client that can write records with unknown keys would otherwise trigger reads without end."""
_RETRY: Final = Backoff(base_seconds=1.0, maximum_seconds=60.0, jitter=0.5)


class MalformedControllerKey(Exception):
    """The Secret exists but its content is malformed; the message says how, and never quotes it."""


class ControllerKey:
    """Keeps :class:`AuthenticRecords` supplied with the keys in the Secret."""

    def __init__(self, namespace: str, records: AuthenticRecords) -> None:
        self._namespace = namespace
        self._records = records
        self._was_read = False
        self.readable = False
        """Whether the last read of the Secret found keys in it, whatever was read before."""
        self.attempted = asyncio.Event()
        """Set after the first attempt to read the Secret, successful or not."""
        self._one_read = asyncio.Lock()

    async def run(self, client: GetCreate) -> None:
        """Read or create the keys, then read them again every ``READ_INTERVAL_SECONDS`` and when a record needs a newer
        key.
        """
        attempt = 0
        while True:
            attempt = 0 if await self.refresh(client) else attempt + 1
            self.attempted.set()
            if attempt:
                await asyncio.sleep(_RETRY.delay(attempt - 1, SystemRandom()))
                continue
            await asyncio.sleep(MINIMUM_READ_INTERVAL_SECONDS)
            await until_wanted(self._records.key_wanted, READ_INTERVAL_SECONDS)

    async def refresh(self, client: GetCreate) -> bool:
        """Read the keys once; returns whether that succeeded. A failure is logged."""
        secret = f"Secret {self._namespace}/{SECRET_NAME}"
        async with self._one_read:
            self._records.begin_key_read()
            self.readable = await self._refresh(client, secret)
            return self.readable

    async def _refresh(self, client: GetCreate, secret: str) -> bool:
        try:
            keys = await self._read_or_create(client)
        except MalformedControllerKey as error:
            _LOG.error(
                "the controller key is malformed: no decision is made until an operator repairs it",
                extra={"secret": secret, "error": str(error)},
            )
            self._records.use_no_keys(KeysUnavailable(f"{secret}: {error}"))
            return False
        except ApiError as error:
            deleted = self._was_read and isinstance(error, NotFound)
            remedy = "the controller key was deleted: restore its copy before this controller ends"
            _LOG.log(
                logging.ERROR if deleted else logging.WARNING,
                remedy if deleted else "cannot read the controller key",
                extra={"secret": secret, "error": str(error)},
            )
            if not self._was_read:  # otherwise the keys that were read before stay in use
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
                raise  # it was deleted; a new key would make every record invalid
        body = controller_key_secret(self._namespace, ControllerKeys(secrets.token_bytes(KEY_BYTES)))
        try:
            created = await client.create(SECRETS.collection(self._namespace), body)
        except AlreadyExists:
            created = await client.get(path)  # another replica was first
        else:
            _LOG.info("created the controller key", extra={"namespace": self._namespace, "secret": SECRET_NAME})
        return parse_controller_keys(created)


def parse_controller_keys(manifest: Mapping[str, Any]) -> ControllerKeys:
    """Parse the Secret.

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
