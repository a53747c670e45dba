"""Signed statements as ConfigMaps of a workload cluster: read, and written with a look at what is there afterwards.

The owner of the workload cluster can change or delete the ConfigMaps. That only delays nodes: they accept nothing that
the controller has not signed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from cryptography.exceptions import InvalidSignature

from attestors.wire import statement
from attestors.wire.statement import (
    MAXIMUM_STATEMENT_BYTES,
    MalformedStatement,
    SignedStatement,
    UnsupportedStatement,
    signed_input,
)
from attestors.wire.statement.names import STATEMENT_NAMESPACE
from attestors.wire.statement.signatures import verify
from signer.authority.statement_signing import StatementKeys
from signer.kube.calls import Get, GetCreateReplace
from signer.kube.client import JsonObject
from signer.kube.errors import NotFound
from signer.kube.resources import CONFIG_MAPS
from signer.model.fields import mapping_of

SIGNED_AGAIN: Final = timedelta(days=10)
"""A statement with less of its life left is signed again."""


class NotPublished(Exception):
    """After the write, the ConfigMap does not hold the statement: something else writes it."""


@dataclass(frozen=True, slots=True)
class NotOurs:
    """Nothing that this controller has signed."""


async def read_statements(client: Get, name: str) -> JsonObject:
    """The ConfigMap of that name; empty if there is none.

    Raises:
        ApiError: from the workload cluster.
    """
    try:
        return await client.get(CONFIG_MAPS.object(name, STATEMENT_NAMESPACE))
    except NotFound:
        return {}


def statement_text(found: Mapping[str, Any], key: str) -> str:
    """What the ConfigMap has under that key; empty for nothing."""
    text = mapping_of(found, "data").get(key)
    return text if isinstance(text, str) else ""


def our_statement(
    text: str, keys: StatementKeys, maximum_bytes: int = MAXIMUM_STATEMENT_BYTES
) -> SignedStatement | NotOurs:
    """The statement, if a key of this controller signed it."""
    try:
        signed = statement.decode(text.encode("utf-8", "replace"), maximum_bytes=maximum_bytes)
    except (MalformedStatement, UnsupportedStatement):
        return NotOurs()
    values = {signature.key.text: signature.value for signature in signed.signatures}
    for name, public in keys.public.by_hash().items():
        try:
            verify(public, values.get(name, b""), signed_input(signed.statement))
        except InvalidSignature:
            continue
        return signed
    return NotOurs()


async def write_statement(
    client: GetCreateReplace, name: str, found: JsonObject, key: str, text: str, kept: Sequence[str] = ()
) -> None:
    """Write the text into the ConfigMap, in place of ``found``. What it has under the keys ``kept`` stays.

    Raises:
        ApiError: from the workload cluster; Conflict if another client wrote meanwhile.
        NotPublished: it is not there after the write.
    """
    metadata = {name: value for name, value in mapping_of(found, "metadata").items() if name != "managedFields"}
    others = {one: there for one in kept if (there := statement_text(found, one))}
    manifest: JsonObject = {
        "apiVersion": CONFIG_MAPS.api_version,
        "kind": "ConfigMap",
        "metadata": {**metadata, "name": name, "namespace": STATEMENT_NAMESPACE},
        "data": {**others, key: text},
    }
    if found:
        await client.replace(CONFIG_MAPS.object(name, STATEMENT_NAMESPACE), manifest)
    else:
        await client.create(CONFIG_MAPS.collection(STATEMENT_NAMESPACE), manifest)
    if statement_text(await read_statements(client, name), key) != text:
        raise NotPublished(f"ConfigMap {STATEMENT_NAMESPACE}/{name} was changed after the write")


__all__ = [
    "SIGNED_AGAIN",
    "NotOurs",
    "NotPublished",
    "our_statement",
    "read_statements",
    "statement_text",
    "write_statement",
]
