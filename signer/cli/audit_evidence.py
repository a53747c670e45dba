"""Options of ``audit verify`` that say who must have written the log: the controller key, and the published heads."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from signer.audit.authenticity import Evidence, GivenHeads, GivenKey, NoControllerKey
from signer.audit.findings import NoHeads
from signer.cli.arguments import WrongUse
from signer.cli.management import management_access
from signer.configuration import InvalidConfiguration
from signer.explain.manifests import UnreadableManifests, manifests_in
from signer.kube.client import Client
from signer.kube.errors import ApiError, NotFound
from signer.kube.resources import CONFIG_MAPS, SECRETS
from signer.model.audit_head import HEADS_NAME, read_heads
from signer.model.seal import KeyUse, Seals
from signer.store.controller_key import (
    MISSING_KEY_REMEDY,
    SECRET_NAME,
    MalformedControllerKey,
    parse_controller_keys,
)


def read_evidence(options: argparse.Namespace) -> Evidence:
    """Read what the options name.

    Raises:
        WrongUse: the options contradict each other.
        InvalidConfiguration: key or heads cannot be read.
    """
    if options.management_cluster:
        if options.controller_key is not None or options.heads is not None:
            raise WrongUse("--management-cluster reads key and heads: leave out --controller-key and --heads")
        return _evidence(*asyncio.run(_from_cluster(options)), partial=options.partial)
    if options.controller_key is None:
        if options.heads is not None:
            raise WrongUse("--heads needs --controller-key, which their seals are verified with: give both")
        return NoControllerKey()
    key = _manifest("--controller-key", options.controller_key)
    heads = NoHeads() if options.heads is None else _manifest("--heads", options.heads)
    return _evidence(key, heads, partial=options.partial)


def _evidence(key: Mapping[str, Any], heads: Mapping[str, Any] | NoHeads, *, partial: bool) -> GivenKey:
    try:
        keys = parse_controller_keys(key)
    except MalformedControllerKey as error:
        raise InvalidConfiguration(f"the controller key is malformed: {error}") from error
    given: GivenHeads | NoHeads = NoHeads()
    if not isinstance(heads, NoHeads):
        given = GivenHeads(read_heads(heads, Seals(keys, KeyUse.AUDIT_HEAD)), files_are_complete=not partial)
    return GivenKey(Seals(keys, KeyUse.AUDIT_LINE), given)


async def _from_cluster(options: argparse.Namespace) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    namespace = options.controller_namespace
    access = await management_access(options)
    try:
        async with Client(access.connection, token_source=access.token_source) as client:
            return await _read(client, namespace)
    except ApiError as error:  # exit code 1 is a fault of the log
        raise InvalidConfiguration(f"the management cluster: {error}") from error


async def _read(client: Client, namespace: str) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    try:
        key = await client.get(SECRETS.object(SECRET_NAME, namespace))
    except NotFound as error:
        raise InvalidConfiguration(f"Secret {namespace}/{SECRET_NAME} is missing: {MISSING_KEY_REMEDY}") from error
    try:
        return key, await client.get(CONFIG_MAPS.object(HEADS_NAME, namespace))
    except NotFound as error:
        raise InvalidConfiguration(
            f"ConfigMap {namespace}/{HEADS_NAME} is missing: no controller with an audit log ran, or it was deleted; "
            "save the Secret to a file to check MACs alone with --controller-key"
        ) from error


def _manifest(flag: str, path: Path) -> Mapping[str, Any]:
    try:
        manifests = manifests_in(path)
    except UnreadableManifests as error:
        raise InvalidConfiguration(f"{flag}: {error}") from error
    if len(manifests) != 1:
        raise InvalidConfiguration(f"{flag}: {path} must hold one object, and holds {len(manifests)}")
    return manifests[0]
